//! The requests of one session that wait for an answer, in both directions.

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use riglm_domain::id::{InvocationId, ToolName};
use riglm_domain::invocation::{CallSession, Outcome};
use riglm_domain::message::{Message, RequestId};
use riglm_domain::tool::ToolRef;
use riglm_ports::tracer::{End, Span};
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::rounds::LogicalCall;
use crate::proxy::places::Standing;
use crate::proxy::united::is_own as is_part_of_another;
use crate::safeguards::Guard;
use crate::tracking::CallTimes;

/// What must happen when the answer comes.
#[derive(Debug)]
pub(crate) enum Purpose {
    /// The handshake: the answer fixes the revision and starts the session's row.
    Initialize,
    /// A tool call with an open row; `None` once the row is closed.
    Call(Option<CallRow>),
    /// A list of tools.
    ListTools,
    /// `server/discover`, whose answer is remembered.
    Discover,
    /// A stream of notifications, open until somebody ends it.
    Listen {
        /// The server agreed to tell of changes of its list of tools.
        has_tools: bool,
    },
    /// A request that gets one row at its end.
    Exchange {
        /// The method.
        method: Box<str>,
        /// What it names.
        target: Option<String>,
    },
    /// A call that the proxy itself answers, until this is cancelled.
    Here(CancellationToken),
    /// Anything else: the answer only passes.
    Other,
    /// A request of the proxy itself: the answer goes to the waiting task, not to the client.
    Own(oneshot::Sender<OwnAnswer>),
}

/// What became of a request of the proxy itself.
pub(crate) type OwnAnswer = Result<Message, UpstreamError>;

/// The row of a call that was opened.
#[derive(Clone, Debug)]
pub(crate) struct CallRow {
    /// Identifies the row.
    pub(crate) id: InvocationId,
    /// The logical call that it belongs to.
    pub(crate) call: LogicalCall,
    /// The client's list leaves its tool out.
    pub(crate) is_hidden: bool,
    /// What the search and the recommender are told of it at its end, where there is one of them.
    pub(crate) lesson: Option<Box<Lesson>>,
}

/// What the search is told of a call.
#[derive(Clone, Debug)]
pub(crate) struct Lesson {
    /// The tool.
    pub(crate) tool: ToolRef,
    /// What it belongs to.
    pub(crate) together: CallSession,
    /// When the call was received.
    pub(crate) began_at: Timestamp,
}

/// How far a request is on its way to the upstream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Handover {
    /// There is no connection for it yet.
    Waiting,
    /// It was given to a connection at this moment, which may have to be set up first.
    Sending(Instant),
    /// The upstream has it since this moment.
    Done(Instant),
}

impl Handover {
    /// Returns how long the upstream had the request until it ended; zero where it never had it.
    pub(crate) fn until(self, ended: Instant, is_answered: bool) -> Duration {
        match self {
            Self::Done(since) => ended.saturating_duration_since(since),
            // The answer was quicker than the news that the request is there.
            Self::Sending(since) if is_answered => ended.saturating_duration_since(since),
            Self::Sending(_) | Self::Waiting => Duration::ZERO,
        }
    }
}

/// A request that was forwarded and is not answered yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What must happen when the answer comes.
    pub(crate) purpose: Purpose,
    /// The name under which it is counted.
    pub(crate) method: &'static str,
    /// The tool of a call.
    pub(crate) tool: Option<ToolName>,
    /// The session asks it for a request of the client that it works on itself.
    pub(crate) is_part: bool,
    /// The message, to be sent again when the upstream had forgotten the session; gone once the
    /// request is cancelled.
    pub(crate) message: Option<Message>,
    /// The connection that it went to.
    pub(crate) generation: u64,
    /// When it was received.
    pub(crate) started: Instant,
    /// When it was received, by the clock.
    pub(crate) started_at: Timestamp,
    /// Since when it is with the upstream, or waits for a connection to it.
    pub(crate) sent: Option<Instant>,
    /// How far it is on its way to the upstream.
    pub(crate) handover: Handover,
    /// When its answer came, or it was known that none will; `None` before.
    pub(crate) ended: Option<Instant>,
    /// When the upstream last showed that it works on it: it reported progress, or was given what it
    /// had asked the client for. Anybody can write log messages.
    pub(crate) last_sign: Instant,
    /// The token under which progress of it is reported.
    pub(crate) progress_token: Option<RequestId>,
    /// When progress of it was last passed to the client.
    pub(crate) last_progress: Option<Instant>,
    /// The client no longer wants the answer.
    pub(crate) is_cancelled: bool,
    /// It was sent a second time already.
    pub(crate) was_resent: bool,
    /// Position among all requests of the session.
    pub(crate) order: u64,
    /// The span of its way to the upstream and back, where traces are wanted.
    pub(crate) span: Option<Box<dyn Span>>,
    /// What the safeguards keep of a call that they admitted.
    pub(crate) guard: Option<Box<Guard>>,
    /// Its place among the requests in flight, and whether its client is there.
    pub(crate) standing: Standing,
}

impl Pending {
    /// Returns whether it is the proxy's own request.
    pub(crate) fn is_own(&self) -> bool {
        matches!(self.purpose, Purpose::Own(_))
    }

    /// Returns whether the client waits for its answer, so that it takes a place among the requests
    /// in flight. One that is cancelled has given its place up.
    pub(crate) fn is_counted(&self) -> bool {
        !self.is_cancelled && !self.is_own()
    }

    /// Returns whether it lasts until somebody ends it.
    pub(crate) fn is_listening(&self) -> bool {
        matches!(self.purpose, Purpose::Listen { .. })
    }

    /// Returns whether the upstream has it, or is to have it: otherwise it knows nothing of it.
    pub(crate) fn is_for_upstream(&self) -> bool {
        !matches!(self.purpose, Purpose::Here(_))
    }

    /// Returns a request of the proxy's own; its answer goes to `waiting`.
    pub(crate) fn own(
        waiting: oneshot::Sender<OwnAnswer>,
        message: Message,
        generation: u64,
        started_at: Timestamp,
    ) -> Self {
        let now = Instant::now();
        Self {
            purpose: Purpose::Own(waiting),
            method: "other",
            tool: None,
            is_part: false,
            message: Some(message),
            generation,
            started: now,
            started_at,
            sent: None,
            handover: Handover::Waiting,
            ended: None,
            last_sign: now,
            progress_token: None,
            last_progress: None,
            is_cancelled: false,
            was_resent: false,
            order: 0,
            span: None,
            guard: None,
            standing: Standing::default(),
        }
    }

    /// Returns how long the request waited and how long the upstream took, up to now where it did not
    /// end before. `is_answered` says whether the upstream answered.
    pub(crate) fn times(&self, is_answered: bool) -> CallTimes {
        let ended = self.ended.unwrap_or_else(Instant::now);
        let duration = self.handover.until(ended, is_answered);
        let whole = ended.saturating_duration_since(self.started);
        CallTimes {
            duration,
            wait: whole.saturating_sub(duration),
        }
    }

    /// Ends the span of its way to the upstream, from which no answer came.
    pub(crate) fn end_span(&mut self, outcome: Outcome) {
        if let Some(mut span) = self.span.take() {
            span.end_as(End::Unanswered(outcome));
        }
    }
}

/// How many requests of a server are remembered at once.
const MAX_FROM_SERVER: usize = 256;

/// A request of the server that the client has to answer.
#[derive(Debug)]
pub(crate) struct ServerRequest {
    /// The request of the client on whose behalf it was made, where that is known.
    pub(crate) owner: Option<RequestId>,
    /// When the server asked.
    pub(crate) asked: Instant,
    /// It asks for a sign of life alone: nothing waits for a person.
    pub(crate) is_ping: bool,
}

/// The requests of one session in flight.
#[derive(Debug, Default)]
pub(crate) struct PendingTable {
    from_client: HashMap<RequestId, Pending>,
    from_server: HashMap<RequestId, ServerRequest>,
    n_seen: u64,
    /// Requests that were taken out and whose end did not reach the client yet.
    n_ending: usize,
}

impl PendingTable {
    /// Returns how many requests of the client wait for an answer that it still wants, those among
    /// them whose answer is on its way to it.
    pub(crate) fn len(&self) -> usize {
        self.wanted().count() + self.n_ending
    }

    /// Returns how many of those will end by themselves, have a client that waits for that, and are not
    /// made by a session in front of several upstreams, which counts the requests that it makes them
    /// for.
    pub(crate) fn n_ending_by_themselves(&self) -> usize {
        let wanted = self.wanted();
        wanted
            .filter(|(id, pending)| {
                !pending.is_listening() && !pending.standing.is_left() && !is_part_of_another(id)
            })
            .count()
            + self.n_ending
    }

    /// Returns whether a stream of notifications with this id is open.
    pub(crate) fn is_listening(&self, id: &RequestId) -> bool {
        self.from_client.get(id).is_some_and(Pending::is_listening)
    }

    /// Returns the streams of notifications on which the client expects to be told of changes of the
    /// list of tools.
    pub(crate) fn tool_streams(&self) -> Vec<RequestId> {
        let has_tools = |pending: &Pending| {
            matches!(pending.purpose, Purpose::Listen { has_tools: true }) && !pending.is_cancelled
        };
        let all = self
            .from_client
            .iter()
            .filter(|(_, pending)| has_tools(pending));
        all.map(|(id, _)| id.clone()).collect()
    }

    /// Returns whether any stream of notifications is open.
    pub(crate) fn has_listening(&self) -> bool {
        self.from_client.values().any(Pending::is_listening)
    }

    /// Notes that the end of a request that was taken out reached the client.
    pub(crate) fn ended(&mut self) {
        self.n_ending = self.n_ending.saturating_sub(1);
    }

    /// Returns whether there are so many entries, those among them that are only remembered because
    /// their answer may still come. Those in the background have places of their own.
    pub(crate) fn is_full(&self, limit: usize) -> bool {
        let n_entries = self.from_client.len() + self.n_ending;
        let is_in_background = |pending: &&Pending| pending.standing.is_in_background();
        n_entries >= limit
            && n_entries - self.from_client.values().filter(is_in_background).count() >= limit
    }

    /// Returns whether a request with this id waits.
    pub(crate) fn contains(&self, id: &RequestId) -> bool {
        self.from_client.contains_key(id)
    }

    /// Adds a request and gives it its position.
    pub(crate) fn insert(&mut self, id: RequestId, mut pending: Pending) {
        self.n_seen += 1;
        pending.order = self.n_seen;
        self.from_client.insert(id, pending);
    }

    /// Takes out a request that ends. If it is counted, [`Self::ended`] has to follow.
    pub(crate) fn remove(&mut self, id: &RequestId) -> Option<Pending> {
        let pending = self.from_client.remove(id)?;
        self.n_ending += usize::from(pending.is_counted());
        Some(pending)
    }

    /// Marks a request as one whose answer nobody wants, and returns what has to be ended of it;
    /// [`Self::ended`] has to follow. A handshake cannot be cancelled.
    pub(crate) fn cancel(&mut self, id: &RequestId) -> Option<Pending> {
        let pending = self.from_client.get_mut(id)?;
        if !pending.is_counted() || matches!(pending.purpose, Purpose::Initialize) {
            return None;
        }
        self.n_ending += 1;
        if pending.is_listening() {
            return self.from_client.remove(id); // There will be no answer.
        }
        pending.is_cancelled = true;
        pending.message = None;
        Some(Pending {
            purpose: std::mem::replace(&mut pending.purpose, Purpose::Other),
            message: None,
            tool: pending.tool.take(),
            progress_token: pending.progress_token.take(),
            span: pending.span.take(),
            guard: pending.guard.take(),
            standing: std::mem::take(&mut pending.standing),
            ..*pending
        })
    }

    /// Forgets a request that was cancelled, whose late answer is then not known as one.
    pub(crate) fn forget_cancelled(&mut self, id: &RequestId) {
        if self
            .from_client
            .get(id)
            .is_some_and(|pending| pending.is_cancelled)
        {
            self.from_client.remove(id);
        }
    }

    /// Returns the request with this id.
    pub(crate) fn get_mut(&mut self, id: &RequestId) -> Option<&mut Pending> {
        self.from_client.get_mut(id)
    }

    /// Returns whether a request waits that went to connections up to `generation` and whose answer
    /// is still wanted.
    pub(crate) fn has_up_to(&self, generation: u64) -> bool {
        self.from_client
            .values()
            .any(|pending| pending.generation <= generation && !pending.is_cancelled)
    }

    /// Takes out every request that went to connections up to `generation`; see [`Self::remove`].
    pub(crate) fn remove_up_to(&mut self, generation: u64) -> Vec<(RequestId, Pending)> {
        self.remove_if(|_, pending| pending.generation <= generation)
    }

    /// Takes out the requests whose deadline has passed, cancelled ones too; see [`Self::remove`].
    ///
    /// A request on whose behalf the server asked the client something has until `longest`: the
    /// server waits for a person. Where it is not known on whose behalf, that holds for all.
    pub(crate) fn remove_expired(
        &mut self,
        now: Instant,
        silent: Duration,
        longest: Duration,
    ) -> Vec<(RequestId, Pending)> {
        let age = |since| now.saturating_duration_since(since);
        self.from_server
            .retain(|_, request| age(request.asked) < longest);
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
        self.n_ending += removed
            .iter()
            .filter(|(_, pending)| pending.is_counted())
            .count();
        removed
    }

    /// Notes a sign that the upstream works on a request.
    fn touch(&mut self, id: &RequestId, now: Instant) {
        if let Some(pending) = self.from_client.get_mut(id) {
            pending.last_sign = now;
        }
    }

    /// Notes that progress of a request is being passed to the client. It is a sign that the upstream
    /// works on it if it was reported under the token of the request.
    pub(crate) fn progressed(&mut self, id: &RequestId, token: Option<&RequestId>, now: Instant) {
        if let Some(pending) = self.from_client.get_mut(id) {
            pending.last_progress = Some(now);
            if token.is_some() && pending.progress_token.as_ref() == token {
                pending.last_sign = now;
            }
        }
    }

    /// Returns the request whose progress is reported under `token`.
    pub(crate) fn with_progress_token(&self, token: &RequestId) -> Option<RequestId> {
        self.from_client
            .iter()
            .find(|(_, pending)| pending.progress_token.as_ref() == Some(token))
            .map(|(id, _)| id.clone())
    }

    /// Returns the request of the client that was made last and is not cancelled.
    pub(crate) fn newest(&self) -> Option<RequestId> {
        self.routable()
            .max_by_key(|(_, pending)| pending.order)
            .map(|(id, _)| id.clone())
    }

    /// Returns the only request of the client in flight, if there is just one.
    pub(crate) fn only(&self) -> Option<RequestId> {
        let mut wanted = self.routable();
        match (wanted.next(), wanted.next()) {
            (Some((id, _)), None) => Some(id.clone()),
            _ => None,
        }
    }

    /// Notes a request of the server that the client has to answer.
    pub(crate) fn server_asked(&mut self, id: RequestId, request: ServerRequest) {
        if self.from_server.len() < MAX_FROM_SERVER {
            self.from_server.insert(id, request);
        }
    }

    /// Notes that a request of the server needs no answer any more: the client gave it, or the
    /// server took it back. The upstream could not go on before, so that the deadline of what it was
    /// made for begins anew.
    pub(crate) fn server_satisfied(&mut self, id: &RequestId, now: Instant) {
        let Some(request) = self.from_server.remove(id) else {
            return;
        };
        match request.owner {
            _ if request.is_ping => {}
            Some(owner) => self.touch(&owner, now),
            None => (self.from_client.values_mut()).for_each(|pending| pending.last_sign = now),
        }
    }

    /// Returns whether the server waits for an answer to any request of its own.
    pub(crate) fn is_client_asked(&self) -> bool {
        !self.from_server.is_empty()
    }

    /// Returns whether the server waits for an answer to its request with this id.
    pub(crate) fn has_asked(&self, id: &RequestId) -> bool {
        self.from_server.contains_key(id)
    }

    /// Returns the streams of notifications that are open.
    pub(crate) fn listening(&self) -> Vec<RequestId> {
        let all = self.from_client.iter();
        all.filter(|(_, pending)| pending.is_listening())
            .map(|(id, _)| id.clone())
            .collect()
    }

    /// Forgets the requests of a server whose connection is gone.
    pub(crate) fn forget_server(&mut self) {
        self.from_server.clear();
    }

    /// Returns the requests that something which the server says may be about.
    fn routable(&self) -> impl Iterator<Item = (&RequestId, &Pending)> {
        self.wanted()
            .filter(|(_, pending)| !pending.is_listening() && pending.is_for_upstream())
    }

    fn wanted(&self) -> impl Iterator<Item = (&RequestId, &Pending)> {
        self.from_client
            .iter()
            .filter(|(_, pending)| pending.is_counted())
    }
}
