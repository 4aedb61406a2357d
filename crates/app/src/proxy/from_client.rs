//! The way of a message from the client to the upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use riglm_domain::exchange::Exchange;
use riglm_domain::id::{InvocationId, ToolName};
use riglm_domain::invocation::{Outcome, ToolSource};
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::protocol::Revision;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::Exchange as UpstreamExchange;

use super::completion::Response;
use super::params::{IdMember, RequestParams, hello, id_member};
use super::pending::{Pending, Purpose};
use super::registry::stopping;
use super::session::ClientSession;
use crate::tracking::CallDetails;

/// The generation of a request that was not handed to any connection yet.
const UNSENT: u64 = u64::MAX;

impl ClientSession {
    /// Takes a message of the client: opens the rows that it needs and forwards its bytes.
    ///
    /// Requests are always answered through the [`ClientLink`], with an error if need be. Returns
    /// when the message was handed to the upstream, or the exchange that does so: the caller must
    /// drive it to its end.
    ///
    /// Not cancellation safe: run it on a task of its own where the caller may go away.
    ///
    /// # Errors
    ///
    /// Returns why a message without requests could not be passed on.
    ///
    /// [`ClientLink`]: riglm_ports::downstream::ClientLink
    pub async fn receive(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<UpstreamExchange>, RpcError> {
        self.touch();
        if let Err(error) = self.admissible(&message) {
            return self.refuse(&message, error).await.map(|()| None);
        }
        let mut cancelled = None;
        for envelope in message.envelopes() {
            match envelope.kind() {
                Kind::Request => {
                    if let Err(error) = self.open(&message, envelope).await {
                        self.refuse_opened(&message, envelope, &error).await;
                        return Ok(None);
                    }
                }
                Kind::Notification => cancelled = self.note(&message, envelope).await,
                Kind::Success | Kind::Failure => {
                    if let Some(id) = envelope.id() {
                        self.state().pending.client_answered(id);
                    }
                }
            }
        }
        let forwarded = self.forward(message).await;
        if let Some(id) = cancelled {
            self.client.finish(&id).await;
        }
        forwarded
    }

    /// Checks what holds for the message as a whole.
    fn admissible(&self, message: &Message) -> Result<(), RpcError> {
        if self.is_closed() {
            return Err(RpcError::new(
                RpcErrorCode::SessionNotFound,
                "the session has ended",
            ));
        }
        let invalid = |text: &str| Err(RpcError::new(RpcErrorCode::InvalidRequest, text));
        if !message.envelopes().iter().all(Envelope::is_version_2) {
            return invalid(r#"a message must have "jsonrpc": "2.0""#);
        }
        if message.is_batch()
            && !self
                .revision()
                .is_none_or(|revision| revision.allows_batches())
        {
            return invalid("the revision of this session has no JSON-RPC batches");
        }
        Ok(())
    }

    /// Notes a request as in flight and opens its row.
    async fn open(&self, message: &Message, envelope: &Envelope) -> Result<(), RpcError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(());
        };
        let params = RequestParams::read(message.params(envelope));
        let started_at = self.shared.recorder.now();
        let purpose = match method {
            "initialize" => Purpose::Initialize,
            "tools/call" => Purpose::Call(None),
            "tools/list" => Purpose::ListTools,
            method if Exchange::METHODS.contains(&method) => Purpose::Exchange {
                method: method.into(),
                target: params.uri().or_else(|| params.name()).map(Into::into),
            },
            _ => Purpose::Other,
        };
        let is_call = matches!(purpose, Purpose::Call(_));
        let now = Instant::now();
        let pending = Pending {
            purpose,
            message: message.clone(),
            generation: UNSENT,
            started: now,
            started_at,
            last_sign: now,
            progress_token: params.progress_token(),
            last_progress: None,
            is_cancelled: false,
            was_resent: false,
            order: 0,
        };
        self.reserve(id, pending)?;
        match method {
            "initialize" => {
                let (client_info, requested) = hello(message.params(envelope));
                let mut state = self.state();
                state.client_info = client_info;
                state.revision = requested.as_deref().map(Revision::new);
            }
            "logging/setLevel" => self.state().handshake.log_level = Some(message.clone()),
            _ => {}
        }
        if is_call {
            let row = self.open_call(message, &params, started_at).await?;
            if let Some(pending) = self.state().pending.get_mut(id) {
                pending.purpose = Purpose::Call(Some(row));
            }
        }
        Ok(())
    }

    /// Takes a place in the table of requests in flight.
    fn reserve(&self, id: &RequestId, pending: Pending) -> Result<(), RpcError> {
        if self.shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let limits = &self.shared.limits;
        let mut state = self.state();
        if state.pending.contains(id) {
            return Err(RpcError::new(
                RpcErrorCode::InvalidRequest,
                "a request with this id is in flight already",
            ));
        }
        if state.pending.len() >= limits.in_flight_per_session
            || self.shared.n_in_flight.load(Ordering::Relaxed) >= limits.in_flight
        {
            return Err(RpcError::new(
                RpcErrorCode::LimitReached,
                "too many requests are in flight; try again when some have ended",
            ));
        }
        state.pending.insert(id.clone(), pending);
        self.shared.n_in_flight.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Opens the row of a tool call.
    async fn open_call(
        &self,
        message: &Message,
        params: &RequestParams<'_>,
        started_at: jiff::Timestamp,
    ) -> Result<InvocationId, RpcError> {
        let session = self.row().await;
        let tool = ToolName::from(params.name().as_deref().unwrap_or_default());
        let is_hidden = self.state().hidden.contains(&tool);
        let details = CallDetails {
            session,
            principal: &self.principal,
            upstream: self.connection.connector().name(),
            tool,
            arguments: params.arguments(),
            started_at,
            sequence: self.next_sequence(),
            source: if is_hidden {
                ToolSource::Hidden
            } else {
                ToolSource::Shown
            },
            request_bytes: message.raw().len(),
        };
        self.shared
            .recorder
            .call_opened(details)
            .await
            .map_err(|refused| {
                RpcError::new(RpcErrorCode::RecordingUnavailable, refused.to_string())
            })
    }

    /// Takes note of a notification. Returns the request that it cancels.
    async fn note(&self, message: &Message, envelope: &Envelope) -> Option<RequestId> {
        match envelope.method()? {
            "notifications/initialized" => {
                self.state().handshake.initialized = Some(message.clone());
                None
            }
            "notifications/cancelled" => {
                let id = id_member(message.params(envelope), IdMember::RequestId)?;
                self.cancel(&id).await.then_some(id)
            }
            _ => None,
        }
    }

    /// Closes the row of a request that the client no longer wants. It stays in the table, so
    /// that a late answer is known. Returns whether there was such a request.
    async fn cancel(&self, id: &RequestId) -> bool {
        let cancelled = {
            let mut state = self.state();
            let Some(pending) = state.pending.get_mut(id) else {
                return false;
            };
            if pending.is_cancelled || matches!(pending.purpose, Purpose::Initialize) {
                return false;
            }
            pending.is_cancelled = true;
            Pending {
                purpose: std::mem::replace(&mut pending.purpose, Purpose::Other),
                message: pending.message.clone(),
                progress_token: None,
                ..*pending
            }
        };
        self.complete(cancelled, Outcome::Cancelled, Response::None)
            .await;
        true
    }

    /// Refuses a message as a whole, before anything of it was noted.
    async fn refuse(&self, message: &Message, error: RpcError) -> Result<(), RpcError> {
        let mut requests = message
            .envelopes()
            .iter()
            .filter_map(Envelope::as_request)
            .peekable();
        if requests.peek().is_none() {
            return Err(error);
        }
        for (_, id) in requests {
            self.deliver_error(id, &error).await;
        }
        Ok(())
    }

    /// Refuses a message of which `failing` could not be opened: what was opened before it in the
    /// same batch is closed again.
    async fn refuse_opened(&self, message: &Message, failing: &Envelope, error: &RpcError) {
        for envelope in message.envelopes() {
            let is_failing = std::ptr::eq(envelope, failing);
            let Some((_, id)) = envelope.as_request() else {
                continue;
            };
            // The place may belong to an earlier request with the same id.
            let own = {
                let mut state = self.state();
                let is_own = state.pending.get_mut(id).is_some_and(|pending| {
                    pending.generation == UNSENT && is_same(pending, message)
                });
                if is_own {
                    state.pending.remove(id)
                } else {
                    None
                }
            };
            match own {
                Some(pending) => self.fail(id, pending, Outcome::Error, error).await,
                None if is_failing || message.is_batch() => self.deliver_error(id, error).await,
                None => {}
            }
        }
    }
}

/// Returns whether a request in flight was made by this very message.
fn is_same(pending: &Pending, message: &Message) -> bool {
    std::ptr::eq(pending.message.raw().as_ptr(), message.raw().as_ptr())
}
