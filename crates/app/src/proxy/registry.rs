//! The registry of all sessions: admission, deadlines, idle timeouts, shutdown.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use arc_swap::{ArcSwap, ArcSwapOption};
use futures_util::future::join_all;
use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::catalog::naming::NamespacePolicy;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::privacy::principal::Principal;
use riglm_ports::downstream::ClientLink;
use riglm_ports::observer::{Event, EventOrigin, Observer, ResourceLimit};
use riglm_ports::tracer::Tracer;
use tokio_util::sync::CancellationToken;

use super::admission::{RequestPermits, stopping};
use super::aggregator::merged_lists::MergedListCache;
use super::client_description::ClientIdentity;
use super::health_checks;
use super::known_servers::{KnowledgeStore, ServerMemories, Starts};
use super::message_rate_limit::MessageRateLimit;
use super::own_tools::{CatalogCache, OwnToolNames, OwnToolSet, OwnTools};
use super::page_cache::PageCache;
use super::session::ClientSession;
use super::shared_state::SharedState;
use super::upstream_set::{Upstream, UpstreamSet, UpstreamState};
use crate::control::approvals::{ApprovalError, ApprovalRequest, HeldDefinition};
use crate::control::name_lookup::quote;
use crate::limits::Limits;
use crate::long_work::LongTextWork;
use crate::proxy::aggregator::changes::{all_may_have_changed, reconfigure};
use crate::proxy::list_notices::{
    notify_approval, notify_forbid_rules_changed, notify_list_outdated, notify_selection_changed,
};
use crate::safeguards::Safeguards;
use crate::selection::{ListFilter, Pause};
use crate::tracking::Recorder;
use crate::work_sessions::WorkSessions;
use riglm_discovery::intent::Intents;
use riglm_discovery::learning::LivePredictions;
use riglm_discovery::recommend::Recommender;
use riglm_discovery::search::ToolSearch;

/// The interval of the sweep for deadlines and idle sessions.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// The time after which a silent session without connection counts as abandoned. If the session
/// limit is reached, a new session replaces it. The time is more than three times the keep-alive
/// interval of open streams.
const ABANDONED_AFTER: Duration = Duration::from_mins(1);

/// The minimum time for closing connections at the end of the process, also after the drain
/// timeout. A child process must end within it after its standard input was closed. It is longer than
/// the default `shutdown_grace` of an upstream, so that there is time for SIGTERM, too.
pub const CLOSE_WITHIN: Duration = Duration::from_secs(4);

/// The components of a proxy.
#[derive(Debug)]
pub struct ProxyParts {
    /// The upstreams in the order of presentation.
    pub upstreams: Vec<Upstream>,
    /// The namespace rules for tool names.
    pub naming: NamespacePolicy,
    /// Records calls, lists and sessions.
    pub recorder: Arc<Recorder>,
    /// Selects the tools in lists.
    pub filter: ListFilter,
    /// The initial limits.
    pub limits: Limits,
    /// The tool search for clients; `None` without own tools.
    pub search: Option<Arc<ToolSearch>>,
    /// Recommends tools; `None` if recommendations are disabled.
    pub recommender: Option<Arc<Recommender>>,
    /// Refuse calls or add hints for models; `None` if safeguards are disabled.
    pub safeguards: Option<Arc<Safeguards>>,
    /// The intents of sessions; `None` if they are not stored.
    pub intents: Option<Arc<Intents>>,
    /// Predicts the next tools of sessions from their calls.
    pub predictions: LivePredictions,
    /// Derives the work session of each request; `None` if work sessions are not derived.
    pub work_sessions: Option<Arc<WorkSessions>>,
    /// Observes all events.
    pub observer: Arc<dyn Observer>,
    /// Traces each request; `None` without traces.
    pub tracer: Option<Arc<dyn Tracer>>,
    /// The own tools of the proxy. They are listed only if lists may be shortened.
    pub tools: OwnToolNames,
    /// The own tools that no list has, because they are disabled.
    pub unlisted_tools: OwnToolSet,
    /// The use of hints in requests.
    pub hints: HintUse,
    /// Keeps what servers said of themselves for the next run; `None` to start without knowledge.
    pub server_memory: Option<ServerMemories>,
}

/// The use of hints in requests: the session, context and token budget that a client names in
/// `_meta`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HintUse {
    /// They are read and taken out.
    #[default]
    Extract,
    /// They are forwarded, because the upstream is another proxy that reads them.
    Forward,
}

/// The proxy in front of its upstreams.
#[derive(Debug)]
pub struct Proxy {
    pub(super) shared: Arc<SharedState>,
    pub(super) sessions: Mutex<HashMap<u64, Arc<ClientSession>>>,
    message_rates: MessageRateLimit,
    next: AtomicU64,
    /// The end of the drain timeout, set when the shutdown begins.
    stops_at: OnceLock<Instant>,
}

impl Proxy {
    /// Returns a proxy with these components.
    #[must_use]
    pub fn new(parts: ProxyParts) -> Self {
        let own_tools = own_tools(&parts);
        let shared = SharedState {
            upstreams: ArcSwap::from_pointee(UpstreamSet::new(
                parts.upstreams,
                &UpstreamSet::default(),
                &parts.observer,
            )),
            naming: parts.naming,
            recorder: parts.recorder,
            selection: parts.filter,
            limits: ArcSwap::from_pointee(parts.limits),
            every_own_tool: own_tools,
            recommender: parts.recommender,
            every_safeguard: ArcSwapOption::from(parts.safeguards),
            every_intent: parts.intents,
            predictions: parts.predictions,
            work_sessions: parts.work_sessions,
            tracer: parts.tracer,
            hints: parts.hints,
            page_cache: PageCache::default(),
            long_work: LongTextWork::default(),
            catalog_cache: CatalogCache::default(),
            merged_list_cache: MergedListCache::default(),
            observer: parts.observer,
            request_permits: RequestPermits::default(),
            has_several_principals: AtomicBool::new(false),
            starts: Starts::default(),
            knowledge: KnowledgeStore(parts.server_memory),
            is_stopping: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            sessions: Mutex::default(),
            message_rates: MessageRateLimit::default(),
            next: AtomicU64::new(0),
            stops_at: OnceLock::new(),
        }
    }

    /// Counts a message of a principal that was received at `at`. A refused client may retry after
    /// one second.
    ///
    /// # Errors
    ///
    /// Returns an error with the code of a reached limit if the principal sent too many messages in
    /// the last second.
    pub fn admit_message(&self, principal: &Principal, at: Instant) -> Result<(), RpcError> {
        self.message_rates.admit(&self.shared, principal, at)
    }

    /// Checks until `stop` is cancelled whether the upstreams answer. Each upstream that no session
    /// has used is checked once. Upstreams that fail are checked again with growing pauses. The
    /// results are logged and are part of [`Proxy::upstream_states`]. Clients whose lists turn out to
    /// be outdated are notified: once when the first starts have settled, and for later news.
    pub async fn check_upstreams(&self, stop: &CancellationToken) {
        let tell_all = || {
            let sessions: Vec<_> = self.sessions.lock().values().cloned().collect();
            for session in sessions {
                all_may_have_changed(&session);
            }
        };
        health_checks::check_upstreams(&self.shared, stop, tell_all).await;
    }

    /// Takes over what earlier runs of the program knew of the upstreams. Call it before clients are
    /// accepted.
    pub async fn recall_upstreams(&self) {
        let set = self.shared.upstreams.load_full();
        let servers: Vec<_> = set
            .entries
            .iter()
            .map(|entry| entry.known_server())
            .collect();
        self.shared.knowledge.recall(&servers).await;
    }

    /// Replaces the set of upstreams in all sessions. Upstreams with the same name and fingerprint
    /// keep their connections. Clients are notified that their lists may have changed.
    pub fn replace_upstreams(&self, upstreams: Vec<Upstream>) {
        // The lock is held during the change, so that no new session starts with the old set
        // unnoticed.
        let sessions = self.sessions.lock();
        let old = self.shared.upstreams.load();
        let set = Arc::new(UpstreamSet::new(upstreams, &old, &self.shared.observer));
        self.shared.upstreams.store(Arc::clone(&set));
        for session in sessions.values() {
            reconfigure(session, &set);
        }
    }

    /// Returns the state of each upstream.
    #[must_use]
    pub fn upstream_states(&self) -> Vec<UpstreamState> {
        let set = self.shared.upstreams.load();
        set.entries.iter().map(|entry| entry.state()).collect()
    }

    /// Returns the held changes of the tools of an upstream with their definitions, by tool name.
    /// Returns `None` for an unknown upstream.
    #[must_use]
    pub fn held_definitions(&self, upstream: &str) -> Option<Vec<HeldDefinition>> {
        let set = self.shared.upstreams.load();
        let mut entries = set.entries.iter();
        let entry = entries.find(|entry| entry.name().as_str() == upstream)?;
        let approvals = entry.upstream.approvals.as_ref();
        Some(approvals.map_or_else(Vec::new, |held| held.held_definitions(entry.name())))
    }

    /// Returns the current time of the clock with which records are made.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.shared.recorder.now()
    }

    /// Returns the current limits.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        self.shared.limits.load_full()
    }

    /// Sets the expected number of principals. With several principals, each is limited to its
    /// share of the common permits. The default is one principal.
    pub fn expect_principals(&self, n_principals: usize) {
        let has_several = n_principals > 1;
        let known = &self.shared.has_several_principals;
        known.store(has_several, Ordering::Relaxed);
        self.shared.apply_principal_shares();
    }

    /// Replaces the limits. Requests in flight, and sessions beyond a lower limit, continue.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.limits.store(Arc::new(limits));
        self.shared.apply_principal_shares();
    }

    /// Replaces the set of own tools that no list has. Clients are notified that their lists changed
    /// if their handshake promised it. Own tools that a client was shown before stay callable.
    pub fn set_unlisted_own_tools(&self, tools: OwnToolSet) {
        let own = self.shared.every_own_tool.as_ref();
        if own.is_some_and(|own| own.set_unlisted(tools)) {
            self.shared.selection.count_change();
        }
    }

    /// Replaces the safeguards; `None` switches them off. Calls in flight end under the earlier
    /// ones.
    pub fn set_safeguards(&self, safeguards: Option<Arc<Safeguards>>) {
        self.shared.every_safeguard.store(safeguards);
    }

    /// Returns the safeguards, whether they are paused or not; `None` if all are disabled.
    #[must_use]
    pub fn safeguards(&self) -> Option<Arc<Safeguards>> {
        self.shared.every_safeguard.load_full()
    }

    /// Pauses or resumes the proxy. While it is paused, lists are shown whole, without own tools,
    /// and safeguards do nothing; forbidden tools stay forbidden, and everything is recorded.
    /// Clients are notified that their lists changed if their handshake promised it.
    pub fn set_pause(&self, pause: Pause) {
        let selection = &self.shared.selection;
        if selection.set_pause(pause, self.shared.recorder.now()) {
            self.report_pause();
        }
    }

    /// Returns whether the proxy is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.shared.selection.is_paused()
    }

    /// Returns the configured pause, whose time may be over.
    #[must_use]
    pub fn pause(&self) -> Pause {
        self.shared.selection.pause()
    }

    fn report_pause(&self) {
        let is_paused = self.is_paused();
        if is_paused {
            tracing::warn!("paused: lists are shown whole, and safeguards are off");
        } else {
            tracing::info!("resumed: lists are selected, and safeguards are on as configured");
        }
        let event = Event::PauseChanged { is_paused };
        self.shared.observer.observe(&event);
    }

    /// Approves held-back tool changes of an upstream and notifies clients to request their lists
    /// again. Returns the approved tools.
    ///
    /// # Errors
    ///
    /// Returns [`ApprovalError`]. Nothing is approved in that case.
    pub async fn approve(
        &self,
        upstream: &str,
        wanted: &ApprovalRequest,
        actor: &Principal,
    ) -> Result<Vec<ToolApproval>, ApprovalError> {
        let set = self.shared.upstreams.load_full();
        let mut entries = set.entries.iter();
        let entry = entries.find(|entry| entry.name().as_str() == upstream);
        let entry = entry.ok_or_else(|| ApprovalError::UnknownUpstream(quote(upstream)))?;
        let Some(approvals) = &entry.upstream.approvals else {
            return match &wanted.tool {
                Some(tool) => Err(ApprovalError::NothingHeld(quote(tool.as_str()))),
                None => Ok(Vec::new()),
            };
        };
        let approved = approvals.approve(entry.name(), wanted, actor).await?;
        if !approved.is_empty() {
            let sessions: Vec<Arc<ClientSession>> = {
                let sessions = self.sessions.lock();
                sessions.values().cloned().collect()
            };
            for session in sessions {
                notify_approval(&session, entry.name());
            }
        }
        Ok(approved)
    }

    /// Returns the number of sessions.
    #[must_use]
    pub fn n_sessions(&self) -> usize {
        self.sessions.lock().len()
    }

    /// Returns whether the proxy is shutting down and refuses new work.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Acquire)
    }

    /// Returns the number of client requests that wait for an answer.
    #[must_use]
    pub fn n_in_flight(&self) -> usize {
        self.shared.request_permits.n_awaited()
    }

    /// Admits a client. Its messages go to the returned session; messages for it go to `client`. If
    /// the session limit is reached, the longest abandoned session of the principal is ended.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`] if the limit of sessions, in total or of this
    /// principal, is reached and no session of the principal is abandoned.
    pub fn accept(
        &self,
        transport: Transport,
        visitor: impl Into<ClientIdentity>,
        client: Arc<dyn ClientLink>,
    ) -> Result<Arc<ClientSession>, RpcError> {
        let visitor = visitor.into();
        let limits = self.shared.limits();
        let mut sessions = self.sessions.lock();
        // Checked under the lock. A session that is admitted before `is_stopping` is set is found
        // by `shutdown`, which waits for all that are in the map.
        if self.shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let bounds = self.shared.bounds(limits.sessions);
        let of_one = bounds.of_one.min(limits.sessions_per_principal);
        // Ended sessions are removed at the next sweep. Until then they must not keep new sessions
        // out.
        if sessions.len() >= of_one {
            sessions.retain(|_, session| !session.is_closed());
        }
        let of_principal = || {
            let all = sessions.iter();
            all.filter(|(_, session)| *session.principal() == visitor.principal)
        };
        let has_share = sessions.len() >= of_one && of_principal().count() >= of_one;
        let is_full = has_share || sessions.len() >= limits.sessions;
        let abandoned = is_full.then(|| longest_abandoned(of_principal(), limits.idle_timeout));
        if let Some(abandoned) = abandoned
            .flatten()
            .and_then(|number| sessions.remove(&number))
        {
            tracing::debug!("closing an abandoned session to make room for a new one");
            crate::proxy::log_spans::spawn(async move { abandoned.close().await });
        } else if is_full {
            let origin = EventOrigin::of_principal(&visitor.principal);
            let event = Event::LimitReached(ResourceLimit::Sessions);
            self.shared.observe_from(&event, &origin);
            let text = if has_share && of_one < limits.sessions {
                format!(
                    "too many sessions of this principal are open: the limit is {of_one}; close \
                     some or try again later"
                )
            } else {
                "too many sessions are open; close some or try again later".into()
            };
            return Err(RpcError::new(RpcErrorCode::LimitReached, text));
        }
        let session = ClientSession::new(Arc::clone(&self.shared), transport, visitor, client);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        sessions.insert(number, Arc::clone(&session));
        let event = Event::SessionOpened { transport };
        (self.shared).observe_from(&event, &session.client_context.origin());
        Ok(session)
    }

    /// Enforces deadlines and ends idle sessions until the future is dropped.
    pub async fn run_sweeper(&self) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sweep(Instant::now());
        }
    }

    /// Ends everything that is past its deadline at `now`. Expired requests are answered and idle
    /// sessions are ended in separate tasks, so that a slow client delays no other client.
    pub fn sweep(&self, now: Instant) {
        let sessions: Vec<Arc<ClientSession>> = {
            let mut sessions = self.sessions.lock();
            sessions.retain(|_, session| !session.is_closed());
            sessions.values().cloned().collect()
        };
        // Not every release of a connection triggers a notification, so waiting requests are
        // checked here.
        for entry in &self.shared.upstreams.load().entries {
            entry.slots.free_idle_connections();
            if entry.starts_processes() {
                entry.slots.close_left(1);
            }
        }
        let selection = &self.shared.selection;
        if selection.update_pause(self.shared.recorder.now()) {
            self.report_pause();
        }
        let n_changes = selection.n_changes();
        let lists = selection.lists();
        let lists = lists.map(|lists| (lists.revision(), self.shared.recorder.now()));
        for session in sessions {
            if session.is_idle(now) {
                crate::proxy::log_spans::spawn(async move {
                    tracing::debug!("closing an idle session after its timeout");
                    session.close().await;
                });
                continue;
            }
            session.sweep(now);
            notify_forbid_rules_changed(&session);
            notify_selection_changed(&session, n_changes);
            if let Some((revision, by_clock)) = lists {
                notify_list_outdated(&session, revision, by_clock);
            }
        }
    }

    /// Shuts the proxy down. Refuses new sessions and requests, waits at most the drain timeout for
    /// requests in flight, and ends all sessions. The rest of the drain timeout is for closing
    /// connections, or [a minimum time](Self::time_to_close) if less is left. Both the server of a port
    /// and the program call it: each call returns when all sessions have ended.
    pub async fn shutdown(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        let limit = self.shared.limits().drain_timeout;
        let _ = self.stops_at.set(Instant::now() + limit); // Another call may have set it.
        // They stay known, so that another call waits for them, too.
        let sessions: Vec<Arc<ClientSession>> = self.sessions.lock().values().cloned().collect();
        join_all(sessions.iter().map(|session| async move {
            session.drain(limit).await;
            session.close_within(self.time_to_close()).await;
        }))
        .await;
        (self.sessions.lock()).retain(|_, session| !session.is_closed());
    }

    /// Returns the time that is left for closing connections during shutdown: the rest of the drain
    /// timeout, but at least [`CLOSE_WITHIN`].
    #[must_use]
    pub fn time_to_close(&self) -> Duration {
        let stops_at = self.stops_at.get();
        let left = stops_at.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(Instant::now())
        });
        left.max(CLOSE_WITHIN)
    }
}

/// Returns the number of the longest silent session if it counts as abandoned.
fn longest_abandoned<'a>(
    sessions: impl Iterator<Item = (&'a u64, &'a Arc<ClientSession>)>,
    idle_timeout: Duration,
) -> Option<u64> {
    let (now, limit) = (Instant::now(), ABANDONED_AFTER.min(idle_timeout));
    let abandoned = sessions.filter(|(_, session)| session.is_idle_for(limit, now));
    let longest = abandoned.max_by_key(|(_, session)| session.silent_for(now));
    longest.map(|(number, _)| *number)
}

/// Returns the own tools of the proxy, if they are enabled.
fn own_tools(parts: &ProxyParts) -> Option<Arc<OwnTools>> {
    let service = parts.search.clone()?;
    let tools = OwnTools::new(service, parts.tools.clone(), parts.unlisted_tools);
    tools.map(Arc::new)
}
