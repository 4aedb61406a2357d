//! The path of a message from the client to the upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use riglm_domain::id::ToolName;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, ParamHeader, RequestId};
use riglm_domain::mcp::method::metric_label;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::ClientLink as _;
use riglm_ports::upstream::Exchange as UpstreamExchange;

use super::Relay;
use super::completion::{Ending, Response};
use super::params::{IdMember, RequestParams, id_member};
use super::pending::{Handover, Pending, RequestPurpose};
use super::recorded_names::{recorded_target, without_secrets};
use crate::proxy::aggregator::is_own as is_part_of_another;
use crate::proxy::batches::without_requests;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::requests::Handler;
use crate::proxy::shared_state::{NewRequest, stopping};

/// The notification to replay for a client that sent it in a batch.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The generation of a request that was not sent on any connection yet.
const UNSENT: u64 = u64::MAX;

/// The handling of a request after it was registered as in flight.
enum OpenedRequest {
    /// It is forwarded, with these headers if the transport of the client has none.
    ToSend(Option<Vec<ParamHeader>>),
    /// A safeguard answered it.
    Answered(RequestId),
}

impl Relay {
    /// Receives a message of the client: opens the rows that it needs and forwards its bytes.
    ///
    /// Requests are always answered through the [`ClientLink`], if necessary with an error. Returns
    /// when the message has reached the upstream, or returns the exchange that sends it. The caller
    /// must drive the exchange to its end.
    ///
    /// Not cancellation safe.
    ///
    /// # Errors
    ///
    /// Returns the reason why a message without requests could not be forwarded.
    ///
    /// [`ClientLink`]: riglm_ports::downstream::ClientLink
    pub(in crate::proxy) async fn receive(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<UpstreamExchange>, RpcError> {
        self.touch();
        if self.is_closed() {
            let error = RpcError::new(RpcErrorCode::SessionNotFound, "the session has ended");
            return self.refuse(&message, error).await.map(|()| None);
        }
        let mut cancelled = None;
        let mut param_headers = None;
        let mut answered = Vec::new();
        for envelope in message.envelopes() {
            match envelope.kind() {
                MessageKind::Request => match self.open(&message, envelope).await {
                    Ok(OpenedRequest::ToSend(derived)) => param_headers = derived,
                    Ok(OpenedRequest::Answered(id)) => answered.push(id),
                    Err(error) => {
                        self.refuse_opened(&message, envelope, &error).await;
                        return Ok(None);
                    }
                },
                MessageKind::Notification => {
                    cancelled = self.note_notification(&message, envelope).await;
                }
                MessageKind::Success | MessageKind::Failure => {
                    if let Some(id) = envelope.id() {
                        self.state
                            .lock()
                            .pending
                            .end_server_request(id, Instant::now());
                        self.entry.slots.free_idle_connections();
                    }
                }
            }
        }
        let message = match param_headers {
            Some(headers) => message.with_param_headers(headers),
            None => message,
        };
        let forwarded = match without_requests(&message, &answered) {
            Some(rest) => self.forward(rest).await,
            None => Ok(None),
        };
        if let Some(cancelled) = cancelled {
            self.client.finish(&cancelled).await;
        }
        forwarded
    }

    /// Registers a request as in flight and opens its row.
    async fn open(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<OpenedRequest, RpcError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(OpenedRequest::ToSend(None));
        };
        let params = RequestParams::read(message.params(envelope));
        let meta = params.protocol_meta();
        if let Some(meta) = &meta {
            meta.check_complete(method)?;
            self.caller.set_request_description(meta);
        }
        let started_at = self.shared.recorder.now();
        let is_call = method == "tools/call";
        let purpose = self.purpose(method, &params);
        let now = Instant::now();
        let called = || params.name().map(|name| ToolName::from(name.as_ref()));
        let pending = Pending {
            purpose,
            method: metric_label(method),
            is_part: is_part_of_another(id),
            tool: is_call.then(called).flatten(),
            message: Some(message.clone()),
            generation: UNSENT,
            started: now,
            started_at,
            sent: None,
            handover: Handover::Waiting,
            ended: None,
            last_sign: now,
            progress_token: params.progress_token(),
            last_progress: None,
            is_cancelled: false,
            was_resent: false,
            order: 0,
            span: None,
            guard: None,
        };
        self.reserve(method, id, pending)?;
        self.note_intent_of(method, &params).await;
        match method {
            "initialize" => {
                let (client, requested) =
                    ClientDescription::of_initialize(message.params(envelope));
                self.caller.set_description(client, requested.as_deref());
            }
            "logging/setLevel" if !message.is_batch() => {
                let log_level = Some(message.clone());
                self.caller
                    .set_handshake(|handshake| handshake.log_level = log_level);
            }
            _ => {}
        }
        let mut param_headers = None;
        if is_call {
            param_headers = self
                .entry
                .params
                .headers_of(message, params.name().as_deref(), params.arguments())
                .map_err(|text| RpcError::new(RpcErrorCode::HeaderMismatch, text))?;
            let received = self.call_received(message, &params, started_at).await;
            if let Some(here) = self
                .begin_call(message, &params, (id, received, now))
                .await?
            {
                self.end_locally(id, here).await;
                return Ok(OpenedRequest::Answered(id.clone()));
            }
        }
        Ok(OpenedRequest::ToSend(param_headers))
    }

    /// Returns the purpose of a request, which decides the handling of its answer.
    fn purpose(&self, method: &str, params: &RequestParams<'_>) -> RequestPurpose {
        match method {
            "initialize" => RequestPurpose::Initialize,
            "server/discover" if self.shared.filter.is_active() => RequestPurpose::Discover,
            "tools/call" => RequestPurpose::Call(None),
            "tools/list" => RequestPurpose::ListTools,
            "subscriptions/listen" => RequestPurpose::Listen { has_tools: false },
            method if Exchange::RECORDED_METHODS.contains(&method) => RequestPurpose::Exchange {
                method: method.into(),
                target: params
                    .uri()
                    .map(|uri| without_secrets(&uri))
                    .or_else(|| params.name().map(|name| recorded_target(&name))),
            },
            _ => RequestPurpose::Other,
        }
    }

    /// Reserves an entry in the table of requests in flight.
    pub(super) fn reserve(
        &self,
        method: &str,
        id: &RequestId,
        pending: Pending,
    ) -> Result<(), RpcError> {
        let mut state = self.state.lock();
        if state.pending.contains(id) {
            return Err(RpcError::new(
                RpcErrorCode::InvalidRequest,
                "a request with this id is already in flight",
            ));
        }
        // A fan-out request belongs to a client request that already has a permit.
        if is_part_of_another(id) {
            if self.shared.is_stopping.load(Ordering::Acquire) {
                return Err(stopping());
            }
        } else {
            let request = NewRequest {
                id,
                method,
                n_bytes: pending.message.as_ref().map_or(0, n_bytes_of_each),
                n_unanswered: state.pending.n_cancelled(),
            };
            let handler = Handler::Upstream(self.number);
            self.shared.admit(&self.caller, &request, handler)?;
        }
        state.pending.insert(id.clone(), pending);
        Ok(())
    }

    /// Processes a notification. Returns the request that it cancels.
    async fn note_notification(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Option<RequestId> {
        match envelope.method()? {
            "notifications/initialized" => {
                let own = || Message::from_text(INITIALIZED.into()).ok();
                let alone = (!message.is_batch()).then(|| message.clone());
                let initialized = alone.or_else(own);
                self.caller
                    .set_handshake(|handshake| handshake.initialized = initialized);
                None
            }
            "notifications/cancelled" => {
                let id = id_member(message.params(envelope), IdMember::RequestId)?;
                self.cancel(id).await
            }
            _ => None,
        }
    }

    /// Closes the row of a cancelled request. The request stays in the table, so that a late answer
    /// is recognized. Returns its id if it was in flight.
    async fn cancel(self: &Arc<Self>, id: RequestId) -> Option<RequestId> {
        let cancelled = {
            let mut state = self.state.lock();
            let cancelled = state.pending.cancel(&id)?;
            // Without a transport session, many clients share a session. A request that one of them
            // cancels must not use up the limit of the others. The transport recognizes late
            // answers itself.
            if self.caller.is_modern() && self.caller.transport != Transport::Stdio {
                state.pending.forget_cancelled(&id);
            }
            cancelled
        };
        let mut ending = Ending::of_cancelled(self, &id, cancelled);
        if let Some(pending) = ending.take() {
            self.complete(pending, Outcome::Cancelled, Response::None)
                .await;
        }
        Some(id)
    }

    /// Refuses a message as a whole, before any part of it was registered.
    async fn refuse(&self, message: &Message, error: RpcError) -> Result<(), RpcError> {
        let mut requests = message.request_ids().peekable();
        if requests.peek().is_none() {
            return Err(error);
        }
        for id in requests {
            self.deliver_error(id, &error).await;
        }
        Ok(())
    }

    /// Refuses a message whose part `failing` could not be opened. Requests of the same batch that
    /// were opened before are closed again.
    async fn refuse_opened(
        self: &Arc<Self>,
        message: &Message,
        failing: &Envelope,
        error: &RpcError,
    ) {
        for envelope in message.envelopes() {
            let is_failing = std::ptr::eq(envelope, failing);
            let Some((_, id)) = envelope.as_request() else {
                continue;
            };
            // The entry may belong to an earlier request with the same id.
            let own = {
                let mut state = self.state.lock();
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

/// Returns the number of message bytes that count for each of its requests.
fn n_bytes_of_each(message: &Message) -> usize {
    message
        .raw()
        .len()
        .div_ceil(message.request_ids().count().max(1))
}

/// Returns whether a request in flight was made by this very message, compared by address.
fn is_same(pending: &Pending, message: &Message) -> bool {
    let sent = pending.message.as_ref();
    sent.is_some_and(|sent| std::ptr::eq(sent.raw().as_ptr(), message.raw().as_ptr()))
}
