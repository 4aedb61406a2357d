//! The path of a message from the client to the upstream.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use riglm_domain::id::ToolName;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, ParamHeader, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::method::metric_label;
use riglm_domain::mcp::protocol::{Era, Transport};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::ClientLink as _;
use riglm_ports::upstream::Exchange as UpstreamExchange;
use tracing::Instrument as _;

use super::UpstreamSession;
use super::call_recording::CallContext;
use super::completion::{RequestCompletion, Response};
use super::recorded_names::{recorded_target, without_secrets};
use super::safeguards::{CallDecision, LocalResult, admit};
use super::scope::UpstreamScope;
use super::upstream_requests::{Pending, RequestPurpose, SendState, UNSENT};
use crate::proxy::admission::{NewRequest, stopping};
use crate::proxy::batches::without_requests;
use crate::proxy::client_description::ClientDescription;
use crate::proxy::client_requests::Handler;
use crate::proxy::request_params::{IdMember, RequestParams, id_member};
use crate::safeguards::Refusal;
use crate::tracking::CallTimes;
use crate::work_sessions::RequestKind;

/// The handling of a request after it was registered as in flight.
enum OpenedRequest {
    /// It is forwarded, with these headers if the transport of the client has none.
    ToSend(Option<Vec<ParamHeader>>),
    Answered(RequestId),
}

impl UpstreamSession {
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
        let span = self.span.clone();
        self.receive_in_span(message).instrument(span).await
    }

    async fn receive_in_span(
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
                        self.state.lock().end_server_request(id, Instant::now());
                        self.scope.entry.slots.free_idle_connections();
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
        let params = RequestParams::of(message, envelope);
        let meta = params.protocol_meta();
        if let Some(meta) = &meta {
            meta.check_complete(method)?;
            self.scope.client_context.set_request_description(meta);
        }
        let started_at = self.scope.shared.recorder.now();
        let is_call = method == "tools/call";
        let purpose = Self::purpose(method, &params);
        let now = Instant::now();
        let called = || params.name().map(|name| ToolName::from(name.as_ref()));
        let pending = Pending {
            purpose,
            method: metric_label(method),
            is_part: InternalRequest::FanOut.has(id),
            tool: is_call.then(called).flatten(),
            message: Some(message.clone()),
            generation: UNSENT,
            started: now,
            started_at,
            sent: None,
            handover: SendState::Waiting,
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
        self.intents.on_request(method, &params).await;
        match method {
            "initialize" => {
                let (client, requested) =
                    ClientDescription::of_initialize(message.params(envelope));
                (self.scope.client_context).set_description(client, requested.as_deref());
            }
            "tools/list" if !InternalRequest::FanOut.has(id) => {
                let UpstreamScope {
                    shared,
                    client_context,
                    ..
                } = &*self.scope;
                client_context
                    .work_session(shared, message.hints(), RequestKind::List, started_at)
                    .await;
            }
            "logging/setLevel" if !message.is_batch() => {
                let log_level = Some(message.clone());
                self.scope
                    .client_context
                    .set_handshake(|handshake| handshake.log_level = log_level);
            }
            _ => {}
        }
        let mut param_headers = None;
        if is_call {
            param_headers = self.scope.entry.params.headers_of(
                message,
                params.name().as_deref(),
                params.arguments(),
            )?;
            let call = self
                .recording
                .context(message, &params, now, started_at)
                .await;
            if let Some(result) = self.begin_call(id, &call).await? {
                self.end_locally(id, result).await;
                return Ok(OpenedRequest::Answered(id.clone()));
            }
        }
        Ok(OpenedRequest::ToSend(param_headers))
    }

    /// Takes a call that is registered as in flight through the layers: the rules of the operator,
    /// the safeguards, the record. Returns the result if the call is not forwarded. In that case
    /// [`Self::end_locally`] must follow.
    async fn begin_call(
        self: &Arc<Self>,
        id: &RequestId,
        call: &CallContext<'_>,
    ) -> Result<Option<LocalResult>, RpcError> {
        // Further rounds of an earlier call are refused too.
        let forbidden = self.authorization.forbidden_refusal(call);
        let decision = match &forbidden {
            Some(refusal) => CallDecision::Local(LocalResult::from_refusal(call.era, refusal)),
            None => match self.gating_refusal(call).await {
                Some(refusal) => CallDecision::Local(LocalResult::from_refusal(call.era, &refusal)),
                None => admit(&self.scope, call),
            },
        };
        let row = self.recording.open(call, forbidden.is_some()).await?;
        self.client.review_list(call.session_key, call.era);
        let (guard, local) = match decision {
            CallDecision::Forward(guard) => (guard, None),
            CallDecision::Local(result) => (None, Some(result)),
        };
        let row_id = row.id;
        let is_waiting = match self.state.lock().get_mut(id) {
            Some(pending) if pending.is_counted() => {
                pending.purpose = RequestPurpose::Call(Some(row));
                pending.guard = guard;
                true
            }
            _ => false,
        };
        if !is_waiting {
            // The request was cancelled, or the session ended, while the row was being opened.
            let times = CallTimes {
                wait: call.received.elapsed(),
                duration: Duration::ZERO,
            };
            let recorder = &self.scope.shared.recorder;
            recorder
                .call_closed(row_id, Outcome::Cancelled, times, (0, None))
                .await;
        }
        Ok(local)
    }

    /// Returns the refusal of a call if write gating withholds its tool.
    async fn gating_refusal(self: &Arc<Self>, call: &CallContext<'_>) -> Option<Refusal> {
        if call.is_admitted() || !self.authorization.may_refuse(call) {
            return None;
        }
        let catalog = self.described_catalog(call.message, call.era).await;
        self.authorization.refusal(call, catalog.as_deref())
    }

    /// Answers a call that is not forwarded, after closing its row.
    async fn end_locally(self: &Arc<Self>, id: &RequestId, local: LocalResult) {
        let LocalResult { outcome, result } = local;
        let Some(pending) = self.state.lock().remove(id) else {
            return;
        };
        let mut ending = RequestCompletion::new(self, id, pending);
        ending.set_outcome(outcome);
        let answer = Message::success(id, &result);
        if let Some(pending) = ending.take() {
            let response = Response::Message {
                size_bytes: answer.raw().len(),
                result: Some(&result),
            };
            self.complete(pending, outcome, response).await;
        }
        self.deliver_result(id, &result).await;
    }

    /// Returns the purpose of a request, which decides the handling of its answer.
    fn purpose(method: &str, params: &RequestParams<'_>) -> RequestPurpose {
        match method {
            "initialize" => RequestPurpose::Initialize,
            "server/discover" => RequestPurpose::Discover,
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
        if state.contains(id) {
            return Err(RpcError::new(
                RpcErrorCode::InvalidRequest,
                "a request with this id is already in flight",
            ));
        }
        // A fan-out request belongs to a client request that already has a permit.
        if InternalRequest::FanOut.has(id) {
            if self.scope.shared.is_stopping.load(Ordering::Acquire) {
                return Err(stopping());
            }
        } else {
            let request = NewRequest {
                id,
                method,
                n_bytes: pending.message.as_ref().map_or(0, n_bytes_of_each),
                n_unanswered: state.n_cancelled(),
            };
            let handler = Handler::Upstream(self.number);
            (self.scope.shared).admit(&self.scope.client_context, &request, handler)?;
        }
        state.insert(id.clone(), pending);
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
                let initialized = if message.is_batch() {
                    Message::notification(method::NOTIFICATIONS_INITIALIZED, None)
                } else {
                    message.clone()
                };
                self.scope
                    .client_context
                    .set_handshake(|handshake| handshake.initialized = Some(initialized));
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
            let cancelled = state.cancel(&id)?;
            // Without a transport session, many clients share a session. A request that one of them
            // cancels must not use up the limit of the others. The transport recognizes late
            // answers itself.
            if self.scope.client_context.era() == Era::Modern
                && self.scope.client_context.transport != Transport::Stdio
            {
                state.forget_cancelled(&id);
            }
            cancelled
        };
        let mut ending = RequestCompletion::of_cancelled(self, &id, cancelled);
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
                let is_own = state.get_mut(id).is_some_and(|pending| {
                    pending.generation == UNSENT && is_same(pending, message)
                });
                if is_own { state.remove(id) } else { None }
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
