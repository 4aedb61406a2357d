//! The client of a session, and the state that its upstream sessions share: identity, handshake,
//! rows, work session and tool lists.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::id::{ProfileName, SessionId, WorkSessionId};
use riglm_domain::intent::IntentSource;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::protocol::{Era, Revision, Transport};
use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::privacy::canonical::KeyedHash;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::ExpectedCoverage;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{Event, EventOrigin};
use tokio::sync::OnceCell;
use tracing::Span;

use super::client_description::{ClientDescription, ClientIdentity};
use super::client_requests::ClientRequests;
use super::log_spans as spans;
use super::own_tools::SessionSearch;
use super::recent_calls::RecentCalls;
use super::request_params::RequestParams;
use super::sampling::Sampling;
use super::session_app;
use super::shared_state::SharedState;
use crate::selection::{ForbidRules, ListRequest, Lists, ShownList};
use crate::tracking::{Recorder, SessionDetails};
use crate::work_sessions::{RequestKind, WorkRequest};
use riglm_discovery::search::Catalog;

/// The silence after which a client without a connection may have left for good.
const LEFT_AFTER: Duration = Duration::from_secs(5);
/// The time after a notification of a change within which a list request counts as its effect.
const REFETCH_WITHIN: Duration = Duration::from_secs(10);

/// The largest difference between two expected coverages of a list that is recorded once.
const SAME_EXPECTATION: f64 = 0.05;

/// The way in which the upstreams are presented to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AggregationMode {
    /// The only upstream, whose names, cursors and messages pass verbatim.
    Verbatim,
    /// All upstreams as one server. A session keeps it, also if one upstream is left, because the
    /// client knows merged names by then.
    Merged,
}

#[derive(Debug)]
pub(super) struct ClientContext {
    pub(super) transport: Transport,
    pub(super) principal: Principal,
    pub(super) profile: Option<ProfileName>,
    pub(super) search: SessionSearch,
    /// The requests of the client in flight.
    pub(super) requests: Arc<ClientRequests>,
    /// The questions to the language model of the client.
    pub(super) sampling: Arc<Sampling>,
    /// The last calls with their outcomes.
    pub(super) calls: RecentCalls,
    /// The span of log events about the session.
    pub(super) span: Span,
    started_at: Timestamp,
    row: OnceCell<SessionId>,
    n_calls: AtomicU64,
    declaration: Mutex<ClientDeclaration>,
    /// The work session of the last request.
    work: Mutex<Option<WorkSessionId>>,
    /// The tool lists that were shown to the client.
    listing: ListingState,
    /// Held by each network connection of the client; `None` over a transport without them.
    presence: OnceLock<Arc<()>>,
    /// Whether a request of a modern revision was received.
    is_modern: AtomicBool,
    /// Whether the upstreams are [aggregated](AggregationMode) as one server.
    is_merged: AtomicBool,
    /// The time of the last message or other sign of the client.
    last_seen: Mutex<Instant>,
    /// The keyed hash of the roots that the client named last.
    roots: Mutex<Option<KeyedHash>>,
    /// The value of `roots` at the first request that needed it. It never changes afterwards, so
    /// that a work session keeps its workspace.
    workspace: OnceLock<Option<KeyedHash>>,
}

/// The state of the tool lists that were shown to the client.
#[derive(Debug, Default)]
struct ListingState {
    /// Whether the client requests the list again after a notification of a change.
    refetches_lists: AtomicBool,
    /// Whether the proxy added the promise of change notifications to the handshake.
    has_promise: AtomicBool,
    /// Whether the client loads tools on demand by itself.
    loads_on_demand: AtomicBool,
    /// Whether a list had own tools of the proxy.
    had_own_tools: AtomicBool,
    last: Mutex<LastList>,
}

#[derive(Debug, Default)]
struct LastList {
    /// The session keys for which a review of the list is in progress.
    reviewed: HashSet<SessionKey>,
    told_at: Option<Instant>,
    catalog: Option<[u8; 32]>,
    shown: Option<Arc<ShownList>>,
    /// The expected coverage with which that list was recorded last.
    recorded_coverage: Option<ExpectedCoverage>,
    /// The list that the client was last notified to be outdated, as revision of the overrides and
    /// epoch of the list.
    told_of: Option<(u64, u64)>,
    /// The number of changes of the selection at the last list request or notification.
    selection: Option<u64>,
    /// The forbid rules at the time of the last list or notification, with their revision.
    rules: Option<(u64, ForbidRules)>,
}

/// The clients that may belong to a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionMembers {
    /// Only the client of the request.
    One,
    /// Others too. Without a handshake, clients of the same principal and name share a connection.
    Many,
}

/// The difference between a list and the last one that the client was shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ListNovelty {
    /// It is another list.
    List,
    /// It has the same tools, but another expected coverage. A prediction at each request moves it.
    Expectation,
    /// None that is worth a record.
    Same,
}

/// Returns whether two expected coverages are so close that calls under both are counted together.
fn expect_alike(before: Option<ExpectedCoverage>, now: Option<ExpectedCoverage>) -> bool {
    match (before, now) {
        (Some(before), Some(now)) => (before.get() - now.get()).abs() <= SAME_EXPECTATION,
        (before, now) => before.is_none() && now.is_none(),
    }
}

/// The description that the client sent of itself.
#[derive(Clone, Debug, Default)]
struct ClientDeclaration {
    client: ClientDescription,
    /// The keyed hash of the client, once it was needed.
    client_hash: Option<KeyedHash>,
    revision: Option<Revision>,
    /// Whether the revision was agreed on. Otherwise it was only requested.
    is_agreed: bool,
    handshake: Handshake,
    /// The key of its work session that the client sent in the handshake.
    work: Option<Box<str>>,
}

/// The handshake messages of the client, verbatim.
#[derive(Clone, Debug, Default)]
pub(super) struct Handshake {
    /// The `initialize` request, stored after a successful answer.
    pub(super) initialize: Option<Message>,
    /// The `notifications/initialized` notification.
    pub(super) initialized: Option<Message>,
    /// The last `logging/setLevel` request.
    pub(super) log_level: Option<Message>,
}

impl ClientContext {
    pub(super) fn new(
        transport: Transport,
        visitor: ClientIdentity,
        started_at: Timestamp,
    ) -> Self {
        Self {
            transport,
            principal: visitor.principal,
            profile: visitor.profile,
            search: SessionSearch::default(),
            requests: Arc::default(),
            sampling: Arc::default(),
            calls: RecentCalls::default(),
            span: spans::session(),
            started_at,
            row: OnceCell::new(),
            n_calls: AtomicU64::new(0),
            declaration: Mutex::default(),
            work: Mutex::default(),
            listing: ListingState::default(),
            presence: OnceLock::new(),
            is_modern: AtomicBool::new(false),
            is_merged: AtomicBool::new(false),
            last_seen: Mutex::new(Instant::now()),
            roots: Mutex::default(),
            workspace: OnceLock::new(),
        }
    }

    pub(super) fn profile_name(&self) -> Option<&str> {
        self.profile.as_ref().map(ProfileName::as_str)
    }

    /// Returns the agreed revision, or the requested revision as long as none is agreed.
    pub(super) fn revision(&self) -> Option<Revision> {
        self.declaration.lock().revision.clone()
    }

    /// Returns the client name from the handshake, or an empty string.
    pub(super) fn client_name(&self) -> String {
        self.declaration.lock().client.info.name.clone()
    }

    /// Returns whether the client declared the sampling capability in its handshake.
    pub(super) fn offers_sampling(&self) -> bool {
        let declaration = self.declaration.lock();
        let declared = declaration.client.metadata.get("capabilities");
        declared.is_some_and(|names| names.split(',').any(|name| name == "sampling"))
    }

    /// Returns whether the sender of a request with these `params` shows apps in a revision whose
    /// tools can name one. A modern client declares it in each request, because several clients may
    /// share the session; a legacy client declared it in its handshake.
    pub(super) fn shows_apps(&self, params: Option<&str>) -> bool {
        if let Some(meta) = RequestParams::read(params).protocol_meta() {
            return (meta.client_capabilities).is_some_and(session_app::shows_apps);
        }
        let declaration = self.declaration.lock();
        let revision = declaration.revision.as_ref();
        declaration.client.shows_apps && revision.is_some_and(Revision::has_structured_results)
    }

    /// Stores the description of the client from its `initialize` request.
    pub(super) fn set_description(&self, client: ClientDescription, requested: Option<&str>) {
        let mut declaration = self.declaration.lock();
        declaration.client = client;
        declaration.client_hash = None;
        // The requested revision is preliminary. A revision that was agreed before holds until the
        // server answers.
        if declaration.revision.is_none() {
            declaration.revision = requested.map(Revision::new);
        }
    }

    pub(super) fn set_revision(&self, revision: &Revision) {
        let mut declaration = self.declaration.lock();
        declaration.revision = Some(revision.clone());
        declaration.is_agreed = true;
    }

    /// Stores the client description from a request of a modern revision. Only the first such
    /// request counts, because it fills the row of the session.
    pub(super) fn set_request_description(&self, meta: &RequestMeta<'_>) {
        if self.is_modern.swap(true, Ordering::AcqRel) {
            return;
        }
        let mut declaration = self.declaration.lock();
        if !declaration.is_agreed {
            declaration.client = ClientDescription::of_request(meta);
            declaration.client_hash = None;
            declaration.revision = meta.revision();
        }
    }

    /// Returns the way in which the upstreams are presented to the client.
    pub(super) fn aggregation(&self) -> AggregationMode {
        if self.is_merged.load(Ordering::Acquire) {
            AggregationMode::Merged
        } else {
            AggregationMode::Verbatim
        }
    }

    /// Presents the upstreams as one server from now on.
    pub(super) fn present_merged(&self) {
        self.is_merged.store(true, Ordering::Release);
    }

    /// Returns the era of the client: modern once it sent a request of a modern revision.
    pub(super) fn era(&self) -> Era {
        if self.is_modern.load(Ordering::Acquire) {
            Era::Modern
        } else {
            Era::Legacy
        }
    }

    pub(super) fn is_initialized(&self) -> bool {
        self.declaration.lock().handshake.initialize.is_some()
    }

    /// Returns whether messages may be sent without further setup: the handshake is complete, or
    /// the client is modern and needs none.
    pub(super) fn is_set_up(&self) -> bool {
        self.era() == Era::Modern || self.is_initialized()
    }

    /// Returns the handshake messages to replay to an upstream that does not know the session.
    pub(super) fn handshake(&self) -> Handshake {
        self.declaration.lock().handshake.clone()
    }

    /// Changes the handshake messages to replay.
    pub(super) fn set_handshake(&self, change: impl FnOnce(&mut Handshake)) {
        let handshake = &mut self.declaration.lock().handshake;
        change(handshake);
        // A replayed message must not join the trace of the original request.
        for said in [
            &mut handshake.initialize,
            &mut handshake.initialized,
            &mut handshake.log_level,
        ] {
            *said = said.take().map(|message| message.with_trace(None));
        }
    }

    /// Returns the sequence number of the next call.
    pub(super) fn next_sequence(&self) -> u64 {
        self.n_calls.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Returns the token that each network connection of the client holds until its end.
    pub(super) fn presence(&self) -> Arc<()> {
        Arc::clone(self.presence.get_or_init(Arc::default))
    }

    /// Returns whether the client has called at most once, holds no connection any more and is silent
    /// for some time, so that it is not likely to come back.
    pub(super) fn has_left(&self, now: Instant) -> bool {
        let presence = self.presence.get();
        presence.is_some_and(|presence| Arc::strong_count(presence) == 1)
            && self.n_calls.load(Ordering::Relaxed) <= 1
            && self
                .silent_for(now)
                .is_some_and(|silent| silent >= LEFT_AFTER)
    }

    /// Registers a sign of the client.
    pub(super) fn touch(&self) {
        *self.last_seen.lock() = Instant::now();
    }

    /// Returns the time since the last sign of the client. Returns `None` over standard input,
    /// where the client is present as long as the input is open.
    pub(super) fn silent_for(&self, now: Instant) -> Option<std::time::Duration> {
        let last_seen = *self.last_seen.lock();
        (self.transport != Transport::Stdio).then(|| now.saturating_duration_since(last_seen))
    }

    /// Returns the list request of this client as part of `session`. `client` is the name that the
    /// client gives itself.
    pub(super) fn list_request<'a>(
        &'a self,
        client: &'a str,
        session: SessionKey,
        era: Era,
        now: Timestamp,
    ) -> ListRequest<'a> {
        ListRequest {
            principal: &self.principal,
            client,
            client_hash: None,
            profile: self.profile_name(),
            era,
            refetches_lists: self.listing.refetches_lists.load(Ordering::Relaxed),
            loads_on_demand: self.listing.loads_on_demand.load(Ordering::Relaxed),
            session,
            connection: self.known_row(),
            intent: None,
            stated: None,
            now,
        }
    }

    /// Returns the clients that may belong to the session of a request with these hints.
    pub(super) fn session_members(&self, hints: &RequestHints, era: Era) -> SessionMembers {
        let is_shared = era == Era::Modern && self.transport == Transport::StreamableHttp;
        // The label of the work session is that of the connection, too.
        if is_shared && hints.session.is_none() {
            SessionMembers::Many
        } else {
            SessionMembers::One
        }
    }

    /// Registers that the client loads tools on demand by itself.
    pub(super) fn note_loads_on_demand(&self) {
        self.listing.loads_on_demand.store(true, Ordering::Relaxed);
    }

    /// Returns the current session key of a connection with this row, for use where no request
    /// defines it. It is the work session of the last request if work sessions are derived.
    pub(super) fn session_key(&self, row: SessionId) -> SessionKey {
        let work = *self.work.lock();
        SessionKey::of(work, row)
    }

    /// Returns the keyed hash that identifies the client in rows.
    pub(super) fn client_hash(&self, recorder: &Recorder) -> KeyedHash {
        let mut declaration = self.declaration.lock();
        let ClientDeclaration {
            client,
            client_hash,
            ..
        } = &mut *declaration;
        *client_hash.get_or_insert_with(|| recorder.client_hash(&self.principal, &client.info))
    }

    /// Registers a notification of a changed tool list.
    pub(super) fn note_change_notification(&self, at: Instant) {
        self.listing.last.lock().told_at = Some(at);
    }

    /// Registers a list request. A request shortly after a notification shows that the client
    /// reacts to notifications.
    pub(super) fn note_listing(&self, lists: &Lists) {
        let told_at = self.listing.last.lock().told_at.take();
        let is_prompt = told_at.is_some_and(|at| at.elapsed() < REFETCH_WITHIN);
        if is_prompt && self.era() == Era::Legacy {
            lists.record_refetch(&self.principal, &self.client_name());
        }
        if lists.refetches_lists(&self.principal, &self.client_name()) {
            self.listing.refetches_lists.store(true, Ordering::Relaxed);
        }
    }

    /// Returns whether a catalog differs from the catalog of the last list. Stores it.
    pub(super) fn is_new_catalog(&self, catalog: &Catalog) -> bool {
        let mut listing = self.listing.last.lock();
        let id = Some(catalog.id());
        std::mem::replace(&mut listing.catalog, id) != id
    }

    /// Returns the difference between a list and the last list that was shown. Stores it.
    pub(super) fn novelty_of_list(&self, shown: &Arc<ShownList>) -> ListNovelty {
        let mut listing = self.listing.last.lock();
        let is_same = (listing.shown.as_ref()).is_some_and(|last| last.is_same_as(shown));
        listing.shown = Some(Arc::clone(shown));
        let novelty = if !is_same {
            ListNovelty::List
        } else if expect_alike(listing.recorded_coverage, shown.expected_coverage) {
            ListNovelty::Same
        } else {
            ListNovelty::Expectation
        };
        if novelty != ListNovelty::Same {
            listing.recorded_coverage = shown.expected_coverage;
        }
        novelty
    }

    /// Returns the last list that the client was shown, if the proxy composed one.
    pub(super) fn last_shown_list(&self) -> Option<Arc<ShownList>> {
        self.listing.last.lock().shown.clone()
    }

    /// Returns whether the client must be notified to request its list again. This holds if the
    /// epoch of its list is over, or if the operator changed an override since. `revision` counts
    /// the changes of overrides. Returns true only once for each such list.
    pub(super) fn is_list_outdated(&self, revision: u64, now: Timestamp) -> bool {
        let mut listing = self.listing.last.lock();
        let Some(shown) = &listing.shown else {
            return false;
        };
        let is_over = shown.until.is_some_and(|until| now >= until);
        if !is_over && shown.revision() == revision {
            return false;
        }
        let this = Some((revision, shown.epoch));
        std::mem::replace(&mut listing.told_of, this) != this
    }

    /// Registers that the handshake of the proxy promised notifications of changed tool lists.
    pub(super) fn note_promise(&self) {
        self.listing.has_promise.store(true, Ordering::Relaxed);
    }

    /// Returns whether the handshake of the proxy promised notifications of changed tool lists.
    pub(super) fn has_promise(&self) -> bool {
        self.listing.has_promise.load(Ordering::Relaxed)
    }

    /// Registers that the client is shown own tools of the proxy.
    pub(super) fn note_own_tools(&self) {
        self.listing.had_own_tools.store(true, Ordering::Relaxed);
    }

    /// Returns whether a list of the client had own tools of the proxy.
    pub(super) fn was_shown_own_tools(&self) -> bool {
        self.listing.had_own_tools.load(Ordering::Relaxed)
    }

    /// Returns whether the client was shown a list that the proxy composed.
    pub(super) fn was_shown_selection(&self) -> bool {
        self.listing.last.lock().shown.is_some()
    }

    /// Registers a list request. `n_changes` is the number of changes of the selection so far.
    pub(super) fn note_selection(&self, n_changes: u64) {
        self.listing.last.lock().selection = Some(n_changes);
    }

    /// Returns whether the selection changed since the last list request. Returns true only once
    /// for each change.
    pub(super) fn has_selection_changed(&self, n_changes: u64) -> bool {
        let known = &mut self.listing.last.lock().selection;
        known.is_some_and(|known| known != n_changes) && known.replace(n_changes).is_some()
    }

    /// Stores the forbid rules of a list that is shown to the client. `revision` counts the changes
    /// of the rules of all clients.
    pub(super) fn note_rules(&self, revision: u64, rules: ForbidRules) {
        self.listing.last.lock().rules = Some((revision, rules));
    }

    /// Returns whether these forbid rules differ from the rules at the time of the last list.
    /// Returns true only once for each change.
    pub(super) fn have_rules_changed(
        &self,
        revision: u64,
        rules: impl FnOnce() -> ForbidRules,
    ) -> bool {
        let known = self.listing.last.lock().rules.clone();
        let Some((_, known)) = known.filter(|(known, _)| *known != revision) else {
            return false;
        };
        let rules = rules();
        let is_other = known != rules;
        self.note_rules(revision, rules);
        is_other
    }

    /// Returns whether a review of the list is in progress. If not, the caller starts one.
    pub(super) fn begin_review(&self, session: SessionKey) -> bool {
        !self.listing.last.lock().reviewed.insert(session)
    }

    /// Ends a review of the list, so that later calls start a new one.
    pub(super) fn end_review(&self, session: SessionKey) {
        self.listing.last.lock().reviewed.remove(&session);
    }

    /// Returns the id of the session in the records, and records the session first if necessary.
    pub(super) async fn session_id(&self, shared: &SharedState) -> SessionId {
        *self
            .row
            .get_or_init(|| async {
                let declaration = self.declaration.lock().clone();
                let details = SessionDetails {
                    principal: &self.principal,
                    client_info: &declaration.client.info,
                    metadata: &declaration.client.metadata,
                    protocol: &declaration
                        .revision
                        .unwrap_or_else(|| Revision::new("unknown")),
                    transport: self.transport,
                    started_at: self.started_at,
                    profile: self.profile.as_ref(),
                };
                let row = shared.recorder.session_opened(details).await;
                spans::set_session_id(&self.span, row);
                let event = Event::SessionIntroduced {
                    transport: self.transport,
                };
                let origin = EventOrigin::of_principal(&self.principal).with_connection(row);
                shared.observe_from(&event, &origin);
                row
            })
            .await
    }

    /// Returns the origin for events of the session that do not belong to a request.
    pub(super) fn origin(&self) -> EventOrigin<'_> {
        EventOrigin {
            principal: Some(&self.principal),
            connection: self.known_row(),
            work_session: self.known_work(),
        }
    }

    /// Returns the id of the session row if the row exists.
    pub(super) fn known_row(&self) -> Option<SessionId> {
        self.row.get().copied()
    }

    /// Returns the work session of the last request if work sessions are derived.
    pub(super) fn known_work(&self) -> Option<WorkSessionId> {
        *self.work.lock()
    }

    /// Closes the session row if it exists.
    pub(super) async fn close_row(self: &Arc<Self>, shared: &SharedState) {
        if let Some(row) = self.row.get() {
            if let Some(work_sessions) = &shared.work_sessions {
                work_sessions.on_disconnect(*row);
            }
            shared.recorder.session_closed(*row).await;
        }
    }

    /// Stores the hints of the handshake. They apply to requests without hints of their own.
    pub(super) fn set_handshake_hints(&self, hints: &RequestHints) {
        self.declaration.lock().work.clone_from(&hints.session);
    }

    /// Stores the keyed hash of the roots that the client named.
    pub(super) fn set_roots(&self, roots: KeyedHash) {
        *self.roots.lock() = Some(roots);
    }

    /// Returns the work session of a request with these hints that was received at `now`. Returns
    /// `None` if work sessions are not derived. Stores the context in the hints as intent of the
    /// work session.
    pub(super) async fn work_session(
        &self,
        shared: &SharedState,
        hints: &RequestHints,
        kind: RequestKind,
        now: Timestamp,
    ) -> Option<WorkSessionId> {
        let work_sessions = shared.work_sessions.as_ref()?;
        let connection = self.session_id(shared).await;
        let (client_name, work) = {
            let declaration = self.declaration.lock();
            let name = declaration.client.info.name.clone();
            (name, declaration.work.clone())
        };
        // The work session key of the handshake applies to requests without a key.
        let hints_of_all = work.filter(|_| hints.session.is_none()).map(|work| {
            let mut hints = hints.clone();
            hints.session = Some(work);
            hints
        });
        let roots = || *self.roots.lock();
        let request = WorkRequest {
            principal: &self.principal,
            client_name: &client_name,
            client: self.client_hash(&shared.recorder),
            profile: self.profile_name(),
            workspace: *self.workspace.get_or_init(roots),
            hints: hints_of_all.as_ref().unwrap_or(hints),
            connection,
            kind,
            now,
        };
        let work = work_sessions.resolve(&request).await;
        *self.work.lock() = Some(work);
        shared.recorder.set_work_session(connection, work);
        if let Some(text) = &hints.context {
            let source = IntentSource::Request;
            shared.note_intent(SessionKey::Work(work), source, text, now);
        }
        Some(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_another_expectation_is_recorded_anew() {
        let expecting = |share: f64| ExpectedCoverage::try_from(share).ok();
        assert!(expect_alike(None, None));
        assert!(expect_alike(expecting(0.7), expecting(0.74)));
        assert!(expect_alike(expecting(0.7), expecting(0.66)));
        assert!(!expect_alike(expecting(0.7), expecting(0.76)));
        assert!(!expect_alike(expecting(0.7), expecting(0.64)));
        assert!(!expect_alike(expecting(0.7), None));
        assert!(!expect_alike(None, expecting(0.7)));
    }
}
