//! The path of a message from the upstream to the client.

use std::collections::HashSet;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use riglm_domain::mcp::edit::{member, meta, with_member};
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::SUBSCRIPTION_ID;
use riglm_domain::mcp::protocol::Revision;
use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::mcp::tool_result::has_error_result;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::{ClientLink as _, Route};
use riglm_ports::observer::Event;
use riglm_ports::upstream::{BoxedWork, UpstreamError, UpstreamEvents};
use serde_json::value::RawValue;
use tracing::Instrument as _;

use super::UpstreamSession;
use super::completion::{RequestCompletion, Response};
use super::message_depth::nested_request_error;
use super::safeguards::with_guard_notes;
use super::scope::UpstreamScope;
use super::upstream_requests::{Pending, RequestPurpose, ServerRequest, UNSENT};
use crate::proxy::list_kind::{ListChange, ListKind};
use crate::proxy::request_params::{IdMember, RequestParams, agreed_revision, id_member};
use crate::proxy::request_tracing::end_of;
use crate::proxy::session_app;
use crate::safeguards::ListText;

/// The notifications that concern the server as a whole and never one request.
const STANDALONE: [&str; 4] = [
    "notifications/tools/list_changed",
    "notifications/prompts/list_changed",
    "notifications/resources/list_changed",
    "notifications/resources/updated",
];

/// The notification that cancels a request.
const CANCELLED: &str = "notifications/cancelled";

/// The notification of a changed tool list.
const TOOLS_CHANGED: &str = STANDALONE[0];
/// The notification that confirms the subscriptions of a stream (revision 2026-07-28).
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";

const PROGRESS: &str = "notifications/progress";
/// The error code for an unknown method.
const METHOD_NOT_FOUND: &str = "-32601";

/// The minimum time between progress and the answer that follows it.
///
/// Clients on the TypeScript SDK process notifications later than answers, and an answer ends the
/// subscription to progress. They lose progress that arrives in one read with the answer. Over
/// direct connections the processing time of the server separates the two; forwarding is faster
/// than that.
const PROGRESS_GAP: Duration = Duration::from_millis(3);

/// The event receiver of one connection. The reference to the upstream session is weak, so that it does not
/// keep the upstream session alive.
#[derive(Debug)]
pub(super) struct ConnectionEvents {
    upstream: Weak<UpstreamSession>,
    generation: u64,
}

impl ConnectionEvents {
    /// Returns the receiver of the connection with this generation.
    pub(super) fn new(upstream: Weak<UpstreamSession>, generation: u64) -> Self {
        Self {
            upstream,
            generation,
        }
    }
}

#[async_trait]
impl UpstreamEvents for ConnectionEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        if let Some(upstream) = self.upstream.upgrade() {
            let span = upstream.span.clone();
            let passing = upstream.pass_to_client(message, related);
            passing.instrument(span).await;
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        if let Some(upstream) = self.upstream.upgrade() {
            let span = upstream.span.clone();
            let ending = upstream.on_unanswered(&request, &error);
            ending.instrument(span).await;
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        let Some(upstream) = self.upstream.upgrade() else {
            return;
        };
        let span = upstream.span.clone();
        let ending = async {
            upstream.connection.note_lost(self.generation);
            if !upstream.is_closed() {
                upstream.scope.entry.note_request_failure(&error);
            }
            upstream.fail_lost(self.generation, &error).await;
        };
        ending.instrument(span).await;
    }
}

impl UpstreamSession {
    /// Passes a message to the client as if the upstream had sent it. The future is boxed because a
    /// message from the upstream may lead to a request that is answered in this way.
    pub(super) fn pass_as_received(self: &Arc<Self>, message: Message) -> BoxedWork {
        let upstream = Arc::clone(self);
        Box::pin(async move { upstream.pass_to_client(message, None).await })
    }

    async fn pass_to_client(self: &Arc<Self>, message: Message, related: Option<RequestId>) {
        if message.is_batch() && self.scope.is_merged() {
            return self.pass_parts(&message, related.as_ref()).await;
        }
        let depth = self.scope.shared.limits().message_depth;
        if message.is_deeper_than(depth) {
            return self.drop_nested(&message, related.as_ref(), depth).await;
        }
        let message = match &self.scope.entry.upstream.approvals {
            Some(approvals) => {
                let requested = |id: &RequestId| self.state.lock().requested_list(id);
                self.scope
                    .with_approved_lists(approvals, message, related.as_ref(), requested)
                    .await
            }
            None => message,
        };
        let Some(envelope) = message.single() else {
            return self.pass_batch(message, related).await;
        };
        match envelope.kind() {
            MessageKind::Success | MessageKind::Failure => {
                let envelope = envelope.clone();
                self.pass_answer(message, &envelope, related).await;
            }
            MessageKind::Request | MessageKind::Notification => {
                let route = self.route(&message, envelope, related);
                self.intents.on_server_request(&message, envelope).await;
                match (envelope.kind(), envelope.id(), envelope.method()) {
                    (MessageKind::Request, Some(id), _) => {
                        let owner = match &route {
                            Route::Related(owner) => Some(owner.clone()),
                            Route::Standalone => None,
                        };
                        let request = new_server_request(envelope, owner);
                        self.state.lock().add_server_request(id.clone(), request);
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
                        self.scope.client_context.search.forget_catalog();
                        (self.scope.client_context).note_change_notification(Instant::now());
                        self.scope.shared.observe_from(
                            &Event::ListChangeTold,
                            &self.scope.client_context.origin(),
                        );
                    }
                    _ => {}
                }
                self.client.deliver(message, route).await;
            }
        }
    }

    /// Drops a message that is nested deeper than `limit`. Requests that it answers fail with an
    /// error, and requests of the upstream in it get an error.
    async fn drop_nested(
        self: &Arc<Self>,
        message: &Message,
        related: Option<&RequestId>,
        limit: usize,
    ) {
        for part in message.envelopes() {
            match (part.kind(), part.id()) {
                (MessageKind::Success | MessageKind::Failure, id) => {
                    if let Some(id) = id.or(related) {
                        let error = UpstreamError::TooDeep { limit };
                        self.on_unanswered(id, &error).await;
                    }
                }
                (MessageKind::Request, Some(id)) => {
                    if let Some(answer) = nested_request_error(id, limit) {
                        self.send_to_upstream(answer).await;
                    }
                }
                (MessageKind::Request | MessageKind::Notification, _) => {
                    self.nesting.note(self.scope.upstream(), part, limit);
                }
            }
        }
    }

    /// Forwards each part of a batch as a separate message. The aggregator handles upstreams per
    /// message.
    async fn pass_parts(self: &Arc<Self>, batch: &Message, related: Option<&RequestId>) {
        let parts: Vec<&RawValue> = serde_json::from_slice(batch.raw()).unwrap_or_default();
        for part in parts {
            match Message::from_text(part.get().to_owned()) {
                Ok(part) => Box::pin(self.pass_to_client(part, related.cloned())).await,
                Err(error) => tracing::debug!(
                    "dropped an invalid message in a batch of the upstream: {error}"
                ),
            }
        }
    }

    /// Stores the notifications that the server confirmed for a stream.
    fn note_acknowledged(&self, params: &str) {
        let honoured = member(params, "notifications").unwrap_or("{}");
        let is_honoured = member(honoured, "toolsListChanged") == Some("true");
        if let Some(id) = subscription(params)
            && let Some(pending) = self.state.lock().get_mut(&id)
            && let RequestPurpose::Listen { has_tools } = &mut pending.purpose
        {
            *has_tools = is_honoured;
        }
    }

    /// Forwards a cancellation: the server cancels a request of its own, or ends a notification
    /// stream of the client.
    async fn pass_cancellation(self: &Arc<Self>, message: Message, route: Route, id: RequestId) {
        let ended = {
            let mut state = self.state.lock();
            state.end_server_request(&id, Instant::now());
            let is_listening = state.is_listening(&id);
            is_listening.then(|| state.remove(&id)).flatten()
        };
        let Some(listening) = ended else {
            return self.client.deliver(message, route).await;
        };
        let mut ending = RequestCompletion::new(self, &id, listening);
        ending.set_outcome(Outcome::Ok);
        self.client
            .deliver(message, Route::Related(id.clone()))
            .await;
        self.client.finish(&id).await;
        drop(ending);
    }

    /// Closes the row of the answered request, then forwards the answer.
    async fn pass_answer(
        self: &Arc<Self>,
        message: Message,
        envelope: &Envelope,
        related: Option<RequestId>,
    ) {
        let Some((id, mut pending)) = self.take_answered(envelope, related.as_ref()) else {
            if envelope.id().and_then(InternalRequest::of) == Some(InternalRequest::ToolList) {
                return tracing::debug!("dropped a late answer: its request has already ended");
            }
            tracing::debug!("the upstream answered an unknown request");
            if self.scope.is_merged() && envelope.id().or(related.as_ref()).is_some() {
                return; // It may be a request that another upstream was asked.
            }
            let message = self.scope.without_forbidden(message, |_| true);
            let route = related.map_or(Route::Standalone, Route::Related);
            return self.client.deliver(message, route).await;
        };
        self.note_answered(&id, &pending);
        end_span(&mut pending, &message, envelope);
        let mut ending = RequestCompletion::new(self, &id, pending);
        let since_progress = ending.last_progress().map(|progress| progress.elapsed());
        if let Some(gap) = since_progress.and_then(|since| PROGRESS_GAP.checked_sub(since)) {
            tokio::time::sleep(gap).await;
        }
        let Some(mut pending) = ending.take() else {
            return;
        };
        let failed = self.hints.failed_call(&message, envelope, &pending);
        let guard = pending.guard.take();
        let Some((message, outcome)) = self.settle(message, envelope, pending).await else {
            return;
        };
        let told = guard.and_then(|guard| with_guard_notes(&guard, &message));
        let message = told.unwrap_or(message);
        ending.set_outcome(outcome);
        let Some(call) = failed else {
            return self.client.deliver(message, Route::Related(id)).await;
        };
        // Error hints may need the list of the upstream, whose answer arrives on this same path. A
        // separate task avoids the deadlock.
        let upstream = Arc::clone(self);
        crate::proxy::log_spans::spawn(async move {
            let catalog = upstream.catalog_for_hint(&call).await;
            let message = upstream.hints.with_hint(&call, message, catalog).await;
            upstream.client.deliver(message, Route::Related(id)).await;
            drop(ending);
        });
    }

    /// Removes and returns the request of an answer. Without an id in the answer, because the
    /// server could not read it, the request on whose stream the answer arrived is used.
    fn take_answered(
        &self,
        envelope: &Envelope,
        related: Option<&RequestId>,
    ) -> Option<(RequestId, Pending)> {
        let id = envelope.id().or(related)?;
        let pending = self.state.lock().remove(id)?;
        Some((id.clone(), pending))
    }

    /// Registers that the upstream answers requests. Answers during the setup of a connection do
    /// not count, except for the answer to the handshake.
    fn note_answered(&self, id: &RequestId, pending: &Pending) {
        if !is_of_set_up(id, pending) {
            self.scope.entry.note_answered_request();
        }
    }

    /// Processes the answer to a request by its purpose. Returns the message for the client and the
    /// outcome.
    async fn settle(
        &self,
        message: Message,
        envelope: &Envelope,
        pending: Pending,
    ) -> Option<(Message, Outcome)> {
        let result = message.result(envelope);
        let with_app = self.answer_with_app(&message, envelope, &pending);
        let mut outcome = match result {
            None if with_app.is_none() => Outcome::Error,
            _ => Outcome::Ok,
        };
        let message = match pending.purpose {
            RequestPurpose::Own(waiting) => {
                // The waiting task may have given up. Then the answer is of no interest.
                let _ = waiting.send(Ok(message));
                self.has_fewer_pending.notify_waiters();
                return None;
            }
            RequestPurpose::Initialize => {
                let mut promised = None;
                if let Some(result) = result {
                    self.on_handshake_answer(result, &pending).await;
                    // A pause changes no handshake, because lists change when it ends.
                    let lists = self.scope.shared.selection.configured_lists();
                    if lists.is_some() && !self.scope.is_merged() {
                        promised = with_list_changed(result);
                        self.scope.client_context.note_promise();
                    }
                    if self.offers_app(None) {
                        let shown = promised.as_deref().unwrap_or(result);
                        promised = session_app::with_resources(shown).or(promised);
                    }
                } else {
                    self.note_trouble(&UpstreamError::from_refusal(&message), true);
                }
                match promised {
                    Some(result) => message.with_result(&result),
                    None => message,
                }
            }
            RequestPurpose::ListTools => match result {
                Some(result) if !pending.is_cancelled => {
                    let list = (self.tools)
                        .record_list(result, &pending, envelope.id())
                        .await;
                    self.note_shown(&pending, list.shown_tools(result)).await;
                    match list.replacement {
                        Some(other) => message.with_result(&other),
                        None => message,
                    }
                }
                _ => self.scope.without_forbidden(message, |_| true),
            },
            RequestPurpose::Discover => {
                if let Some(result) = result.filter(|_| pending.generation != UNSENT) {
                    self.tools.note_discovery(result);
                }
                with_app.unwrap_or(message)
            }
            RequestPurpose::Call(_) | RequestPurpose::Exchange { .. } => {
                let is_call = matches!(pending.purpose, RequestPurpose::Call(_));
                if is_call && has_error_result(&message, envelope) {
                    outcome = Outcome::Error;
                }
                let response = Response::Message {
                    size_bytes: message.raw().len(),
                    result,
                };
                if result.is_some() {
                    if let RequestPurpose::Call(Some(row)) = &pending.purpose {
                        let request = pending.message.as_ref();
                        self.recording.note_result(row, request, &message, envelope);
                    }
                    self.intents.on_result(&message, envelope).await;
                }
                self.complete(pending, outcome, response).await;
                with_app.unwrap_or(message)
            }
            // The purpose of a cancelled request is not stored, so it may have been a list.
            _ if pending.is_cancelled => self.scope.without_forbidden(message, |_| true),
            RequestPurpose::Listen { .. } | RequestPurpose::Other => with_app.unwrap_or(message),
        };
        Some((message, outcome))
    }

    /// Returns whether the app of the proxy is among the resources of the sender of a request with
    /// these `params`. With several upstreams the aggregator adds it.
    fn offers_app(&self, params: Option<&str>) -> bool {
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        !self.scope.is_merged() && shared.offers_session_app(client_context, params)
    }

    /// Returns the answer with the app of the proxy, to a list of resources or a discovery of a
    /// client that shows apps. Returns `None` if the answer stays as it is.
    fn answer_with_app(
        &self,
        answer: &Message,
        envelope: &Envelope,
        asked: &Pending,
    ) -> Option<Message> {
        let request = asked.message.as_ref().filter(|_| !asked.is_cancelled)?;
        let part = request.single()?;
        let params = request.params(part);
        let result = answer.result(envelope);
        let method = part.method()?;
        if method == "server/discover" {
            let declared = session_app::with_resources(result?).filter(|_| self.offers_app(params));
            return Some(answer.with_result(&declared?));
        }
        let kind = ListKind::of_method(method)?;
        if kind.change() != ListChange::Resources || !self.offers_app(params) {
            return None;
        }
        if let Some(result) = result {
            return Some(answer.with_result(&session_app::list_with_entry(kind, result)?));
        }
        let is_unknown = member(answer.error(envelope)?, "code") == Some(METHOD_NOT_FOUND);
        let era = RequestParams::read(params).era();
        let list = session_app::list_without_upstream(kind, era).filter(|_| is_unknown)?;
        Some(Message::success(envelope.id()?, &list))
    }

    /// Passes a list that the client is shown to the safeguards. With several upstreams the
    /// aggregator passes the merged list.
    async fn note_shown(&self, asked: &Pending, list: ListText<'_>) {
        if self.scope.is_merged() || self.scope.shared.safeguards().is_none() {
            return;
        }
        let hints = asked.message.as_ref().map(Message::hints);
        let hints = hints.unwrap_or(RequestHints::none());
        let session_key = (self.scope.client_context).session_key(self.scope.session_id().await);
        let UpstreamScope {
            shared,
            client_context,
            ..
        } = &*self.scope;
        shared.note_shown(client_context, session_key, hints, list);
    }

    /// Processes an answered handshake: stores the revision and creates the session row.
    async fn on_handshake_answer(&self, result: &str, pending: &Pending) {
        if let Some(revision) = agreed_revision(result) {
            (self.scope.client_context).set_revision(&Revision::new(&revision));
        }
        // A batch cannot be replayed under another id.
        let initialize = pending
            .message
            .clone()
            .filter(|message| !message.is_batch());
        (self.scope.client_context).set_handshake(|handshake| handshake.initialize = initialize);
        if pending.generation == UNSENT {
            self.tools.note_told(result);
        } else {
            self.on_initialize_result(result);
        }
        self.scope.session_id().await;
    }

    /// Stores the handshake result of the upstream.
    pub(super) fn on_initialize_result(&self, result: &str) {
        self.tools.note_initialized(result);
        self.scope.entry.note_connected();
    }

    /// Forwards a batch unchanged after closing the row of every answer in it.
    async fn pass_batch(self: &Arc<Self>, message: Message, related: Option<RequestId>) {
        let mut route = related.clone().map_or(Route::Standalone, Route::Related);
        let mut endings = Vec::new();
        let mut others = HashSet::new();
        for envelope in message.envelopes() {
            match (envelope.kind(), envelope.id()) {
                (MessageKind::Success | MessageKind::Failure, Some(id)) => {
                    let pending = self.state.lock().remove(id);
                    if let Some(mut pending) = pending {
                        if !matches!(pending.purpose, RequestPurpose::ListTools) {
                            others.insert(id.clone());
                        }
                        route = Route::Related(id.clone());
                        self.note_answered(id, &pending);
                        end_span(&mut pending, &message, envelope);
                        let mut ending = RequestCompletion::new(self, id, pending);
                        if let Some(mut pending) = ending.take() {
                            let guard = pending.guard.take();
                            let settled = self.settle(message.clone(), envelope, pending).await;
                            if let Some((_, outcome)) = settled {
                                ending.set_outcome(outcome);
                            }
                            if let (Some(guard), Some(result)) = (guard, message.result(envelope)) {
                                // A batch is forwarded unchanged, so the safeguards only observe
                                // it.
                                guard.on_unchanged_answer(result);
                            }
                        }
                        endings.push(ending);
                    }
                }
                (MessageKind::Request, Some(id)) => {
                    let request = new_server_request(envelope, related.clone());
                    self.state.lock().add_server_request(id.clone(), request);
                }
                _ => {}
            }
        }
        let is_list = |part: &Envelope| part.id().is_none_or(|id| !others.contains(id));
        let message = self.scope.without_forbidden(message, is_list);
        self.client.deliver(message, route).await;
    }

    /// Returns the route of a request or notification of the server.
    ///
    /// A transport with streams supplies the request, and so does a notification of a notification
    /// stream. Without streams, progress names its request by token. Notifications about the whole
    /// server belong to no request. A request of the server belongs to the newest request of the
    /// client, because it must travel on the stream of a request (SEP-2260). Any other message
    /// belongs to the request in flight if there is exactly one.
    fn route(&self, message: &Message, envelope: &Envelope, related: Option<RequestId>) -> Route {
        let method = envelope.method().unwrap_or_default();
        let token = (method == PROGRESS)
            .then(|| id_member(message.params(envelope), IdMember::ProgressToken))
            .flatten();
        let mut state = self.state.lock();
        let has_streams = || {
            let live = self.connection.current();
            live.is_some_and(|live| live.link.has_streams())
        };
        let owner = related.or_else(|| {
            if state.has_listening()
                && let Some(id) = message.params(envelope).and_then(subscription)
                && state.is_listening(&id)
            {
                return Some(id);
            }
            if has_streams() {
                return None; // It came on the stream that belongs to no request.
            }
            if method == PROGRESS {
                return state.with_progress_token(token.as_ref()?);
            }
            if STANDALONE.contains(&method) {
                return None;
            }
            if envelope.kind() == MessageKind::Request {
                return state.newest();
            }
            state.only()
        });
        match owner {
            Some(id) => {
                if method == PROGRESS {
                    let now = Instant::now();
                    state.note_progress(&id, token.as_ref(), now);
                }
                Route::Related(id)
            }
            None => Route::Standalone,
        }
    }

    /// Handles a request that was sent and will not be answered.
    pub(super) async fn on_unanswered(self: &Arc<Self>, id: &RequestId, error: &UpstreamError) {
        // For a transport without a persistent connection, this is the first sign that the session
        // ended.
        let again = {
            let mut state = self.state.lock();
            let is_set_up = (state.get_mut(id)).is_some_and(|it| is_of_set_up(id, it));
            self.note_trouble(error, is_set_up);
            match state.get_mut(id) {
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
            let upstream = Arc::clone(self);
            crate::proxy::log_spans::spawn(async move {
                // If the request cannot be sent, `forward` answers it with an error.
                if let Ok(Some(exchange)) = upstream.forward(message).await {
                    exchange.run.await;
                }
            });
            return;
        }
        let pending = self.state.lock().remove(id);
        if let Some(pending) = pending {
            self.fail_upstream(id, pending, error).await;
        }
    }
}

/// Returns the record of a request that the server makes now on behalf of `owner`.
fn new_server_request(envelope: &Envelope, owner: Option<RequestId>) -> ServerRequest {
    ServerRequest {
        owner,
        asked: Instant::now(),
        is_ping: envelope.method() == Some("ping"),
    }
}

/// Ends the span of an answered request to the upstream.
fn end_span(pending: &mut Pending, message: &Message, envelope: &Envelope) {
    if let Some(mut span) = pending.span.take() {
        let is_call = matches!(pending.purpose, RequestPurpose::Call(_));
        span.set_status(end_of(message, envelope, is_call));
    }
}

/// Returns whether a request is part of the setup of its connection, or was answered without one.
fn is_of_set_up(id: &RequestId, pending: &Pending) -> bool {
    if pending.generation == UNSENT {
        return true;
    }
    match pending.purpose {
        RequestPurpose::Initialize => true,
        RequestPurpose::Own(_) => !InternalRequest::ToolList.has(id),
        _ => false,
    }
}

/// Returns the id of the listen request to which a notification belongs.
fn subscription(params: &str) -> Option<RequestId> {
    meta(params, SUBSCRIPTION_ID).and_then(RequestId::from_json)
}

/// Adds the `listChanged` capability to a handshake result if the server has tools. Returns `None`
/// if nothing changes.
pub(super) fn with_list_changed(result: &str) -> Option<String> {
    let capabilities = member(result, "capabilities").filter(|text| text.starts_with('{'))?;
    let tools = member(capabilities, "tools").filter(|text| text.starts_with('{'))?;
    if member(tools, "listChanged") == Some("true") {
        return None;
    }
    let tools = with_member(tools, "listChanged", "true");
    let capabilities = with_member(capabilities, "tools", &tools);
    Some(with_member(result, "capabilities", &capabilities))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn handshakes_announce_tool_changes_if_there_are_tools() {
        let promised = with_list_changed(r#"{"capabilities":{"tools":{},"x":1.0},"y":2}"#);
        let expected = r#"{"capabilities":{"tools":{"listChanged":true},"x":1.0},"y":2}"#;
        assert_eq!(promised.as_deref(), Some(expected));
        assert_eq!(with_list_changed(r#"{"capabilities":{}}"#), None);
        assert_eq!(
            with_list_changed(r#"{"capabilities":{"tools":{"listChanged":true}}}"#),
            None
        );
        assert_eq!(with_list_changed("[]"), None);
    }
}
