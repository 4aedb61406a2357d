//! The table of requests of one session that wait for an answer, in both directions.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, ToolName};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::usage::invocation::{Outcome, SessionKey};
use riglm_ports::tracer::{Span, SpanStatus};
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;

use super::multi_round_calls::LogicalCall;
use crate::safeguards::Guard;
use crate::tracking::CallTimes;

/// The purpose of a request, which decides the handling of its answer.
#[derive(Debug)]
pub(crate) enum RequestPurpose {
    /// The handshake. Its answer sets the revision and creates the session row.
    Initialize,
    /// A tool call with an open row; `None` once the row is closed.
    Call(Option<CallRow>),
    ListTools,
    /// A `server/discover` request, whose answer is stored.
    Discover,
    /// A notification stream, which stays open until one side ends it.
    Listen {
        /// Whether the server confirmed notifications of tool list changes.
        has_tools: bool,
    },
    /// A request that gets one row at its end.
    Exchange {
        method: Box<str>,
        /// The resource or name that the request refers to.
        target: Option<String>,
    },
    /// Any other request. Its answer is only forwarded.
    Other,
    /// A request of the proxy itself. The answer goes to the waiting task, not to the client.
    Own(oneshot::Sender<OwnAnswer>),
}

/// The answer to a request of the proxy itself.
pub(crate) type OwnAnswer = Result<Message, UpstreamError>;

/// The open row of a call.
#[derive(Clone, Debug)]
pub(crate) struct CallRow {
    pub(crate) id: InvocationId,
    /// The logical call of all its rounds.
    pub(crate) call: LogicalCall,
    pub(crate) session_key: SessionKey,
    /// Whether its tool is hidden in the client's list.
    pub(crate) is_hidden: bool,
    /// The report to the search and the recommender at its end, if one of them is enabled.
    pub(crate) lesson: Option<Box<LearningReport>>,
}

/// The report about a call to the search and the recommender.
#[derive(Clone, Debug)]
pub(crate) struct LearningReport {
    pub(crate) tool: ToolRef,
    pub(crate) session_key: SessionKey,
    /// The time of receipt.
    pub(crate) began_at: Timestamp,
}

/// The progress of a request on its way to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SendState {
    /// No connection is available yet.
    Waiting,
    /// Sent to a connection at this time. The connection may have to be set up first.
    Sending(Instant),
    /// Received by the upstream at this time.
    Done(Instant),
}

impl SendState {
    /// Returns the time that the upstream had the request until `ended`. Zero if it never had the
    /// request.
    pub(crate) fn until(self, ended: Instant, is_answered: bool) -> Duration {
        match self {
            Self::Done(since) => ended.saturating_duration_since(since),
            // The answer arrived before the report that the request was sent.
            Self::Sending(since) if is_answered => ended.saturating_duration_since(since),
            Self::Sending(_) | Self::Waiting => Duration::ZERO,
        }
    }
}

/// The generation of a request that was not sent on any connection yet.
pub(super) const UNSENT: u64 = u64::MAX;

/// A request that was forwarded and is not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    pub(crate) purpose: RequestPurpose,
    /// The method name for metrics.
    pub(crate) method: &'static str,
    pub(crate) tool: Option<ToolName>,
    /// Whether it is part of a fan-out for a request of the client.
    pub(crate) is_part: bool,
    /// The message, for sending it again if the upstream forgot the session. Cleared when the
    /// request is cancelled.
    pub(crate) message: Option<Message>,
    /// The generation of the connection on which it was sent.
    pub(crate) generation: u64,
    /// The time of receipt.
    pub(crate) started: Instant,
    /// The time of receipt by the wall clock.
    pub(crate) started_at: Timestamp,
    /// The time when it was sent, or began to wait for a connection.
    pub(crate) sent: Option<Instant>,
    /// The progress on the way to the upstream.
    pub(crate) handover: SendState,
    /// The time of the answer or failure; `None` before.
    pub(crate) ended: Option<Instant>,
    /// The time of the last sign that the upstream works on it: progress, or an answer of the
    /// client to a request of the upstream. Log messages do not count, because they may concern
    /// anything.
    pub(crate) last_sign: Instant,
    pub(crate) progress_token: Option<RequestId>,
    /// The time when progress was last forwarded to the client.
    pub(crate) last_progress: Option<Instant>,
    pub(crate) is_cancelled: bool,
    /// Whether it was sent a second time.
    pub(crate) was_resent: bool,
    /// The position among all requests of the session.
    pub(crate) order: u64,
    /// The span of the exchange with the upstream, if traces are enabled.
    pub(crate) span: Option<Box<dyn Span>>,
    /// The guard that the safeguards keep for an admitted call.
    pub(crate) guard: Option<Box<Guard>>,
}

impl Pending {
    /// Returns whether it is a request of the proxy itself.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.purpose, RequestPurpose::Own(_))
    }

    /// Returns whether the client waits for its answer, so that it counts as in flight. A cancelled
    /// request has released its permit.
    pub(crate) fn is_counted(&self) -> bool {
        !self.is_cancelled && !self.is_own()
    }

    /// Returns whether it is a stream, which lasts until one side ends it.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.purpose, RequestPurpose::Listen { .. })
    }

    /// Returns a request of the proxy itself, whose answer goes to `waiting`.
    pub(crate) fn own(
        waiting: oneshot::Sender<OwnAnswer>,
        message: Message,
        generation: u64,
        started_at: Timestamp,
    ) -> Self {
        let now = Instant::now();
        Self {
            purpose: RequestPurpose::Own(waiting),
            method: "other",
            tool: None,
            is_part: false,
            message: Some(message),
            generation,
            started: now,
            started_at,
            sent: None,
            handover: SendState::Waiting,
            ended: None,
            last_sign: now,
            progress_token: None,
            last_progress: None,
            is_cancelled: false,
            was_resent: false,
            order: 0,
            span: None,
            guard: None,
        }
    }

    /// Returns the times of waiting and at the upstream. Without an end they last until now.
    /// `is_answered` says whether the upstream answered.
    pub(crate) fn times(&self, is_answered: bool) -> CallTimes {
        let ended = self.ended.unwrap_or_else(Instant::now);
        let duration = self.handover.until(ended, is_answered);
        let whole = ended.saturating_duration_since(self.started);
        CallTimes {
            duration,
            wait: whole.saturating_sub(duration),
        }
    }

    /// Ends the span of the exchange with the upstream without an answer.
    pub(crate) fn end_span(&mut self, outcome: Outcome) {
        if let Some(mut span) = self.span.take() {
            span.set_status(SpanStatus::Unanswered(outcome));
        }
    }
}

/// The maximum number of requests of a server that are tracked.
const MAX_FROM_SERVER: usize = 256;

/// A request of the server that the client has to answer.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    /// The request of the client for which it was made, if known.
    pub(crate) owner: Option<RequestId>,
    /// The time of the request.
    pub(crate) asked: Instant,
    /// Whether it is a ping, so that no person is waited for.
    pub(crate) is_ping: bool,
}

/// The requests of one session in flight.
#[derive(Debug, Default)]
pub(crate) struct UpstreamRequests {
    from_client: HashMap<RequestId, Pending>,
    from_server: HashMap<RequestId, ServerRequest>,
    n_seen: u64,
    /// The number of removed requests whose end has not reached the client yet.
    n_ending: usize,
    /// The number of cancelled requests in the table.
    n_cancelled: usize,
}

impl UpstreamRequests {
    /// Returns the number of requests of the client that wait for an answer, including those whose
    /// answer is on its way.
    pub(crate) fn len(&self) -> usize {
        self.in_flight().count() + self.n_ending
    }

    /// Returns the number of these requests that end by themselves and whose client is present, as
    /// `is_left` says. Requests of a fan-out are excluded, because the session waits for the requests
    /// for which it makes them.
    pub(crate) fn n_ending_by_themselves(&self, is_left: impl Fn(&RequestId) -> bool) -> usize {
        let wanted = self.in_flight();
        wanted
            .filter(|(id, pending)| {
                !pending.is_listening() && !is_left(id) && !InternalRequest::FanOut.has(id)
            })
            .count()
            + self.n_ending
    }

    /// Returns whether a request of the proxy for tools is in flight, for whose answer a task waits.
    pub(crate) fn is_list_awaited(&self) -> bool {
        let is_awaited = |pending: &Pending| match &pending.purpose {
            RequestPurpose::Own(waiting) => !waiting.is_closed(),
            _ => false,
        };
        (self.from_client.iter())
            .any(|(id, pending)| InternalRequest::ToolList.has(id) && is_awaited(pending))
    }

    /// Returns whether a notification stream with this id is open.
    pub(crate) fn is_listening(&self, id: &RequestId) -> bool {
        self.from_client.get(id).is_some_and(Pending::is_listening)
    }

    /// Returns the ids of notification streams that subscribe to tool list changes.
    pub(crate) fn tool_streams(&self) -> Vec<RequestId> {
        let has_tools = |pending: &Pending| {
            matches!(pending.purpose, RequestPurpose::Listen { has_tools: true })
                && !pending.is_cancelled
        };
        let all = self
            .from_client
            .iter()
            .filter(|(_, pending)| has_tools(pending));
        all.map(|(id, _)| id.clone()).collect()
    }

    /// Returns whether any notification stream is open.
    pub(crate) fn has_listening(&self) -> bool {
        self.from_client.values().any(Pending::is_listening)
    }

    /// Registers that the end of a removed request reached the client.
    pub(crate) fn note_ended(&mut self) {
        self.n_ending = self.n_ending.saturating_sub(1);
    }

    /// Returns the number of cancelled requests whose late answer may still arrive.
    pub(crate) fn n_cancelled(&self) -> usize {
        self.n_cancelled
    }

    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.from_client.contains_key(id)
    }

    /// Adds a request and assigns its position.
    pub(crate) fn insert(&mut self, id: RequestId, mut pending: Pending) {
        self.n_seen += 1;
        pending.order = self.n_seen;
        self.from_client.insert(id, pending);
    }

    /// Removes a request that ends. If it counts as in flight, [`Self::note_ended`] must follow.
    pub(crate) fn remove(&mut self, id: &RequestId) -> Option<Pending> {
        let pending = self.from_client.remove(id)?;
        self.n_ending += usize::from(pending.is_counted());
        self.n_cancelled -= usize::from(pending.is_cancelled);
        Some(pending)
    }

    /// Marks a request as cancelled and returns the part of it that must be ended. [`Self::note_ended`]
    /// must follow. A handshake cannot be cancelled.
    pub(crate) fn cancel(&mut self, id: &RequestId) -> Option<Pending> {
        let pending = self.from_client.get_mut(id)?;
        if !pending.is_counted() || matches!(pending.purpose, RequestPurpose::Initialize) {
            return None;
        }
        self.n_ending += 1;
        if pending.is_listening() {
            return self.from_client.remove(id); // There will be no answer.
        }
        pending.is_cancelled = true;
        self.n_cancelled += 1;
        pending.message = None;
        Some(Pending {
            purpose: std::mem::replace(&mut pending.purpose, RequestPurpose::Other),
            message: None,
            tool: pending.tool.take(),
            progress_token: pending.progress_token.take(),
            span: pending.span.take(),
            guard: pending.guard.take(),
            ..*pending
        })
    }

    /// Removes a cancelled request. Its late answer is then not recognized.
    pub(crate) fn forget_cancelled(&mut self, id: &RequestId) {
        if self
            .from_client
            .get(id)
            .is_some_and(|pending| pending.is_cancelled)
        {
            self.from_client.remove(id);
            self.n_cancelled -= 1;
        }
    }

    pub(crate) fn get_mut(&mut self, id: &RequestId) -> Option<&mut Pending> {
        self.from_client.get_mut(id)
    }

    /// Returns whether a request on connections up to `generation` waits for its answer.
    pub(crate) fn has_up_to(&self, generation: u64) -> bool {
        self.from_client
            .values()
            .any(|pending| pending.generation <= generation && !pending.is_cancelled)
    }

    /// Removes every request on connections up to `generation`; see [`Self::remove`].
    pub(crate) fn remove_up_to(&mut self, generation: u64) -> Vec<(RequestId, Pending)> {
        self.remove_if(|_, pending| pending.generation <= generation)
    }

    /// Removes the requests whose deadline has passed, including cancelled ones; see
    /// [`Self::remove`].
    ///
    /// The deadline is `longest` for a request during which the server asked the client for
    /// something, because a person may have to answer. If the server's request names no owner, this
    /// applies to all requests.
    pub(crate) fn remove_expired(
        &mut self,
        now: Instant,
        silent: Duration,
        longest: Duration,
    ) -> Vec<(RequestId, Pending)> {
        let age = |since| now.saturating_duration_since(since);
        (self.from_server).retain(|_, request| age(request.asked) < longest);
        let asked_for: HashSet<Option<RequestId>> = (self.from_server.values())
            .filter(|request| !request.is_ping)
            .map(|request| request.owner.clone())
            .collect();
        self.remove_if(|id, pending| {
            let is_patient = !asked_for.is_empty()
                && (asked_for.contains(&None) || asked_for.contains(&Some(id.clone())));
            let silent = if is_patient { longest } else { silent };
            let may_last = pending.is_listening();
            !may_last && (age(pending.last_sign) >= silent || age(pending.started) >= longest)
        })
    }

    fn remove_if(
        &mut self,
        is_over: impl Fn(&RequestId, &Pending) -> bool,
    ) -> Vec<(RequestId, Pending)> {
        let removed: Vec<(RequestId, Pending)> = self
            .from_client
            .extract_if(|id, pending| is_over(id, pending))
            .collect();
        for (_, pending) in &removed {
            self.n_ending += usize::from(pending.is_counted());
            self.n_cancelled -= usize::from(pending.is_cancelled);
        }
        removed
    }

    /// Registers a sign that the upstream works on a request.
    fn touch(&mut self, id: &RequestId, now: Instant) {
        if let Some(pending) = self.from_client.get_mut(id) {
            pending.last_sign = now;
        }
    }

    /// Registers progress that is forwarded to the client. It is a sign of work if it was reported
    /// under the token of the request.
    pub(crate) fn note_progress(
        &mut self,
        id: &RequestId,
        token: Option<&RequestId>,
        now: Instant,
    ) {
        if let Some(pending) = self.from_client.get_mut(id) {
            pending.last_progress = Some(now);
            if token.is_some() && pending.progress_token.as_ref() == token {
                pending.last_sign = now;
            }
        }
    }

    pub(crate) fn with_progress_token(&self, token: &RequestId) -> Option<RequestId> {
        self.from_client
            .iter()
            .find(|(_, pending)| pending.progress_token.as_ref() == Some(token))
            .map(|(id, _)| id.clone())
    }

    /// Returns the newest request of the client that is not cancelled.
    pub(crate) fn newest(&self) -> Option<RequestId> {
        self.routable()
            .max_by_key(|(_, pending)| pending.order)
            .map(|(id, _)| id.clone())
    }

    /// Returns the request of the client in flight if there is exactly one.
    pub(crate) fn only(&self) -> Option<RequestId> {
        let mut wanted = self.routable();
        match (wanted.next(), wanted.next()) {
            (Some((id, _)), None) => Some(id.clone()),
            _ => None,
        }
    }

    /// Registers a request of the server that the client has to answer.
    pub(crate) fn add_server_request(&mut self, id: RequestId, request: ServerRequest) {
        if self.from_server.len() < MAX_FROM_SERVER {
            self.from_server.insert(id, request);
        }
    }

    /// Registers that a request of the server needs no more answer: the client answered, or the
    /// server cancelled it. The deadline of its owner starts again, because the upstream could not
    /// continue before.
    pub(crate) fn end_server_request(&mut self, id: &RequestId, now: Instant) {
        let Some(request) = self.from_server.remove(id) else {
            return;
        };
        match request.owner {
            _ if request.is_ping => {}
            Some(owner) => self.touch(&owner, now),
            // Without an owner, the question may belong to any request.
            None => (self.from_client.values_mut()).for_each(|pending| pending.last_sign = now),
        }
    }

    /// Returns whether the server waits for an answer of the client.
    pub(crate) fn is_client_asked(&self) -> bool {
        !self.from_server.is_empty()
    }

    /// Returns whether the server waits for an answer to its request with this id.
    pub(crate) fn has_asked(&self, id: &RequestId) -> bool {
        self.from_server.contains_key(id)
    }

    /// Returns the ids of the open notification streams.
    pub(crate) fn listening(&self) -> Vec<RequestId> {
        let all = self.from_client.iter();
        all.filter(|(_, pending)| pending.is_listening())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Removes the requests of a server whose connection has ended.
    pub(crate) fn forget_server(&mut self) {
        self.from_server.clear();
    }

    /// Returns the requests to which a message of the server may belong.
    fn routable(&self) -> impl Iterator<Item = (&RequestId, &Pending)> {
        self.in_flight()
            .filter(|(_, pending)| !pending.is_listening())
    }

    fn in_flight(&self) -> impl Iterator<Item = (&RequestId, &Pending)> {
        self.from_client
            .iter()
            .filter(|(_, pending)| pending.is_counted())
    }
}
