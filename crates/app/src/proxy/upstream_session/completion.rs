//! The completion of requests. The row of a request is closed before the client gets the answer.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::{ClientLink as _, Route};
use riglm_ports::observer::{Event, RequestEndedEvent};
use riglm_ports::tracer::SpanOperation;
use riglm_ports::upstream::UpstreamError;

use super::UpstreamSession;
use super::connection::RETRY_LATER;
use super::recorded_names::recorded_tool;
use super::upstream_requests::{Pending, RequestPurpose, SendState};
use crate::proxy::client_requests::EndingRequest;
use crate::proxy::recent_calls::EndedCall;
use crate::tracking::micros;

/// The answer to a request, as far as its row needs it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response<'a> {
    None,
    /// An answer of this size. The result is present if the request succeeded.
    Message {
        /// The size of the message in bytes.
        size_bytes: usize,
        /// The JSON text of the result.
        result: Option<&'a str>,
    },
}

impl UpstreamSession {
    /// Closes the row of a request that ended.
    pub(super) async fn complete(
        &self,
        mut pending: Pending,
        outcome: Outcome,
        response: Response<'_>,
    ) {
        pending.end_span(outcome);
        let is_recorded = matches!(
            pending.purpose,
            RequestPurpose::Call(Some(_)) | RequestPurpose::Exchange { .. }
        );
        let request = pending.message.as_ref().filter(|_| is_recorded);
        let of = request.and_then(Message::trace);
        let _storing = self.scope.shared.span(&SpanOperation::Store, of);
        let recorder = &self.scope.shared.recorder;
        let is_answered = matches!(response, Response::Message { .. });
        let times = pending.times(is_answered);
        match pending.purpose {
            RequestPurpose::Call(Some(row)) => {
                let response = match response {
                    Response::None => (0, None),
                    Response::Message { size_bytes, result } => (size_bytes, result),
                };
                recorder.call_closed(row.id, outcome, times, response).await;
                if let Some(tool) = pending.tool
                    && self.scope.shared.has_session_app()
                {
                    self.scope.client_context.calls.add(EndedCall {
                        session_key: row.session_key,
                        tool: self.scope.tool_ref(&recorded_tool(tool)),
                        outcome,
                        began_at: pending.started_at,
                        duration: times.duration,
                    });
                }
                if let Some(lesson) = row.lesson {
                    self.recording.report_end(*lesson, row.id, outcome).await;
                }
            }
            RequestPurpose::Exchange { method, target } => {
                let exchange = Exchange {
                    id: recorder.exchange_id(pending.started_at),
                    session: self.scope.session_id().await,
                    principal: self.scope.client_context.principal.clone(),
                    upstream: self.scope.upstream().clone(),
                    method: method.into(),
                    target,
                    started_at: pending.started_at,
                    duration_us: micros(times.wait + times.duration),
                    outcome,
                };
                recorder.record_exchange(exchange).await;
            }
            RequestPurpose::Call(None)
            | RequestPurpose::Initialize
            | RequestPurpose::ListTools
            | RequestPurpose::Discover
            | RequestPurpose::Listen { .. }
            | RequestPurpose::Other
            | RequestPurpose::Own(_) => {}
        }
    }

    /// Ends a request with an error of the proxy.
    pub(super) async fn fail(
        self: &Arc<Self>,
        id: &RequestId,
        mut pending: Pending,
        outcome: Outcome,
        error: &RpcError,
    ) {
        pending.end_span(outcome);
        let mut ending = RequestCompletion::new(self, id, pending);
        if !ending.is_counted {
            return; // Nobody waits; dropping it tells a waiting task of the proxy's own.
        }
        ending.set_outcome(outcome);
        if let Some(pending) = ending.take() {
            self.complete(pending, outcome, Response::None).await;
        }
        self.deliver_error(id, error).await;
    }

    /// Ends a request because the upstream failed, and reports the failure to the waiting side.
    pub(super) async fn fail_upstream(
        self: &Arc<Self>,
        id: &RequestId,
        pending: Pending,
        error: &UpstreamError,
    ) {
        if let RequestPurpose::Own(waiting) = pending.purpose {
            // The waiting task may have given up. Then the error is of no interest.
            let _ = waiting.send(Err(error.clone()));
            self.has_fewer_pending.notify_waiters();
            return;
        }
        let failure = self.failure_of(error);
        self.fail(id, pending, Outcome::Error, &failure).await;
    }

    /// Returns the error that the client gets when the upstream fails. During the back-off it is
    /// the error of the last attempt.
    pub(super) fn failure_of(&self, error: &UpstreamError) -> RpcError {
        let is_put_off = *error
            == UpstreamError::Unreachable {
                reason: RETRY_LATER,
            };
        let cause = self.scope.entry.failure().filter(|_| is_put_off);
        upstream_failure(self.scope.upstream(), cause.as_ref().unwrap_or(error))
    }

    /// Answers a request with a result of the proxy.
    pub(super) async fn deliver_result(&self, id: &RequestId, result: &str) {
        let route = Route::Related(id.clone());
        self.client
            .deliver(Message::success(id, result), route)
            .await;
    }

    /// Answers a request with an error of the proxy.
    pub(super) async fn deliver_error(&self, id: &RequestId, error: &RpcError) {
        match Message::from_text(error.to_json(Some(id))) {
            Ok(message) => {
                self.client
                    .deliver(message, Route::Related(id.clone()))
                    .await;
            }
            Err(source) => tracing::error!("riglm built an invalid error message: {source}"),
        }
    }

    /// Answers requests whose deadline has passed, and cancels them at the upstream.
    pub(in crate::proxy) async fn time_out(self: &Arc<Self>, expired: Vec<(RequestId, Pending)>) {
        let error = timed_out(self.scope.upstream());
        for (id, pending) in expired {
            let is_cancellable =
                pending.is_counted() && !matches!(pending.purpose, RequestPurpose::Initialize);
            self.fail(&id, pending, Outcome::Timeout, &error).await;
            if is_cancellable {
                self.cancel_upstream(&id, "deadline exceeded").await;
            }
        }
    }

    /// Sends the upstream a cancellation of a request.
    pub(super) async fn cancel_upstream(&self, id: &RequestId, why: &'static str) {
        self.send_to_upstream(Message::cancellation(id, Some(why)))
            .await;
    }

    /// Sends a message of the proxy itself to the upstream if a connection is open.
    pub(super) async fn send_to_upstream(&self, message: Message) {
        let Some(live) = self.connection.current() else {
            return;
        };
        if let Err(error) = live.link.send(message).await {
            tracing::debug!("failed to send a message of the proxy to the upstream: {error}");
        }
    }
}

/// Returns the error for a request that was not answered before its deadline.
pub(in crate::proxy) fn timed_out(upstream: &UpstreamName) -> RpcError {
    let text = format!("upstream {upstream}: request timed out");
    RpcError::new(RpcErrorCode::UpstreamTimeout, text)
}

/// Returns the error that the client gets when the upstream fails.
pub(in crate::proxy) fn upstream_failure(name: &UpstreamName, error: &UpstreamError) -> RpcError {
    let code = match error {
        UpstreamError::NotStarted { .. }
        | UpstreamError::Unreachable { .. }
        | UpstreamError::Busy { .. }
        | UpstreamError::Lost { .. }
        | UpstreamError::SessionExpired
        | UpstreamError::Unauthorized { .. }
        | UpstreamError::Refused { .. }
        | UpstreamError::Status { .. } => RpcErrorCode::UpstreamUnavailable,
        UpstreamError::Garbled { .. }
        | UpstreamError::TooLarge { .. }
        | UpstreamError::TooDeep { .. }
        | UpstreamError::NoAnswer => RpcErrorCode::UpstreamGarbled,
    };
    RpcError::new(code, format!("upstream {name}: {error}"))
}

/// A request that was removed from the table and whose end is on its way to the client.
///
/// The future that delivers the answer is dropped if its connection is closed. In any case the drop
/// of this value releases the permit, closes the row and reports the event.
pub(super) struct RequestCompletion {
    upstream: Arc<UpstreamSession>,
    pending: Option<Pending>,
    is_counted: bool,
    /// The end of the client's request. On drop its permit is released.
    request: Option<EndingRequest>,
    /// The data of the event; `None` if another one reports the end.
    event: Option<CompletionEvent>,
}

/// The data of the event at the end of a request.
struct CompletionEvent {
    method: &'static str,
    tool: Option<ToolName>,
    outcome: Outcome,
    received: Instant,
    sent: Option<Instant>,
    handover: SendState,
    answered: Instant,
}

impl CompletionEvent {
    /// Returns the event data of a request. Returns `None` for a part of a fan-out, which is
    /// reported there. Calls are always reported here, with their upstream and tool.
    fn of(pending: &Pending) -> Option<Self> {
        if pending.is_part && pending.tool.is_none() {
            return None;
        }
        Some(Self {
            method: pending.method,
            tool: pending.tool.clone(),
            outcome: Outcome::Cancelled,
            received: pending.started,
            sent: pending.sent,
            handover: pending.handover,
            answered: Instant::now(),
        })
    }

    fn report(&self, upstream: &UpstreamSession) {
        let with_upstream = (self.sent).map(|sent| self.answered.saturating_duration_since(sent));
        upstream.scope.shared.observe_from(
            &Event::RequestEnded(RequestEndedEvent {
                method: self.method,
                upstream: self.sent.map(|_| upstream.scope.upstream()),
                tool: self.tool.as_ref(),
                outcome: self.outcome,
                took: self.received.elapsed(),
                with_upstream: Some(with_upstream.unwrap_or_default()),
                duration: (self.handover).until(self.answered, self.outcome == Outcome::Ok),
            }),
            &upstream.scope.client_context.origin(),
        );
    }
}

impl RequestCompletion {
    pub(super) fn new(
        upstream: &Arc<UpstreamSession>,
        id: &RequestId,
        mut pending: Pending,
    ) -> Self {
        pending.ended = Some(Instant::now());
        let is_counted = pending.is_counted();
        Self {
            upstream: Arc::clone(upstream),
            // A cancelled request ended before, and its id may be in use again.
            request: is_counted
                .then(|| upstream.scope.client_context.requests.end(id))
                .flatten(),
            is_counted,
            event: CompletionEvent::of(&pending).filter(|_| is_counted),
            pending: Some(pending),
        }
    }

    /// Returns the end of a request that the client cancelled. Its permit is released with this
    /// value.
    pub(super) fn of_cancelled(
        upstream: &Arc<UpstreamSession>,
        id: &RequestId,
        pending: Pending,
    ) -> Self {
        Self {
            upstream: Arc::clone(upstream),
            request: upstream.scope.client_context.requests.end(id),
            is_counted: true,
            event: CompletionEvent::of(&pending),
            pending: Some(pending),
        }
    }

    /// Removes and returns the request. Its row must be closed at once.
    pub(super) fn take(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    /// Sets the outcome. Without it the request counts as cancelled.
    pub(super) fn set_outcome(&mut self, outcome: Outcome) {
        if let Some(event) = &mut self.event {
            event.outcome = outcome;
        }
    }

    /// Returns the time when progress of the request was last forwarded to the client.
    pub(super) fn last_progress(&self) -> Option<std::time::Instant> {
        self.pending
            .as_ref()
            .and_then(|pending| pending.last_progress)
    }
}

impl Drop for RequestCompletion {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        if let Some(event) = self.event.take() {
            event.report(&self.upstream);
        }
        let (upstream, request) = (Arc::clone(&self.upstream), self.request.take());
        match (self.pending.take(), tokio::runtime::Handle::try_current()) {
            (Some(pending), Ok(runtime)) => {
                runtime.spawn(async move {
                    upstream
                        .complete(pending, Outcome::Cancelled, Response::None)
                        .await;
                    upstream.pending_ended();
                    drop(request);
                });
            }
            _ => upstream.pending_ended(),
        }
    }
}
