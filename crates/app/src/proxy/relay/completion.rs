//! The end of a request: its row is closed, and only then the client hears of it.

use std::sync::Arc;
use std::time::Instant;

use riglm_domain::exchange::Exchange;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_ports::downstream::Route;
use riglm_ports::observer::{Event, RequestEnded};
use riglm_ports::tracer::Operation;
use riglm_ports::upstream::UpstreamError;

use super::Relay;
use super::connection::LATER;
use super::pending::{Handover, Pending, Purpose};
use crate::proxy::places::Standing;
use crate::tracking::micros;

/// The answer to a request, as far as its row needs it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Response<'a> {
    /// There was no answer.
    None,
    /// There was an answer of this size, with this result if it was a success.
    Message {
        /// Size of the message in bytes.
        size_bytes: usize,
        /// JSON text of the result.
        result: Option<&'a str>,
    },
}

impl Relay {
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
            Purpose::Call(Some(_)) | Purpose::Exchange { .. }
        );
        let request = pending.message.as_ref().filter(|_| is_recorded);
        let of = request.and_then(Message::trace);
        let _storing = self.shared.span(&Operation::Store, of);
        let recorder = &self.shared.recorder;
        let is_answered = matches!(response, Response::Message { .. });
        let times = pending.times(is_answered);
        match pending.purpose {
            Purpose::Call(Some(row)) => {
                let response = match response {
                    Response::None => (0, None),
                    Response::Message { size_bytes, result } => (size_bytes, result),
                };
                recorder.call_closed(row.id, outcome, times, response).await;
                if let Some(lesson) = row.lesson {
                    self.teach(*lesson, row.id, outcome).await;
                }
            }
            Purpose::Exchange { method, target } => {
                let exchange = Exchange {
                    id: recorder.exchange_id(pending.started_at),
                    session: self.row().await,
                    principal: self.caller.principal.clone(),
                    upstream: self.upstream().clone(),
                    method: method.into(),
                    target,
                    started_at: pending.started_at,
                    duration_us: micros(times.wait + times.duration),
                    outcome,
                };
                recorder.exchanged(exchange).await;
            }
            Purpose::Here(searching) => searching.cancel(),
            Purpose::Call(None)
            | Purpose::Initialize
            | Purpose::ListTools
            | Purpose::Discover
            | Purpose::Listen { .. }
            | Purpose::Other
            | Purpose::Own(_) => {}
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
        let mut ending = Ending::new(self, pending);
        if !ending.is_counted {
            return; // Nobody waits; dropping it tells a waiting task of the proxy's own.
        }
        ending.came_to(outcome);
        if let Some(pending) = ending.take() {
            self.complete(pending, outcome, Response::None).await;
        }
        self.deliver_error(id, error).await;
    }

    /// Ends a request because the upstream failed, which the one who waits for it is told.
    pub(super) async fn fail_by(
        self: &Arc<Self>,
        id: &RequestId,
        pending: Pending,
        error: &UpstreamError,
    ) {
        if let Purpose::Own(waiting) = pending.purpose {
            // The waiting task may have given up; then nobody wants to know.
            let _ = waiting.send(Err(error.clone()));
            return;
        }
        let failure = self.failure_of(error);
        self.fail(id, pending, Outcome::Error, &failure).await;
    }

    /// Returns the error that the client is answered with when the upstream fails.
    /// Where it is not tried again yet, that is why it failed before.
    pub(super) fn failure_of(&self, error: &UpstreamError) -> RpcError {
        let is_put_off = *error == UpstreamError::Unreachable { reason: LATER };
        let cause = self.entry.failure().filter(|_| is_put_off);
        upstream_failure(self.upstream(), cause.as_ref().unwrap_or(error))
    }

    /// Answers a request with an error of the proxy.
    pub(super) async fn deliver_error(&self, id: &RequestId, error: &RpcError) {
        match Message::from_text(error.to_json(Some(id))) {
            Ok(message) => {
                self.client
                    .deliver(message, Route::Related(id.clone()))
                    .await;
            }
            Err(source) => tracing::error!("the proxy's own error is no message: {source}"),
        }
    }

    /// Answers requests whose deadline has passed, and tells the upstream that nobody waits.
    pub(in crate::proxy) async fn time_out(self: &Arc<Self>, expired: Vec<(RequestId, Pending)>) {
        let error = RpcError::new(
            RpcErrorCode::UpstreamTimeout,
            format!(
                "upstream {}: did not answer within the deadline",
                self.upstream()
            ),
        );
        for (id, pending) in expired {
            let is_cancellable = pending.is_counted()
                && pending.is_for_upstream()
                && !matches!(pending.purpose, Purpose::Initialize);
            self.fail(&id, pending, Outcome::Timeout, &error).await;
            if is_cancellable {
                self.cancel_upstream(&id, "deadline exceeded").await;
            }
        }
    }

    /// Tells the upstream that nobody waits for an answer.
    pub(super) async fn cancel_upstream(&self, id: &RequestId, why: &'static str) {
        let text = format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"{why}"}}}}"#,
            id.to_json()
        );
        let Some(live) = self.connection.current() else {
            return;
        };
        let Ok(message) = Message::from_text(text) else {
            return;
        };
        if let Err(error) = live.link.send(message).await {
            tracing::debug!("the upstream could not be told that nobody waits: {error}");
        }
    }
}

/// Returns the error that the client is answered with when the upstream fails.
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

/// A request that was taken out of the table and whose end is on its way to the client.
///
/// The future that brings it there is dropped when its connection is closed. Whatever happens, the
/// request gives up its place, its row does not stay open, and who looks on is told.
pub(super) struct Ending {
    relay: Arc<Relay>,
    pending: Option<Pending>,
    is_counted: bool,
    /// The place that it gives up in the end.
    _standing: Standing,
    /// What is told of it; `None` once it goes on as another request.
    told: Option<Told>,
}

/// What is told of a request at its end.
struct Told {
    method: &'static str,
    tool: Option<ToolName>,
    outcome: Outcome,
    received: Instant,
    sent: Option<Instant>,
    handover: Handover,
    answered: Instant,
    /// The upstream was asked for something on the way.
    has_asked: bool,
}

impl Told {
    /// Returns what is told of a request; `None` of a part of another, which is told of there. Calls
    /// are told of here in any case, with their upstream and tool.
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
            has_asked: false,
        })
    }

    fn tell(&self, relay: &Relay) {
        let with_upstream = self
            .sent
            .map(|sent| self.answered.saturating_duration_since(sent));
        relay.shared.observe_from(
            &Event::RequestEnded(RequestEnded {
                method: self.method,
                upstream: self.sent.map(|_| relay.upstream()),
                tool: self.tool.as_ref(),
                outcome: self.outcome,
                took: self.received.elapsed(),
                with_upstream: (!self.has_asked).then(|| with_upstream.unwrap_or_default()),
                duration: (self.handover).until(self.answered, self.outcome == Outcome::Ok),
            }),
            &relay.caller.origin(),
        );
    }
}

impl Ending {
    pub(super) fn new(relay: &Arc<Relay>, mut pending: Pending) -> Self {
        pending.ended = Some(Instant::now());
        Self {
            relay: Arc::clone(relay),
            _standing: std::mem::take(&mut pending.standing),
            is_counted: pending.is_counted(),
            told: Told::of(&pending).filter(|_| pending.is_counted()),
            pending: Some(pending),
        }
    }

    /// Returns the end of a request that the client cancelled: it gives up its place now.
    pub(super) fn of_cancelled(relay: &Arc<Relay>, mut pending: Pending) -> Self {
        Self {
            relay: Arc::clone(relay),
            _standing: std::mem::take(&mut pending.standing),
            is_counted: true,
            told: Told::of(&pending),
            pending: Some(pending),
        }
    }

    /// Returns the request for the row to be closed, which must follow at once.
    pub(super) fn take(&mut self) -> Option<Pending> {
        self.pending.take()
    }

    /// Notes how the request ended; without that it counts as cancelled.
    pub(super) fn came_to(&mut self, outcome: Outcome) {
        if let Some(told) = &mut self.told {
            told.outcome = outcome;
        }
    }

    /// Notes that the upstream was asked for something on the way to the answer, so that it is not known
    /// how long the proxy took.
    pub(super) fn has_asked(&mut self) {
        if let Some(told) = &mut self.told {
            told.has_asked = true;
        }
    }

    /// Notes that the request goes on as another one, whose end is the one that counts.
    pub(super) fn goes_on(&mut self) {
        self.told = None;
    }

    /// Returns when progress of the request was last passed to the client.
    pub(super) fn last_progress(&self) -> Option<std::time::Instant> {
        self.pending
            .as_ref()
            .and_then(|pending| pending.last_progress)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        if !self.is_counted {
            return;
        }
        if let Some(told) = self.told.take() {
            told.tell(&self.relay);
        }
        let relay = Arc::clone(&self.relay);
        match (self.pending.take(), tokio::runtime::Handle::try_current()) {
            (Some(pending), Ok(runtime)) => {
                runtime.spawn(async move {
                    relay
                        .complete(pending, Outcome::Cancelled, Response::None)
                        .await;
                    relay.pending_ended();
                });
            }
            _ => relay.pending_ended(),
        }
    }
}
