//! All sessions of the proxy: admission, deadlines, idleness, shutdown.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use arc_swap::ArcSwap;
use futures_util::future::join_all;
use riglm_domain::naming::Naming;
use riglm_domain::principal::Principal;
use riglm_domain::protocol::Transport;
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::tool_approval::ToolApproval;
use riglm_ports::downstream::ClientLink;
use riglm_ports::observer::{Event, EventOrigin, Limit, Observer};
use riglm_ports::tracer::Tracer;

use super::floods::Floods;
use super::relay::list_memory::ListMemory;
use super::search_tool::{MetaTools, Offers, SearchTool};
use super::session::ClientSession;
use super::shared::{RequestPlaces, Shared, stopping};
use super::united::directory::Directories;
use super::upstream_set::{Upstream, UpstreamSet, UpstreamState};
use super::visitor::Visitor;
use crate::approvals::{ApprovalError, Wanted};
use crate::filtering::ListFilter;
use crate::intent::Intents;
use crate::learning::NextTools;
use crate::limits::Limits;
use crate::long_work::LongWork;
use crate::names::quoted;
use crate::recommend::Recommender;
use crate::safeguards::Safeguards;
use crate::search::ToolSearch;
use crate::tracking::Recorder;
use crate::work_sessions::WorkSessions;

/// How often deadlines and idle sessions are looked at.
const SWEEP_EVERY: Duration = Duration::from_millis(250);

/// The time for which a session has been silent and unconnected before it is ended for a new one, where there
/// is no place: more than three times the interval at which open streams show that their client is
/// there.
const ABANDONED_AFTER: Duration = Duration::from_mins(1);

/// The time that connections have to be closed when the proxy ends and the drain limit is over: a
/// process whose input is closed is asked to terminate within that.
pub const CLOSE_WITHIN: Duration = Duration::from_secs(3);

/// What a proxy is made of.
#[derive(Debug)]
pub struct ProxyParts {
    /// The upstreams, in the order in which they are presented.
    pub upstreams: Vec<Upstream>,
    /// How their names are kept apart.
    pub naming: Naming,
    /// Records what happens.
    pub recorder: Arc<Recorder>,
    /// Chooses the tools that lists show.
    pub filter: ListFilter,
    /// The limits that hold.
    pub limits: Limits,
    /// Finds tools for clients, where they may search.
    pub search: Option<Arc<ToolSearch>>,
    /// Recommends tools; `None` where that is not wanted.
    pub recommender: Option<Arc<Recommender>>,
    /// Hold calls back, or tell models something; `None` where that is not wanted.
    pub safeguards: Option<Arc<Safeguards>>,
    /// What sessions are doing, in words; `None` where nobody wants to know.
    pub intents: Option<Arc<Intents>>,
    /// Predicts what sessions need next; told of each call. `None` where nothing is learned.
    pub next_tools: Option<Arc<NextTools>>,
    /// Finds the work session of each request. `None` where they are not derived.
    pub work_sessions: Option<Arc<WorkSessions>>,
    /// Is told what happens.
    pub observer: Arc<dyn Observer>,
    /// The tools of the proxy itself. They are listed where lists may be made shorter.
    pub tools: MetaTools,
}

/// The proxy in front of its upstreams.
#[derive(Debug)]
pub struct Proxy {
    pub(super) shared: Arc<Shared>,
    pub(super) sessions: Mutex<HashMap<u64, Arc<ClientSession>>>,
    pub(super) floods: Floods,
    next: AtomicU64,
    /// When the drain limit is over, once the proxy ends.
    stops_at: OnceLock<Instant>,
}

impl Proxy {
    /// Returns a proxy made of these parts.
    #[must_use]
    pub fn new(parts: ProxyParts) -> Self {
        Self::traced(parts, None)
    }

    /// Returns a proxy made of these parts that tells `tracer` of the way of each request, where there
    /// is one.
    #[must_use]
    pub fn traced(parts: ProxyParts, tracer: Option<Arc<dyn Tracer>>) -> Self {
        let search_tool = search_tool(&parts);
        let shared = Shared {
            upstreams: ArcSwap::from_pointee(UpstreamSet::new(
                parts.upstreams,
                &UpstreamSet::default(),
                &parts.observer,
            )),
            naming: parts.naming,
            recorder: parts.recorder,
            filter: parts.filter,
            limits: ArcSwap::from_pointee(parts.limits),
            search_tool,
            recommender: parts.recommender,
            safeguards: parts.safeguards,
            intents: parts.intents,
            next_tools: parts.next_tools,
            work_sessions: parts.work_sessions,
            tracer,
            lists: ListMemory::default(),
            long_work: LongWork::default(),
            offers: Offers::default(),
            directories: Directories::default(),
            observer: parts.observer,
            places: RequestPlaces::default(),
            has_several_principals: AtomicBool::new(false),
            is_stopping: AtomicBool::new(false),
        };
        Self {
            shared: Arc::new(shared),
            sessions: Mutex::default(),
            floods: Floods::default(),
            next: AtomicU64::new(0),
            stops_at: OnceLock::new(),
        }
    }

    /// Takes over a changed set of upstreams in all sessions. Upstreams whose name and fingerprint
    /// are as before keep their connections; clients are told that lists may have changed.
    pub fn replace_upstreams(&self, upstreams: Vec<Upstream>) {
        // Held while the set is changed, so that no session begins with the old one and is missed.
        let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        let old = self.shared.upstreams.load();
        let set = Arc::new(UpstreamSet::new(upstreams, &old, &self.shared.observer));
        self.shared.upstreams.store(Arc::clone(&set));
        for session in sessions.values() {
            session.reconfigure(&set);
        }
    }

    /// Returns how each upstream is doing.
    #[must_use]
    pub fn upstream_states(&self) -> Vec<UpstreamState> {
        let set = self.shared.upstreams.load();
        set.entries.iter().map(|entry| entry.state()).collect()
    }

    /// Returns the limits that hold.
    #[must_use]
    pub fn limits(&self) -> Arc<Limits> {
        self.shared.limits.load_full()
    }

    /// Has so many principals be expected. Where there are several, none of them may have more than
    /// its share of the places that they have in common; until this is called there is one.
    pub fn expect_principals(&self, n_principals: usize) {
        let has_several = n_principals > 1;
        let known = &self.shared.has_several_principals;
        known.store(has_several, Ordering::Relaxed);
        self.shared.share_work();
    }

    /// Has other limits hold from now on. What is in flight, and sessions beyond a number that is
    /// smaller now, may go on.
    pub fn set_limits(&self, limits: Limits) {
        self.shared.limits.store(Arc::new(limits));
        self.shared.share_work();
    }

    /// Tells clients to ask for their lists of tools again, since another choice by names holds.
    /// Clients of servers that never promised to tell of changes are not told.
    pub fn tell_of_other_lists(&self) {
        let sessions: Vec<Arc<ClientSession>> = {
            let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.values().cloned().collect()
        };
        for session in sessions {
            session.tell_of_other_choice();
        }
    }

    /// Approves changes of tools of an upstream that are held back, and tells clients to ask for their
    /// lists again. Returns what was approved.
    ///
    /// # Errors
    ///
    /// Returns [`ApprovalError`]; nothing is approved then.
    pub async fn approve(
        &self,
        upstream: &str,
        wanted: &Wanted,
        actor: &Principal,
    ) -> Result<Vec<ToolApproval>, ApprovalError> {
        let set = self.shared.upstreams.load_full();
        let mut entries = set.entries.iter();
        let entry = entries.find(|entry| entry.name().as_str() == upstream);
        let entry = entry.ok_or_else(|| ApprovalError::UnknownUpstream(quoted(upstream)))?;
        let Some(approvals) = &entry.upstream.approvals else {
            return match &wanted.tool {
                Some(tool) => Err(ApprovalError::NothingHeld(quoted(tool.as_str()))),
                None => Ok(Vec::new()),
            };
        };
        let approved = approvals.approve(entry.name(), wanted, actor).await?;
        if !approved.is_empty() {
            let sessions: Vec<Arc<ClientSession>> = {
                let sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
                sessions.values().cloned().collect()
            };
            for session in sessions {
                session.tell_of_approval(entry.name());
            }
        }
        Ok(approved)
    }

    /// Returns how many sessions there are.
    #[must_use]
    pub fn n_sessions(&self) -> usize {
        self.sessions
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .len()
    }

    /// Returns whether the proxy is going to end, and takes nothing new.
    #[must_use]
    pub fn is_stopping(&self) -> bool {
        self.shared.is_stopping.load(Ordering::Acquire)
    }

    /// Returns how many requests of clients wait for their answer.
    #[must_use]
    pub fn n_in_flight(&self) -> usize {
        self.shared.places.n_awaited()
    }

    /// Admits a client. Its messages go to the session, what it is sent goes to `client`. Where there is
    /// no place, the session of the principal that was abandoned first is ended.
    ///
    /// # Errors
    ///
    /// Returns [`RpcErrorCode::LimitReached`] when there are as many sessions as there may be, in
    /// all or of this principal, and none of the principal's is abandoned.
    pub fn accept(
        &self,
        transport: Transport,
        visitor: impl Into<Visitor>,
        client: Arc<dyn ClientLink>,
    ) -> Result<Arc<ClientSession>, RpcError> {
        let visitor = visitor.into();
        let limits = self.shared.limits();
        let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
        // Under the lock: what is not seen stopping here is seen by who ends all sessions.
        if self.shared.is_stopping.load(Ordering::Acquire) {
            return Err(stopping());
        }
        let bounds = self.shared.bounds(limits.sessions);
        let of_one = bounds.of_one.min(limits.sessions_per_principal);
        // Ended sessions leave at the next sweep; they must not keep others out until then.
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
            tracing::debug!("ending an abandoned session, since a new one needs its place");
            tokio::spawn(async move { abandoned.close().await });
        } else if is_full {
            let origin = EventOrigin::of_principal(&visitor.principal);
            let event = Event::LimitReached(Limit::Sessions);
            self.shared.observe_from(&event, &origin);
            let text = if has_share && of_one < limits.sessions {
                format!(
                    "too many sessions of this principal are open: it may have {of_one} at once; \
                     end some or try again later"
                )
            } else {
                "too many sessions are open; end some or try again later".into()
            };
            return Err(RpcError::new(RpcErrorCode::LimitReached, text));
        }
        let session = ClientSession::new(Arc::clone(&self.shared), transport, visitor, client);
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        sessions.insert(number, Arc::clone(&session));
        let event = Event::SessionOpened { transport };
        self.shared.observe_from(&event, &session.caller.origin());
        Ok(session)
    }

    /// Enforces deadlines and ends idle sessions until it is dropped.
    pub async fn keep_watch(&self) {
        let mut tick = tokio::time::interval(SWEEP_EVERY);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            self.sweep(Instant::now());
        }
    }

    /// Ends what is past its deadline at `now`. Deadlines are answered and idle sessions are
    /// ended by tasks of their own, so that one slow client delays nobody else.
    pub fn sweep(&self, now: Instant) {
        let sessions: Vec<Arc<ClientSession>> = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.retain(|_, session| !session.is_closed());
            sessions.values().cloned().collect()
        };
        // Not everything that brings a connection out of use is told of.
        for entry in &self.shared.upstreams.load().entries {
            entry.slots.make_places();
        }
        let lists = self.shared.filter.lists();
        let lists = lists.map(|lists| (lists.revision(), self.shared.recorder.now()));
        for session in sessions {
            if session.is_idle(now) {
                tokio::spawn(async move {
                    tracing::debug!("ending a session that was idle too long");
                    session.close().await;
                });
                continue;
            }
            session.sweep(now);
            session.tell_of_other_rules();
            if let Some((revision, by_clock)) = lists {
                session.tell_of_other_list(revision, by_clock);
            }
        }
    }

    /// Takes no new sessions and requests, lets those in flight end, for as long as the drain limit
    /// allows, and ends all sessions. What the drain leaves of that limit is for closing connections,
    /// and [a little time](Self::time_to_close) if it leaves less.
    pub async fn shutdown(&self) {
        self.shared.is_stopping.store(true, Ordering::Release);
        let limit = self.shared.limits().drain_timeout;
        let _ = self.stops_at.set(Instant::now() + limit); // Another call may have set it.
        let sessions: Vec<Arc<ClientSession>> = {
            let mut sessions = self.sessions.lock().unwrap_or_else(PoisonError::into_inner);
            sessions.drain().map(|(_, session)| session).collect()
        };
        join_all(sessions.iter().map(|session| async move {
            session.drain(limit).await;
            session.close_within(self.time_to_close()).await;
        }))
        .await;
    }

    /// Returns the time that is left for closing connections, once the proxy ends: as long as the
    /// drain limit lasts, and a little longer if it is over.
    #[must_use]
    pub fn time_to_close(&self) -> Duration {
        let stops_at = self.stops_at.get();
        let left = stops_at.map_or(Duration::ZERO, |at| {
            at.saturating_duration_since(Instant::now())
        });
        left.max(CLOSE_WITHIN)
    }
}

/// Returns the number of the session that has been silent for longest, if it counts as abandoned.
fn longest_abandoned<'a>(
    sessions: impl Iterator<Item = (&'a u64, &'a Arc<ClientSession>)>,
    idle_timeout: Duration,
) -> Option<u64> {
    let (now, limit) = (Instant::now(), ABANDONED_AFTER.min(idle_timeout));
    let abandoned = sessions.filter(|(_, session)| session.is_idle_for(limit, now));
    let longest = abandoned.max_by_key(|(_, session)| session.silent_for(now));
    longest.map(|(number, _)| *number)
}

/// Returns the tools of the proxy itself, if there are to be some: where lists pass whole there is
/// nothing that they leave out.
fn search_tool(parts: &ProxyParts) -> Option<Arc<SearchTool>> {
    let service = parts.search.clone().filter(|_| parts.filter.is_active())?;
    SearchTool::new(service, parts.tools.clone()).map(Arc::new)
}
