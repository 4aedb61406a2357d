//! The way of a message from the upstream to the client.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use riglm_domain::edit::{member, meta};
use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::meta::SUBSCRIPTION_ID;
use riglm_domain::protocol::Revision;
use riglm_domain::request_hints::RequestHints;
use riglm_domain::tool_result::is_error;
use riglm_ports::downstream::Route;
use riglm_ports::observer::Event;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use serde_json::value::RawValue;

use super::Relay;
use super::completion::{Ending, Response};
use super::guarded::guarded;
use super::listing::promising;
use super::offered::is_own;
use super::params::{IdMember, agreed_revision, id_member};
use super::pending::{Pending, Purpose, ServerRequest};
use crate::proxy::traces::end_of;

/// Notifications that concern the server as a whole, never one request.
const STANDALONE: [&str; 4] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
];

/// The notification that takes a request back.
const CANCELLED: &str = "notifications/cancelled";

/// The notification that the list of tools is another one.
const TOOLS_CHANGED: &str = STANDALONE[0];
/// Says what a stream of notifications will tell of (revision 2026-07-28).
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

/// The notification of progress.
const PROGRESS: &str = "notifications/progress";

/// The least time between progress and the answer that follows it.
///
/// Clients on the TypeScript SDK handle notifications later than answers, and an answer ends the
/// listening for progress: they lose progress that they read in one piece with the answer. Direct
/// connections keep the two apart by the time that the server takes; passing them on takes less.
const PROGRESS_GAP: Duration = Duration::from_millis(3);

/// Receives what one connection reports. It does not keep the relay alive.
#[derive(Debug)]
pub(super) struct Events {
    relay: Weak<Relay>,
    generation: u64,
}

impl Events {
    /// Returns the receiver of the connection with this number.
    pub(super) fn new(relay: Weak<Relay>, generation: u64) -> Self {
        Self { relay, generation }
    }
}

#[async_trait]
impl UpstreamEvents for Events {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        if let Some(relay) = self.relay.upgrade() {
            relay.pass_to_client(message, related).await;
        }
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        if let Some(relay) = self.relay.upgrade() {
            relay.not_answered(&request, &error).await;
        }
    }

    async fn lost(&self, error: UpstreamError) {
        let Some(relay) = self.relay.upgrade() else {
            return;
        };
        relay.connection.lost(self.generation);
        if !relay.is_closed() {
            relay.entry.troubled(&error);
        }
        relay.fail_lost(self.generation, &error).await;
    }
}

impl Relay {
    async fn pass_to_client(self: &Arc<Self>, message: Message, related: Option<RequestId>) {
        if message.is_batch() && self.is_united() {
            return self.pass_parts(&message, related.as_ref()).await;
        }
        let depth = self.shared.limits().message_depth;
        if message.is_deeper_than(depth) {
            return self.drop_nested(&message, related, depth).await;
        }
        let message = match &self.entry.upstream.approvals {
            Some(approvals) => self.approved(approvals, message, related.as_ref()).await,
            None => message,
        };
        let Some(envelope) = message.single() else {
            return self.pass_batch(message, related).await;
        };
        match envelope.kind() {
            Kind::Success | Kind::Failure => {
                let envelope = envelope.clone();
                self.pass_answer(message, &envelope, related).await;
            }
            Kind::Request | Kind::Notification => {
                let route = self.route(&message, envelope, related);
                self.note_asked(&message, envelope).await;
                match (envelope.kind(), envelope.id(), envelope.method()) {
                    (Kind::Request, Some(id), _) => {
                        let owner = match &route {
                            Route::Related(owner) => Some(owner.clone()),
                            Route::Standalone => None,
                        };
                        let request = asked_now(envelope, owner);
                        self.state().pending.server_asked(id.clone(), request);
                    }
                    (_, _, Some(CANCELLED)) => {
                        let params = message.params(envelope);
                        if let Some(id) = id_member(params, IdMember::RequestId) {
                            return self.pass_cancellation(message, route, id).await;
                        }
                    }
                    (_, _, Some(ACKNOWLEDGED)) => {
                        self.note_acknowledged(message.params(envelope).unwrap_or_default());
                    }
                    (_, _, Some(TOOLS_CHANGED)) => {
                        self.caller.search.forget_offer();
                        self.caller.note_told(Instant::now());
                        self.shared
                            .observe_from(&Event::ListChangeTold, &self.caller.origin());
                    }
                    _ => {}
                }
                self.client.deliver(message, route).await;
            }
        }
    }

    /// Passes each part of a batch on by itself: what is said for other upstreams is kept apart by
    /// message.
    async fn pass_parts(self: &Arc<Self>, batch: &Message, related: Option<&RequestId>) {
        let parts: Vec<&RawValue> = serde_json::from_slice(batch.raw()).unwrap_or_default();
        for part in parts {
            match Message::from_text(part.get().to_owned()) {
                Ok(part) => Box::pin(self.pass_to_client(part, related.cloned())).await,
                Err(error) => tracing::debug!("a part of a batch is no message: {error}"),
            }
        }
    }

    /// Notes what the server will tell of on a stream of notifications.
    fn note_acknowledged(&self, params: &str) {
        let honoured = member(params, "notifications").unwrap_or("{}");
        let is_honoured = member(honoured, "toolsListChanged") == Some("true");
        if let Some(id) = subscription(params)
            && let Some(pending) = self.state().pending.get_mut(&id)
            && let Purpose::Listen { has_tools } = &mut pending.purpose
        {
            *has_tools = is_honoured;
        }
    }

    /// Passes on that the server takes a request of its own back, or ends a stream of notifications
    /// that the client asked for.
    async fn pass_cancellation(self: &Arc<Self>, message: Message, route: Route, id: RequestId) {
        let ended = {
            let mut state = self.state();
            state.pending.server_satisfied(&id, Instant::now());
            let is_listening = state.pending.is_listening(&id);
            is_listening.then(|| state.pending.remove(&id)).flatten()
        };
        let Some(listening) = ended else {
            return self.client.deliver(message, route).await;
        };
        let mut ending = Ending::new(self, listening);
        ending.came_to(Outcome::Ok);
        self.client
            .deliver(message, Route::Related(id.clone()))
            .await;
        self.client.finish(&id).await;
        drop(ending);
    }

    /// Closes the row of the answered request, then passes the answer on.
    async fn pass_answer(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
        related: Option<RequestId>,
    ) {
        let Some((id, mut pending)) = self.take_answered(envelope, related.as_ref()) else {
            if envelope.id().is_some_and(is_own) {
                return tracing::debug!("an answer that nobody waits for any more is dropped");
            }
            tracing::debug!("the upstream answered a request that is not in flight");
            if self.is_united() && envelope.id().or(related.as_ref()).is_some() {
                return; // It may be a request that another upstream was asked.
            }
            let message = self.without_forbidden(message, |_| true);
            let route = related.map_or(Route::Standalone, Route::Related);
            return self.client.deliver(message, route).await;
        };
        self.note_answered(&id, &pending);
        end_span(&mut pending, &message, envelope);
        let mut ending = Ending::new(self, pending);
        let since_progress = ending.last_progress().map(|progress| progress.elapsed());
        if let Some(gap) = since_progress.and_then(|since| PROGRESS_GAP.checked_sub(since)) {
            tokio::time::sleep(gap).await;
        }
        let Some(mut pending) = ending.take() else {
            return;
        };
        let failed = self.mendable(&message, envelope, &pending);
        let guard = pending.guard.take();
        let Some((message, outcome)) = self.settle(message, envelope, pending).await else {
            return;
        };
        let told = guard.and_then(|guard| guarded(&guard, &message));
        let message = told.unwrap_or(message);
        ending.came_to(outcome);
        let Some(call) = failed else {
            return self.client.deliver(message, Route::Related(id)).await;
        };
        // The upstream may have to be asked for its list, and its answer comes this way too.
        let relay = Arc::clone(self);
        tokio::spawn(async move {
            let message = relay.mended(&call, message).await;
            relay.client.deliver(message, Route::Related(id)).await;
            drop(ending);
        });
    }

    /// Takes out the request that an answer belongs to: the one it names, or, if it names none
    /// because the server could not read the id, the one on whose stream it came.
    fn take_answered(
        &self,
        envelope: &Envelope,
        related: Option<&RequestId>,
    ) -> Option<(RequestId, Pending)> {
        let id = envelope.id().or(related)?;
        let pending = self.state().pending.remove(id)?;
        Some((id.clone(), pending))
    }

    /// Notes that the upstream answers requests. What it says while a connection is set up is no sign
    /// of that: the answer to the handshake is.
    fn note_answered(&self, id: &RequestId, pending: &Pending) {
        if pending.is_for_upstream() && !is_of_set_up(id, pending) {
            self.entry.heard();
        }
    }

    /// Does what the answer to a request calls for. Returns the message for the client, and how the
    /// request ended.
    async fn settle(
        &self,
        message: Message,
        envelope: &Envelope,
        pending: Pending,
    ) -> Option<(Message, Outcome)> {
        let result = message.result(envelope);
        let mut outcome = match result {
            Some(_) => Outcome::Ok,
            None => Outcome::Error,
        };
        let message = match pending.purpose {
            Purpose::Own(waiting) => {
                // The waiting task may have given up; then nobody wants the answer.
                let _ = waiting.send(Ok(message));
                return None;
            }
            Purpose::Initialize => {
                let mut promised = None;
                if let Some(result) = result {
                    self.agreed(result, &pending).await;
                    promised = self.lists().and_then(|_| promising(result));
                } else {
                    self.note_trouble(&UpstreamError::refused(&message), true);
                }
                match promised {
                    Some(result) => message.with_result(&result),
                    None => message,
                }
            }
            Purpose::ListTools => match result {
                Some(result) if !pending.is_cancelled => {
                    let other = self.list(result, &pending, envelope.id()).await;
                    self.note_shown(&pending, other.as_deref().unwrap_or(result))
                        .await;
                    match other {
                        Some(other) => message.with_result(&other),
                        None => message,
                    }
                }
                _ => self.without_forbidden(message, |_| true),
            },
            Purpose::Discover => {
                if let Some(result) = result {
                    self.discovered(result);
                }
                message
            }
            Purpose::Here(searching) => {
                // An answer to what the upstream was never asked.
                searching.cancel();
                message
            }
            Purpose::Call(_) | Purpose::Exchange { .. } => {
                let is_call = matches!(pending.purpose, Purpose::Call(_));
                if result.is_some_and(|result| is_call && is_error(result)) {
                    outcome = Outcome::Error;
                }
                let response = Response::Message {
                    size_bytes: message.raw().len(),
                    result,
                };
                if let Some(result) = result {
                    self.remember_round(&pending, result);
                    self.note_asked_in(result).await;
                }
                self.complete(pending, outcome, response).await;
                message
            }
            // Of what was taken back it is forgotten what it was.
            _ if pending.is_cancelled => self.without_forbidden(message, |_| true),
            Purpose::Listen { .. } | Purpose::Other => message,
        };
        Some((message, outcome))
    }

    /// Has the safeguards note a list that the client is shown; in front of several upstreams it is one
    /// of all of them that is.
    async fn note_shown(&self, asked: &Pending, result: &str) {
        if self.is_united() || self.shared.safeguards.is_none() {
            return;
        }
        let hints = asked.message.as_ref().map(Message::hints);
        let together = self.caller.together(self.row().await);
        let shown_to = (together, hints.unwrap_or(RequestHints::none()));
        self.shared.note_shown(&self.caller, shown_to, result);
    }

    /// Takes note of an answered handshake: the session has a revision and gets its row.
    async fn agreed(&self, result: &str, pending: &Pending) {
        if let Some(revision) = agreed_revision(result) {
            self.caller.agreed(&Revision::new(&revision));
        }
        // A batch cannot be played back under another id.
        let initialize = pending
            .message
            .clone()
            .filter(|message| !message.is_batch());
        self.caller
            .set_handshake(|handshake| handshake.initialize = initialize);
        self.greeted(result);
        self.row().await;
    }

    /// Remembers the result by which the upstream answered a handshake.
    pub(super) fn greeted(&self, result: &str) {
        let hello = self.entry.catalog.hello(result);
        self.state().hello = Some(hello);
        // It may be another server by now, with other tools.
        self.caller.search.forget_offer();
        self.entry.succeeded();
    }

    /// Passes a batch on as it is, after every answer in it closed its row.
    async fn pass_batch(self: &Arc<Self>, message: Message, related: Option<RequestId>) {
        let mut route = related.clone().map_or(Route::Standalone, Route::Related);
        let mut endings = Vec::new();
        let mut others = HashSet::new();
        for envelope in message.envelopes() {
            match (envelope.kind(), envelope.id()) {
                (Kind::Success | Kind::Failure, Some(id)) => {
                    let pending = self.state().pending.remove(id);
                    if let Some(mut pending) = pending {
                        if !matches!(pending.purpose, Purpose::ListTools) {
                            others.insert(id.clone());
                        }
                        route = Route::Related(id.clone());
                        self.note_answered(id, &pending);
                        end_span(&mut pending, &message, envelope);
                        let mut ending = Ending::new(self, pending);
                        if let Some(mut pending) = ending.take() {
                            let guard = pending.guard.take();
                            let settled = self.settle(message.clone(), envelope, pending).await;
                            if let Some((_, outcome)) = settled {
                                ending.came_to(outcome);
                            }
                            if let (Some(guard), Some(result)) = (guard, message.result(envelope)) {
                                // A batch is passed on as it is.
                                guard.passed_on(result);
                            }
                        }
                        endings.push(ending);
                    }
                }
                (Kind::Request, Some(id)) => {
                    let request = asked_now(envelope, related.clone());
                    self.state().pending.server_asked(id.clone(), request);
                }
                _ => {}
            }
        }
        let is_list = |part: &Envelope| part.id().is_none_or(|id| !others.contains(id));
        let message = self.without_forbidden(message, is_list);
        self.client.deliver(message, route).await;
    }

    /// Returns where a request or notification of the server belongs.
    ///
    /// A transport with streams says it, and so does a notification of a stream of notifications. Of
    /// others, progress names its request by its token; what
    /// concerns the whole server belongs to no request; a request of the server belongs to what
    /// the client asked last, since it must travel on a request's stream (SEP-2260); anything
    /// else belongs to the request in flight if there is just one.
    fn route(&self, message: &Message, envelope: &Envelope, related: Option<RequestId>) -> Route {
        let method = envelope.method().unwrap_or_default();
        let token = (method == PROGRESS)
            .then(|| id_member(message.params(envelope), IdMember::ProgressToken))
            .flatten();
        let mut state = self.state();
        let has_streams = || {
            let live = self.connection.current();
            live.is_some_and(|live| live.link.has_streams())
        };
        let owner = related.or_else(|| {
            if state.pending.has_listening()
                && let Some(id) = message.params(envelope).and_then(subscription)
                && state.pending.is_listening(&id)
            {
                return Some(id);
            }
            if has_streams() {
                return None; // It came on the stream that belongs to no request.
            }
            if method == PROGRESS {
                return state.pending.with_progress_token(token.as_ref()?);
            }
            if STANDALONE.contains(&method) {
                return None;
            }
            if envelope.kind() == Kind::Request {
                return state.pending.newest();
            }
            state.pending.only()
        });
        match owner {
            Some(id) => {
                if method == PROGRESS {
                    let now = Instant::now();
                    state.pending.progressed(&id, token.as_ref(), now);
                }
                Route::Related(id)
            }
            None => Route::Standalone,
        }
    }

    /// Deals with a request that was sent and will not be answered.
    pub(super) async fn not_answered(self: &Arc<Self>, id: &RequestId, error: &UpstreamError) {
        // Where a transport has no connection of its own, this is how one hears of its end.
        let again = {
            let mut state = self.state();
            let is_set_up = (state.pending.get_mut(id)).is_some_and(|it| is_of_set_up(id, it));
            self.note_trouble(error, is_set_up);
            match state.pending.get_mut(id) {
                Some(pending)
                    if *error == UpstreamError::SessionExpired
                        && !pending.was_resent
                        && !is_of_set_up(id, pending) =>
                {
                    pending.was_resent = true;
                    let message = pending
                        .message
                        .clone()
                        .filter(|message| !message.is_batch());
                    message.map(|message| (message, pending.generation))
                }
                _ => None,
            }
        };
        if let Some((message, generation)) = again {
            self.replace(generation);
            let relay = Arc::clone(self);
            tokio::spawn(async move {
                // A request that cannot be sent is answered with an error by `forward` itself.
                if let Ok(Some(exchange)) = relay.forward(message).await {
                    exchange.run.await;
                }
            });
            return;
        }
        let pending = self.state().pending.remove(id);
        if let Some(pending) = pending {
            self.fail_by(id, pending, error).await;
        }
    }
}

/// Returns what is kept of a request that the server makes now on behalf of `owner`.
fn asked_now(envelope: &Envelope, owner: Option<RequestId>) -> ServerRequest {
    ServerRequest {
        owner,
        asked: Instant::now(),
        is_ping: envelope.method() == Some("ping"),
    }
}

/// Ends the span of a request to the upstream that is answered.
fn end_span(pending: &mut Pending, message: &Message, envelope: &Envelope) {
    if let Some(mut span) = pending.span.take() {
        let is_call = matches!(pending.purpose, Purpose::Call(_));
        span.end_as(end_of(message, envelope, is_call));
    }
}

/// Returns whether a request sets up the connection that it was made on.
fn is_of_set_up(id: &RequestId, pending: &Pending) -> bool {
    match pending.purpose {
        Purpose::Initialize => true,
        Purpose::Own(_) => !is_own(id),
        _ => false,
    }
}

/// Returns the request for notifications that a notification belongs to.
fn subscription(params: &str) -> Option<RequestId> {
    meta(params, SUBSCRIPTION_ID).and_then(RequestId::from_json)
}
