//! The state that all sessions of a proxy share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use arc_swap::{ArcSwap, ArcSwapOption, Guard};
use jiff::Timestamp;
use riglm_domain::catalog::naming::NamespacePolicy;
use riglm_domain::id::SessionId;
use riglm_domain::intent::StatedIntent;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::mcp::request_hints::RequestHints;
use riglm_domain::mcp::trace_context::TraceContext;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{Event, EventOrigin, Observer};
use riglm_ports::tracer::{Span, SpanOperation, Tracer};

use super::admission::RequestPermits;
use super::aggregator::merged_lists::MergedListCache;
use super::client_context::ClientContext;
use super::known_servers::{KnowledgeStore, Starts};
use super::own_tools::{CatalogCache, OwnTool, OwnToolSet, OwnTools};
use super::page_cache::PageCache;
use super::registry::HintUse;
use super::upstream_set::{UpstreamEntry, UpstreamSet};
use crate::limits::Limits;
use crate::long_work::LongTextWork;
use crate::safeguards::{LimitSubject, ListText, Safeguards};
use crate::selection::{ListFilter, ListRequest};
use crate::tracking::Recorder;
use crate::work_sessions::WorkSessions;
use riglm_discovery::intent::{IntentSource, Intents};
use riglm_discovery::learning::LivePredictions;
use riglm_discovery::recommend::{Exclusions, Recommender};
use riglm_discovery::search::Catalog;

#[derive(Debug)]
pub(crate) struct SharedState {
    pub(super) upstreams: ArcSwap<UpstreamSet>,
    pub(super) naming: NamespacePolicy,
    pub(crate) recorder: Arc<Recorder>,
    pub(crate) selection: ListFilter,
    /// The current limits, which a reload replaces.
    pub(super) limits: ArcSwap<Limits>,
    /// The own tools of the proxy, whether lists have them now or not; `None` without a search.
    pub(super) every_own_tool: Option<Arc<OwnTools>>,
    /// Recommends tools, if enabled.
    pub(super) recommender: Option<Arc<Recommender>>,
    /// Refuse calls or add hints for models, unless all are disabled; during a pause, too.
    pub(super) every_safeguard: ArcSwapOption<Safeguards>,
    /// The intents of sessions, whether they are used or not.
    pub(super) every_intent: Option<Arc<Intents>>,
    /// Predicts next tools from the calls.
    pub(super) predictions: LivePredictions,
    /// Derives the work session of each request, if enabled.
    pub(super) work_sessions: Option<Arc<WorkSessions>>,
    /// Records spans, if traces are enabled.
    pub(super) tracer: Option<Arc<dyn Tracer>>,
    pub(super) hints: HintUse,
    pub(super) page_cache: PageCache,
    pub(super) long_work: LongTextWork,
    /// The catalogs of sessions. Sessions with the same list share one catalog.
    pub(super) catalog_cache: CatalogCache,
    pub(super) merged_list_cache: MergedListCache,
    pub(crate) observer: std::sync::Arc<dyn Observer>,
    /// The permits of requests in flight.
    pub(super) request_permits: RequestPermits,
    /// Whether several principals are expected, so that each is limited to its share.
    pub(super) has_several_principals: AtomicBool,
    /// The progress of the first starts.
    pub(super) starts: Starts,
    pub(super) knowledge: KnowledgeStore,
    /// Whether the proxy is shutting down. Requests in flight may end, new ones are refused.
    pub(crate) is_stopping: AtomicBool,
}

impl SharedState {
    /// Returns whether catalogs of sessions are needed: for searches, recommendations or the
    /// selection of lists.
    pub(super) fn needs_catalogs(&self) -> bool {
        self.own_tools().is_some() || self.recommender.is_some() || self.selection.lists().is_some()
    }

    /// Returns the own tools of the proxy if lists have them now. Without a selection, lists are
    /// whole and own tools are not needed.
    pub(super) fn own_tools(&self) -> Option<&Arc<OwnTools>> {
        self.enabled_own_tools()
            .filter(|_| self.selection.is_active())
    }

    /// Returns the own tools of the proxy if they are enabled, whether lists are selected or not.
    pub(super) fn enabled_own_tools(&self) -> Option<&Arc<OwnTools>> {
        let tools = self.every_own_tool.as_ref();
        tools.filter(|tools| tools.are_listed())
    }

    /// Returns the own tools that lists have now.
    pub(super) fn listed_own_tools(&self) -> OwnToolSet {
        let tools = self.own_tools();
        tools.map_or_else(OwnToolSet::default, |tools| tools.listed_tools())
    }

    /// Returns the own tools that the client may call: those that lists have now, or that a list of
    /// this client had before.
    pub(super) fn callable_own_tools(&self, client: &ClientContext) -> Option<&Arc<OwnTools>> {
        let tools = self.every_own_tool.as_ref();
        tools.filter(|_| self.own_tools().is_some() || client.was_shown_own_tools())
    }

    /// Returns whether there is an app that shows sessions, now or for a client that was offered it
    /// before.
    pub(super) fn has_session_app(&self) -> bool {
        self.session_app_tool().is_some()
    }

    /// Returns the name of the tool that shows sessions; `None` if there is and was none.
    pub(super) fn session_app_tool(&self) -> Option<&str> {
        let tools = self.every_own_tool.as_ref();
        tools?.known_name(OwnTool::ShowSession)
    }

    /// Returns whether the app that shows sessions is among the resources of the sender of a request
    /// with these `params`. A pause changes neither handshakes nor resources.
    pub(super) fn offers_session_app(&self, client: &ClientContext, params: Option<&str>) -> bool {
        let tools = self.enabled_own_tools();
        tools.is_some_and(|tools| tools.name(OwnTool::ShowSession).is_some())
            && self.selection.is_configured()
            && client.shows_apps(params)
    }

    /// Returns the own tools that the sender of a request with these `params` has no use for,
    /// because it shows no apps.
    pub(super) fn useless_own_tools(
        &self,
        client: &ClientContext,
        params: Option<&str>,
    ) -> OwnToolSet {
        let is_useless = self.has_session_app() && !client.shows_apps(params);
        let tool = is_useless.then_some(OwnTool::ShowSession);
        tool.into_iter().collect()
    }

    /// Returns the safeguards; `None` if all are disabled, and during a pause.
    pub(super) fn safeguards(&self) -> Option<Arc<Safeguards>> {
        let safeguards = self.every_safeguard.load_full();
        safeguards.filter(|_| !self.selection.is_paused())
    }

    /// Returns the intents of sessions, if the selection of lists uses them; during a pause, too.
    pub(super) fn intents(&self) -> Option<&Arc<Intents>> {
        let intents = self.every_intent.as_ref();
        intents.filter(|_| self.selection.is_configured())
    }

    /// Reports an event of a session or principal to the observer.
    pub(crate) fn observe_from(&self, event: &Event<'_>, origin: &EventOrigin<'_>) {
        self.observer.observe_from(event, origin);
    }

    /// Returns the intent that a client stated, if intents are stored.
    pub(crate) fn stated_intent(
        &self,
        row: SessionId,
        session: SessionKey,
        now: Timestamp,
    ) -> Option<StatedIntent> {
        let intents = self.intents()?;
        Some(intents.stated_intent(session, row, now))
    }

    /// Stores a text that describes the work of a session. Reports an event if the context changed.
    pub(crate) fn note_intent(
        &self,
        session: SessionKey,
        source: IntentSource,
        text: &str,
        now: Timestamp,
    ) {
        let intents = self.intents();
        if let Some(shift) = intents.and_then(|all| all.note(session, source, text, now)) {
            self.observe_from(&Event::ContextShifted(shift), &session.into());
        }
    }

    /// Passes a tool list that a client was shown to the safeguards.
    pub(super) fn note_shown(
        &self,
        client_context: &ClientContext,
        session_key: SessionKey,
        hints: &RequestHints,
        list: ListText<'_>,
    ) {
        if let Some(safeguards) = self.safeguards() {
            let profile = client_context.profile_name();
            safeguards.record_list(session_key, profile, hints.token_budget, list);
        }
    }

    /// Returns the tools of a catalog that the requester cannot use now: tools that the operator
    /// hides, tools of unavailable upstreams, and tools whose call limit is reached.
    pub(crate) fn exclusions(&self, ask: &ListRequest<'_>, catalog: &Catalog) -> Exclusions {
        let set = self.upstreams.load();
        let states = set.entries.iter().map(|entry| entry.state());
        let unavailable = states
            .filter(|state| !state.is_available)
            .map(|state| state.name);
        let excluded = self
            .selection
            .lists()
            .map(|lists| lists.excluded_tools(ask, catalog));
        let whose = LimitSubject {
            session_key: ask.session,
            principal: ask.principal,
        };
        let limited = (self.safeguards())
            .map(|safeguards| safeguards.rate_limited_tools(catalog, whose, Instant::now()));
        Exclusions {
            unavailable: unavailable.collect(),
            excluded: excluded.unwrap_or_default(),
            limited: limited.unwrap_or_default(),
        }
    }

    /// Applies the share of one principal to searches and long work.
    pub(super) fn apply_principal_shares(&self) {
        let of_one = |total| self.bounds(total).of_one;
        if let Some(tool) = &self.every_own_tool {
            tool.share(of_one);
        }
        if let Some(recommender) = &self.recommender {
            recommender.search().limit_per_principal(of_one);
        }
        self.long_work.share(of_one);
        self.recorder.share(of_one);
    }

    /// Starts a span for a part of the work of the request with the trace context `of`.
    pub(super) fn span(
        &self,
        operation: &SpanOperation<'_>,
        of: Option<&Arc<TraceContext>>,
    ) -> Option<Box<dyn Span>> {
        let tracer = self.tracer.as_ref()?;
        if *operation == SpanOperation::Store && !self.recorder.is_on() {
            return None;
        }
        Some(tracer.begin(operation, Some(of?)))
    }

    /// Stores what is known of a server for the next run of the program.
    pub(super) async fn store_knowledge(&self, entry: &UpstreamEntry) {
        let server = entry.known_server();
        self.knowledge.save(server, self.recorder.now()).await;
    }

    /// Returns the last known answer of an upstream to a handshake or to discovery by clients of an
    /// era. The first clients wait for the first check of an upstream that never answered.
    pub(super) async fn known_greeting(
        &self,
        entry: &UpstreamEntry,
        client: Era,
    ) -> Option<Arc<str>> {
        let known = entry.greeting(client);
        if known.is_some() || !self.starts.are_checked() {
            return known;
        }
        let left = entry.wait_left(self.limits().first_wait);
        entry.wait_for_check(left).await;
        entry.greeting(client)
    }

    /// Returns the current limits. Do not hold the guard over an await.
    pub(crate) fn limits(&self) -> Guard<Arc<Limits>> {
        self.limits.load()
    }
}
