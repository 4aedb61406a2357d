//! One client, connected over one transport session, and its ways to the upstreams.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use parking_lot::Mutex;
use riglm_discovery::search::CatalogTool;
use riglm_domain::catalog::naming::SEPARATOR;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::UpstreamName;
use riglm_domain::intent::IntentSource;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::mcp::request_hints::extract_hints;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::excerpt::excerpt;
use riglm_ports::downstream::{ClientLink, Route};
use riglm_ports::observer::Event;
use riglm_ports::upstream::Exchange;
use serde::Deserialize;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use super::aggregator::Aggregator;
use super::client_context::ClientContext;
use super::client_description::ClientIdentity;
use super::own_tools::OwnToolNames;
use super::registry::HintUse;
use super::request_id_namespace::{UnescapingLink, escape, internal_id};
use super::request_permits::{ClientPresence, ReservedMemory};
use super::request_tracing::{Traces, Tracing};
use super::session_link::SessionLink;
use super::shared_state::SharedState;
use super::upstream_session::{UpstreamSession, session_ended};
use super::upstream_set::{UpstreamEntry, UpstreamSet};

/// The session of one client.
///
/// The downstream adapter passes each message of the client to it and reports when the client is
/// gone. All messages for the client go out through the [`ClientLink`] that the session was created
/// with.
///
/// With one upstream, messages pass verbatim, except for those that the session answers. With
/// several, the aggregator presents them as one server.
#[derive(Debug)]
pub struct ClientSession {
    pub(super) shared: Arc<SharedState>,
    pub(super) client_context: Arc<ClientContext>,
    pub(super) client: Arc<dyn ClientLink>,
    members: ArcSwap<Vec<Arc<UpstreamSession>>>,
    /// Upstream sessions that a reload removed and whose requests are still ending.
    retiring: Mutex<Vec<Arc<UpstreamSession>>>,
    next_member: AtomicU64,
    pub(super) aggregator: Aggregator,
    /// The spans of its requests, if traces are enabled.
    traces: Option<Arc<Traces>>,
    itself: Weak<Self>,
    changing: Mutex<()>,
    is_closed: AtomicBool,
    /// The id that the transport assigned.
    transport_id: OnceLock<Box<str>>,
    // Cancelled when the session begins to end.
    pub(super) closing: CancellationToken,
    ended: CancellationToken,
}

/// The maximum length of a member name in error messages, in characters.
const MAX_MEMBER_CHARS: usize = 40;
/// The time for requests that were cut off to end.
const LAST_REQUESTS: Duration = Duration::from_secs(1);

impl ClientSession {
    pub(super) fn new(
        shared: Arc<SharedState>,
        transport: Transport,
        visitor: ClientIdentity,
        client: Arc<dyn ClientLink>,
    ) -> Arc<Self> {
        let started_at = shared.recorder.now();
        let set = shared.upstreams.load_full();
        let client_context = Arc::new(ClientContext::new(transport, visitor, started_at));
        let traces = Traces::of(&shared, &client_context);
        let client = Tracing::link(Arc::new(UnescapingLink::new(client)), traces.as_ref());
        let session = Arc::new_cyclic(|itself| Self {
            client_context,
            shared,
            client,
            traces,
            members: ArcSwap::default(),
            retiring: Mutex::default(),
            next_member: AtomicU64::new(0),
            aggregator: Aggregator::default(),
            itself: Weak::clone(itself),
            changing: Mutex::new(()),
            is_closed: AtomicBool::new(false),
            transport_id: OnceLock::new(),
            closing: CancellationToken::new(),
            ended: CancellationToken::new(),
        });
        session.apply_upstreams(&set);
        session
    }

    /// Returns the principal of the client.
    #[must_use]
    pub fn principal(&self) -> &Principal {
        &self.client_context.principal
    }

    /// Returns whether the session belongs to this client: the same principal and the same profile.
    #[must_use]
    pub fn is_of(&self, visitor: &ClientIdentity) -> bool {
        self.client_context.principal == visitor.principal
            && self.client_context.profile == visitor.profile
    }

    /// Stores the id that the transport assigned, by which operators may refer to the session. Only
    /// the first id counts.
    pub fn set_transport_id(&self, id: &str) {
        // An error means that an id is already set.
        let _ = self.transport_id.set(id.into());
    }

    /// Returns a token. A transport holds it for each open network connection of the client; without
    /// any, the client may have left for good.
    #[must_use]
    pub fn presence(&self) -> Arc<()> {
        self.client_context.presence()
    }

    /// Registers that the client loads tools on demand by itself. From then on its lists have all
    /// tools that are not hidden by name, with marks on the ones to load at once.
    pub fn note_loads_on_demand(&self) {
        self.client_context.note_loads_on_demand();
    }

    /// Returns the names of the own tools of the proxy that a list of the session may have. A tool
    /// is missing if it is disabled, or if an upstream of the last list has one of that name.
    #[must_use]
    pub fn own_tool_names(&self) -> OwnToolNames {
        let Some(tools) = self.shared.own_tools() else {
            return OwnToolNames::default();
        };
        let catalog = self.client_context.search.last_complete_catalog();
        tools.free_names(catalog.as_deref())
    }

    /// Returns whether a tool that a list of the session had is gone from its upstream, although
    /// nothing hides it: it is no own tool of the proxy, and the operator neither forbids nor hides
    /// a tool of this name. `definition` is its last definition.
    #[must_use]
    pub fn is_gone(&self, name: &str, definition: &Arc<str>) -> bool {
        let Some(catalog) = self.client_context.search.last_complete_catalog() else {
            return false;
        };
        let own_tools = self.shared.every_own_tool.as_ref();
        let is_own = own_tools.is_some_and(|tools| tools.tool_named(name).is_some());
        if is_own || catalog.tool(name).is_some() {
            return false;
        }
        !self.is_hidden_by_operator(name, definition)
    }

    /// Returns whether the operator forbids or hides a tool that no upstream has.
    fn is_hidden_by_operator(&self, name: &str, definition: &Arc<str>) -> bool {
        let tools = self.possible_tools(name, definition);
        let rules = self.shared.forbidden_to(&self.client_context);
        let is_forbidden = |tool: &CatalogTool| {
            let (upstream, own) = (&tool.tool.upstream, &tool.tool.tool);
            rules.forbids(upstream, own, Some(name)).is_some()
        };
        if tools.iter().any(is_forbidden) {
            return true;
        }
        let (lists, row) = (
            self.shared.selection.lists(),
            self.client_context.known_row(),
        );
        let (Some(lists), Some(row)) = (lists, row) else {
            return false;
        };
        let client = self.client_context.client_name();
        let session = self.client_context.session_key(row);
        let (era, now) = (self.client_context.era(), self.shared.recorder.now());
        let mut request = self.client_context.list_request(&client, session, era, now);
        request.client_hash = Some(self.client_context.client_hash(&self.shared.recorder));
        let stated = self.shared.stated_intent(row, session, now);
        request.stated = stated.as_ref();
        !lists.hidden_positions(&request, &tools).is_empty()
    }

    /// Returns the tools that a name in lists may stand for: those of the upstreams whose prefix it
    /// has, or else of any upstream.
    fn possible_tools(&self, name: &str, definition: &Arc<str>) -> Vec<CatalogTool> {
        let members = self.members();
        let tool = |upstream: &UpstreamName, own: &str| CatalogTool {
            name: name.to_owned(),
            tool: ToolRef {
                upstream: upstream.clone(),
                tool: own.into(),
            },
            definition: Arc::clone(definition),
            is_hidden: false,
        };
        let prefixed: Vec<CatalogTool> = members
            .iter()
            .filter_map(|member| {
                let own = name.strip_prefix(member.name().as_str())?;
                Some(tool(member.name(), own.strip_prefix(SEPARATOR)?))
            })
            .collect();
        if !prefixed.is_empty() && members.len() > 1 {
            return prefixed;
        }
        let all = members.iter().map(|member| tool(member.name(), name));
        all.collect()
    }

    /// Returns the names of the tools that the proxy chose to be loaded at once, from the last list
    /// of the session; `None` if it made no such choice. Marks of upstreams have no influence.
    #[must_use]
    pub fn tools_loaded_at_once(&self) -> Option<HashSet<String>> {
        if self.shared.selection.lists().is_none() || !self.shared.selection.is_active() {
            return None;
        }
        let shown = self.client_context.last_shown_list()?;
        let names = shown.names_loaded_at_once()?;
        Some(names.map(str::to_owned).collect())
    }

    pub(super) fn transport_id(&self) -> Option<&str> {
        self.transport_id.get().map(|id| &**id)
    }

    /// Returns the agreed revision, or the requested revision as long as none is agreed.
    #[must_use]
    pub fn revision(&self) -> Option<Revision> {
        self.client_context.revision()
    }

    /// Returns whether the handshake is complete.
    #[must_use]
    pub fn is_initialized(&self) -> bool {
        self.client_context.is_initialized()
    }

    /// Returns whether the session has ended or is ending.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    /// Registers a sign of the client: a message arrived, or a stream to it is open.
    pub fn touch(&self) {
        self.client_context.touch();
    }

    /// Registers whether the client waits for the answers to these requests. Requests of an absent
    /// client continue, because it may come back. They neither block other requests nor delay the
    /// shutdown.
    pub fn note_presence(&self, requests: &[RequestId], presence: ClientPresence) {
        for id in requests {
            let background = || (self.shared).background_permit(&self.client_context.principal);
            let requests = &self.client_context.requests;
            requests.note_presence(&internal_id(id), presence, background);
        }
        for member in self.all_members() {
            member.wake_drain();
        }
    }

    /// Reserves memory for a message of `n_bytes` that waits for the client.
    ///
    /// # Errors
    ///
    /// Returns the error to send in place of an answer for which no memory is left.
    pub fn reserve_memory(&self, n_bytes: usize) -> Result<ReservedMemory, RpcError> {
        (self.shared).reserve_memory(&self.client_context.principal, n_bytes)
    }

    /// Returns the upstream sessions in order.
    pub(super) fn members(&self) -> Arc<Vec<Arc<UpstreamSession>>> {
        self.members.load_full()
    }

    /// Returns the upstream sessions, including removed ones whose requests are still ending.
    pub(super) fn all_members(&self) -> Vec<Arc<UpstreamSession>> {
        let retiring = self.retiring.lock();
        let members = self.members.load();
        members.iter().chain(retiring.iter()).cloned().collect()
    }

    /// Removes an upstream session that has ended.
    pub(super) fn remove_retired(&self, gone: &Arc<UpstreamSession>) {
        let mut retiring = self.retiring.lock();
        retiring.retain(|member| !Arc::ptr_eq(member, gone));
    }

    /// Receives a message of the client: checks it, and sends it to the side that answers it.
    ///
    /// Requests are always answered through the [`ClientLink`], if necessary with an error. Returns
    /// when the message has reached the upstream, or returns the exchange that sends it. The caller
    /// must drive the exchange to its end.
    ///
    /// Not cancellation safe: run it on a separate task if the caller may go away.
    ///
    /// # Errors
    ///
    /// Returns the reason why a message without requests could not be forwarded.
    pub async fn receive(self: &Arc<Self>, message: Message) -> Result<Option<Exchange>, RpcError> {
        let span = self.client_context.span.clone();
        self.receive_in_span(message).instrument(span).await
    }

    async fn receive_in_span(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        self.touch();
        let unacceptable = self
            .depth_error(&message)
            .or_else(|| self.ambiguity_error(&message));
        let message = match unacceptable {
            None => message,
            Some(error) => match error_for_server(&message, &error) {
                Some(refusal) => refusal,
                None => return self.refuse(&message, error).await.map(|()| None),
            },
        };
        let Some(message) = self.take_own_answer(message) else {
            return Ok(None);
        };
        let message = match self.shared.hints {
            HintUse::Extract => extract_hints(message),
            HintUse::Forward => message,
        };
        let ignored = &message.hints().ignored;
        if !ignored.is_empty() {
            tracing::debug!("ignored hints of a request with an invalid form or size: {ignored:?}");
        }
        self.note_hints(&message);
        let message = match escape(message) {
            Ok(message) => message,
            Err(message) => {
                let text = "ids that begin with riglm: are not allowed in a batch";
                let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
                return self.refuse(&message, error).await.map(|()| None);
            }
        };
        if has_call_without_id(&message) {
            let text = "tools/call is a request and needs an id";
            let error = RpcError::new(RpcErrorCode::InvalidRequest, text);
            return self.refuse(&message, error).await.map(|()| None);
        }
        let message = match &self.traces {
            Some(traces) => traces.begin(message),
            None => message,
        };
        self.note_context(&message).await;
        self.dispatch(message).await
    }

    /// Returns the error for a message that is nested too deep for the parsers of servers.
    fn depth_error(&self, message: &Message) -> Option<RpcError> {
        let limit = self.shared.limits().message_depth;
        message.is_deeper_than(limit).then(|| {
            let text =
                format!("the message is nested deeper than {limit} levels (limits.message_depth)");
            RpcError::new(RpcErrorCode::InvalidRequest, text)
        })
    }

    /// Returns the error for an ambiguous message while some tools are forbidden. Servers may parse
    /// such a message differently and could call a forbidden tool.
    fn ambiguity_error(&self, message: &Message) -> Option<RpcError> {
        self.shared.selection.forbidden()?;
        let member = message.ambiguous_member()?;
        let text = format!(
            "the member {:?} is a duplicate, or differs from another only by case: servers may \
             read such requests in different ways, and the operator forbids some tools",
            excerpt(&member, MAX_MEMBER_CHARS)
        );
        Some(RpcError::new(RpcErrorCode::InvalidRequest, text))
    }

    /// Passes an answer of the client to a pending question of the proxy. Returns any other
    /// message.
    fn take_own_answer(&self, message: Message) -> Option<Message> {
        match self.client_context.known_row() {
            Some(row) => self.client_context.sampling.take_answers(row, message),
            // Questions are asked only after a search, which creates the row.
            None => Some(message),
        }
    }

    /// Stores the context that a message states. For requests of a work session the context is
    /// stored when the work session is resolved ([`ClientContext::work_session`]).
    async fn note_context(&self, message: &Message) {
        let Some(text) = &message.hints().context else {
            return;
        };
        let method = message.single().and_then(|part| part.method());
        let is_of_work = matches!(method, Some("tools/call" | "tools/list"));
        let source = IntentSource::Request;
        let intents = self.shared.intents();
        let is_heard = intents.is_some_and(|intents| intents.listens_to(source));
        if !is_heard || is_of_work && self.shared.work_sessions.is_some() {
            return;
        }
        let row = self.client_context.session_id(&self.shared).await;
        let (session_key, now) = (
            self.client_context.session_key(row),
            self.shared.recorder.now(),
        );
        self.shared.note_intent(session_key, source, text, now);
    }

    /// Stores hints about the work of the client as a whole: the work session key in a handshake,
    /// and the roots of the client.
    fn note_hints(&self, message: &Message) {
        let Some(part) = message.single() else {
            return;
        };
        if part.method() == Some("initialize") {
            self.client_context.set_handshake_hints(message.hints());
        }
        // No other result of a client has this member.
        let roots = message
            .result(part)
            .filter(|result| memchr::memmem::find(result.as_bytes(), b"\"roots\"").is_some());
        if let Some(roots) = roots.and_then(root_uris) {
            (self.client_context).set_roots(self.shared.recorder.hash_text(&roots));
        }
    }

    /// Answers the requests of a message with an error.
    ///
    /// # Errors
    ///
    /// Returns the error itself if the message contains no requests.
    pub(super) async fn refuse(&self, message: &Message, error: RpcError) -> Result<(), RpcError> {
        let mut requests = message.request_ids().peekable();
        if requests.peek().is_none() {
            return Err(error);
        }
        for id in requests {
            self.answer(id, error.to_json(Some(id))).await;
        }
        Ok(())
    }

    /// Sends the client an answer of the proxy itself.
    pub(super) async fn answer(&self, id: &RequestId, text: String) {
        match Message::from_text(text) {
            Ok(message) => {
                let route = Route::Related(id.clone());
                self.client.deliver(message, route).await;
            }
            Err(source) => tracing::error!("riglm built an invalid answer: {source}"),
        }
    }

    /// Ends the stream of a request that will not be answered.
    pub(super) async fn finish(&self, request: &RequestId) {
        self.aggregator.forget(request);
        self.client.finish(request).await;
    }

    /// Returns whether the client was silent for longer than the idle timeout and nothing is in
    /// flight. A client over standard input is present as long as the input is open.
    pub(super) fn is_idle(&self, now: Instant) -> bool {
        self.is_idle_for(self.shared.limits().idle_timeout, now)
    }

    /// Returns the time since the last sign of the client. Returns `None` over standard input.
    pub(super) fn silent_for(&self, now: Instant) -> Option<Duration> {
        self.client_context.silent_for(now)
    }

    /// Returns whether the client was silent for at least `limit` and nothing is in flight.
    pub(super) fn is_idle_for(&self, limit: Duration, now: Instant) -> bool {
        self.silent_for(now).is_some_and(|for_| for_ >= limit)
            && self.client_context.requests.is_empty()
            && self.members.load().iter().all(|member| member.is_quiet())
    }

    /// Answers requests whose deadline has passed, and closes connections that a silent client does
    /// not use.
    pub(super) fn sweep(&self, now: Instant) {
        let silent_for = self.client_context.silent_for(now);
        for member in self.members.load().iter() {
            let expired = member.take_expired(now);
            if !expired.is_empty() {
                let member = Arc::clone(member);
                crate::proxy::log_spans::spawn(async move { member.time_out(expired).await });
            }
            let idle_timeout = member.scope.entry.upstream.options.idle_timeout;
            if silent_for.is_some_and(|for_| for_ >= idle_timeout)
                && self.client_context.is_set_up()
            {
                member.reap(now);
            }
        }
    }

    /// Waits at most `limit` until no request is in flight, except for streams that never end by
    /// themselves.
    pub async fn drain(&self, limit: Duration) {
        if !self.client_context.requests.drain(limit).await {
            tracing::warn!("session closed with requests still in flight");
        }
    }

    /// Ends the session: closes the rows of requests in flight as cancelled, closes the upstream
    /// sessions and the transport. Waits for the end also if another call is closing it.
    pub async fn close(self: &Arc<Self>) {
        self.close_within(Duration::MAX).await;
    }

    /// Ends the session like [`close`](Self::close), but waits at most `limit` for the upstream
    /// sessions to close. They continue to close in the background.
    pub async fn close_within(self: &Arc<Self>, limit: Duration) {
        if self.is_closed.swap(true, Ordering::AcqRel) {
            self.ended.cancelled().await;
            return;
        }
        self.closing.cancel();
        let members = {
            let _changing = self.changing.lock();
            let members = self.all_members();
            self.members.store(Arc::default());
            members
        };
        let ends = members.iter().map(|member| {
            let member = Arc::clone(member);
            crate::proxy::log_spans::spawn(async move { member.close(&session_ended()).await })
        });
        if tokio::time::timeout(limit, join_all(ends)).await.is_err() {
            tracing::warn!("timeout while closing connections to upstreams");
        }
        // The end of the session cuts off the remaining requests.
        let _ = self
            .client_context
            .requests
            .drain(LAST_REQUESTS.min(limit))
            .await;
        let transport = self.client_context.transport;
        let event = Event::SessionClosed { transport };
        (self.shared).observe_from(&event, &self.client_context.origin());
        self.client_context.close_row(&self.shared).await;
        self.client.close().await;
        self.ended.cancel();
    }

    /// Applies a set of upstreams: creates upstream sessions for new ones, removes those that are
    /// gone and keeps the rest. Returns the new and the removed upstream sessions.
    pub(super) fn apply_upstreams(
        &self,
        set: &UpstreamSet,
    ) -> (Vec<Arc<UpstreamSession>>, Vec<Arc<UpstreamSession>>) {
        let _changing = self.changing.lock();
        if self.is_closed() {
            return Default::default();
        }
        let old = self.members.load_full();
        if set.entries.len() > 1 {
            self.client_context.present_merged();
        }
        let mut new = Vec::new();
        let members: Vec<Arc<UpstreamSession>> = set
            .entries
            .iter()
            .map(|entry| {
                let same = old
                    .iter()
                    .find(|member| Arc::ptr_eq(&member.scope.entry, entry));
                same.map_or_else(
                    || {
                        let member = self.member(entry);
                        new.push(Arc::clone(&member));
                        member
                    },
                    Arc::clone,
                )
            })
            .collect();
        let is_gone =
            |member: &&Arc<UpstreamSession>| !members.iter().any(|kept| Arc::ptr_eq(kept, *member));
        let gone: Vec<Arc<UpstreamSession>> = old.iter().filter(is_gone).cloned().collect();
        let is_changed = !new.is_empty() || !gone.is_empty();
        if is_changed && !old.is_empty() {
            // Tool names may change even with one upstream left, so the session stays aggregated.
            self.client_context.present_merged();
        }
        self.retiring.lock().extend(gone.iter().cloned());
        self.members.store(Arc::new(members));
        (new, gone)
    }

    fn member(&self, entry: &Arc<UpstreamEntry>) -> Arc<UpstreamSession> {
        let number = self.next_member.fetch_add(1, Ordering::Relaxed);
        let link = Arc::new(SessionLink::new(Weak::clone(&self.itself), number));
        UpstreamSession::new(
            Arc::clone(&self.shared),
            Arc::clone(entry),
            Arc::clone(&self.client_context),
            link,
            number,
        )
    }
}

/// Returns the sorted URIs of the roots in a result, so that their order does not matter. Returns
/// `None` without roots.
fn root_uris(result: &str) -> Option<String> {
    let roots: Vec<Root> = serde_json::from_str(edit::member(result, "roots")?).ok()?;
    let mut uris: Vec<String> = roots.into_iter().map(|root| root.uri).collect();
    uris.sort_unstable();
    (!uris.is_empty()).then(|| uris.join("\n"))
}

#[derive(Deserialize)]
struct Root {
    uri: String,
}

/// Returns an error to send in place of an answer of the client, for which a server waits. Returns
/// `None` for any other message.
fn error_for_server(message: &Message, error: &RpcError) -> Option<Message> {
    let answer = message.single().filter(|part| part.is_response())?;
    Message::from_text(error.to_json(answer.id())).ok()
}

/// Returns whether a message calls a tool as a notification. Such a call would have no row and
/// would bypass all rules.
fn has_call_without_id(message: &Message) -> bool {
    let mut parts = message.envelopes().iter();
    parts
        .any(|part| part.kind() == MessageKind::Notification && part.method() == Some("tools/call"))
}
