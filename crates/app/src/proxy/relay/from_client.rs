//! The way of a message from the client to the upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use riglm_domain::exchange::Exchange;
use riglm_domain::id::ToolName;
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Envelope, Kind, Message, ParamHeader, RequestId};
use riglm_domain::method::counted;
use riglm_domain::protocol::Transport;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::upstream::Exchange as UpstreamExchange;

use super::Relay;
use super::completion::{Ending, Response};
use super::here::Received;
use super::params::{IdMember, RequestParams, id_member};
use super::pending::{Handover, Pending, Purpose};
use super::recorded_names::{recorded_target, without_secrets};
use super::search::alone;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::places::{Presence, Standing};
use crate::proxy::shared::{is_greeting, stopping};
use crate::proxy::united::is_own as is_part_of_another;
use crate::work_sessions::RequestKind;

/// What is played back for a client that sent it in a batch.
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

/// The generation of a request that was not handed to any connection yet.
const UNSENT: u64 = u64::MAX;

/// What becomes of a request that was noted as in flight.
enum Opened {
    /// It is forwarded, with these headers where the client did not say.
    ToSend(Option<Vec<ParamHeader>>),
    /// It is answered here.
    Here(RequestId, UpstreamExchange),
}

/// A request that the client took back.
struct Cancelled {
    id: RequestId,
    is_for_upstream: bool,
}

impl Relay {
    /// Takes a message of the client: opens the rows that it needs and forwards its bytes.
    ///
    /// Requests are always answered through the [`ClientLink`], with an error if need be. Returns
    /// when the message was handed to the upstream, or the exchange that does so: the caller must
    /// drive it to its end.
    ///
    /// Not cancellation safe.
    ///
    /// # Errors
    ///
    /// Returns why a message without requests could not be passed on.
    ///
    /// [`ClientLink`]: riglm_ports::downstream::ClientLink
    pub(in crate::proxy) async fn receive(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<UpstreamExchange>, RpcError> {
        self.touch();
        let mut message = self.unwrapped(message);
        if let Err(error) = self.admissible(&message) {
            return self.refuse(&message, error).await.map(|()| None);
        }
        let mut cancelled = None;
        let mut param_headers = None;
        let mut here = Vec::new();
        for envelope in message.envelopes() {
            match envelope.kind() {
                Kind::Request => match self.open(&message, envelope).await {
                    Ok(Opened::ToSend(derived)) => param_headers = derived,
                    Ok(Opened::Here(id, search)) => here.push((id, search)),
                    Err(error) => {
                        self.refuse_opened(&message, envelope, &error).await;
                        return Ok(None);
                    }
                },
                Kind::Notification => cancelled = self.note(&message, envelope).await,
                Kind::Success | Kind::Failure => {
                    if let Some(id) = envelope.id() {
                        self.state().pending.server_satisfied(id, Instant::now());
                        self.entry.slots.make_places();
                    }
                }
            }
        }
        if let Some(headers) = param_headers {
            message = message.with_param_headers(headers);
        }
        let forwarded = match &cancelled {
            Some(cancelled) if !cancelled.is_for_upstream && !message.is_batch() => Ok(None),
            _ if !here.is_empty() => self.forward_rest(&message, here).await,
            _ => self.forward(message).await,
        };
        if let Some(cancelled) = cancelled {
            self.client.finish(&cancelled.id).await;
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
                .caller
                .revision()
                .is_none_or(|revision| revision.allows_batches())
        {
            return invalid("the revision of this session has no JSON-RPC batches");
        }
        Ok(())
    }

    /// Notes a request as in flight and opens its row.
    async fn open(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<Opened, RpcError> {
        let Some((method, id)) = envelope.as_request() else {
            return Ok(Opened::ToSend(None));
        };
        let params = RequestParams::read(message.params(envelope));
        let meta = params.protocol_meta();
        if let Some(meta) = &meta {
            meta.check_complete(method)?;
            self.caller.presented(meta);
        }
        let started_at = self.shared.recorder.now();
        let is_call = method == "tools/call";
        let here = self.answered_here(method, &params);
        if let (Some(_), Some(meta)) = (&here, &meta) {
            meta.check_spoken()?;
        }
        let purpose = match &here {
            Some(here) => Purpose::Here(here.cancel.clone()),
            None => self.purpose(method, &params),
        };
        let now = Instant::now();
        let is_passed_on = here.is_none();
        let called = || params.name().map(|name| ToolName::from(name.as_ref()));
        let pending = Pending {
            purpose,
            method: counted(method),
            is_part: is_part_of_another(id),
            tool: (is_call && is_passed_on).then(called).flatten(),
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
            standing: Standing::default(),
        };
        self.reserve(method, id, pending)?;
        self.note_intent_of(method, &params).await;
        if let Some(here) = here {
            let received = Received {
                id: id.clone(),
                message: alone(message, envelope).unwrap_or_else(|| message.clone()),
                is_modern: meta.is_some(),
                at: now,
                at_by_clock: started_at,
            };
            let exchange = self.answer_here(here, received).await;
            return Ok(Opened::Here(id.clone(), exchange));
        }
        match method {
            "initialize" => {
                let (client, requested) =
                    ClientDescription::of_initialize(message.params(envelope));
                self.caller.introduced(client, requested.as_deref());
            }
            "tools/list" if !self.is_united() => {
                let hints = message.hints();
                let work =
                    self.caller
                        .work_session(&self.shared, hints, RequestKind::List, started_at);
                work.await;
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
                self.end_here(id, here).await;
                return Ok(Opened::Here(id.clone(), UpstreamExchange::done()));
            }
        }
        Ok(Opened::ToSend(param_headers))
    }

    /// Returns what must happen when the answer to a request comes.
    fn purpose(&self, method: &str, params: &RequestParams<'_>) -> Purpose {
        match method {
            "initialize" => Purpose::Initialize,
            "server/discover" if self.shared.filter.is_active() => Purpose::Discover,
            "tools/call" => Purpose::Call(None),
            "tools/list" => Purpose::ListTools,
            "subscriptions/listen" => Purpose::Listen { has_tools: false },
            method if Exchange::METHODS.contains(&method) => Purpose::Exchange {
                method: method.into(),
                target: params
                    .uri()
                    .map(|uri| without_secrets(&uri))
                    .or_else(|| params.name().map(|name| recorded_target(&name))),
            },
            _ => Purpose::Other,
        }
    }

    /// Takes a place in the table of requests in flight.
    pub(super) fn reserve(
        &self,
        method: &str,
        id: &RequestId,
        mut pending: Pending,
    ) -> Result<(), RpcError> {
        if self.shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let limits = self.shared.limits();
        let mut state = self.state();
        if state.pending.contains(id) {
            return Err(RpcError::new(
                RpcErrorCode::InvalidRequest,
                "a request with this id is in flight already",
            ));
        }
        // What the session asks of several upstreams is for a request that has its place.
        if !is_part_of_another(id) {
            if !is_greeting(method) && state.pending.is_full(limits.in_flight_per_session) {
                return Err(self.shared.session_is_full(&self.caller.origin()));
            }
            let message = pending.message.as_ref();
            let n_bytes = message.map_or(0, n_bytes_of_each);
            pending.standing = (self.shared).take_place(&self.caller.principal, method, n_bytes)?;
        }
        state.pending.insert(id.clone(), pending);
        Ok(())
    }

    /// Notes whether the client waits for the answer to a request, which goes on in any case.
    pub(in crate::proxy) fn note_presence(&self, id: &RequestId, presence: Presence) {
        {
            let mut state = self.state();
            let Some(pending) = state.pending.get_mut(id) else {
                return;
            };
            let background = || self.shared.background_place(&self.caller.principal);
            pending.standing.note(presence, background);
        }
        self.has_fewer_pending.notify_waiters();
    }

    /// Takes note of a notification. Returns the request that it cancels.
    async fn note(self: &Arc<Self>, message: &Message, envelope: &Envelope) -> Option<Cancelled> {
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

    /// Closes the row of a request that the client no longer wants. It stays in the table, so
    /// that a late answer is known. Returns the request, if there was one.
    async fn cancel(self: &Arc<Self>, id: RequestId) -> Option<Cancelled> {
        let cancelled = {
            let mut state = self.state();
            let cancelled = state.pending.cancel(&id)?;
            let is_for_upstream = cancelled.is_for_upstream();
            // Many clients share a session without a transport session: what one of them abandons
            // must not take a place of the others. The transport knows a late answer for what it is.
            let is_shared = self.caller.is_modern() && self.caller.transport != Transport::Stdio;
            if is_shared || !is_for_upstream {
                state.pending.forget_cancelled(&id);
            }
            cancelled
        };
        let is_for_upstream = cancelled.is_for_upstream();
        let mut ending = Ending::of_cancelled(self, cancelled);
        if let Some(pending) = ending.take() {
            self.complete(pending, Outcome::Cancelled, Response::None)
                .await;
        }
        Some(Cancelled {
            id,
            is_for_upstream,
        })
    }

    /// Refuses a message as a whole, before anything of it was noted.
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

    /// Refuses a message of which `failing` could not be opened: what was opened before it in the
    /// same batch is closed again.
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

/// Returns the bytes of a message that count for each of its requests.
fn n_bytes_of_each(message: &Message) -> usize {
    message
        .raw()
        .len()
        .div_ceil(message.request_ids().count().max(1))
}

/// Returns whether a request in flight was made by this very message.
fn is_same(pending: &Pending, message: &Message) -> bool {
    let sent = pending.message.as_ref();
    sent.is_some_and(|sent| std::ptr::eq(sent.raw().as_ptr(), message.raw().as_ptr()))
}
