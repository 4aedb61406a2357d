//! The configured upstreams, with the state that all sessions share about each of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::protocol::Era;
use riglm_ports::observer::{Event, Observer};
use riglm_ports::upstream::{UpstreamConnector, UpstreamError};
use serde::Deserialize;

use super::connection_permits::ConnectionPermits;
use super::health_checks::CheckPlan;
use super::known_servers::KnownServer;
use super::param_headers::ParamHeaders;
use super::tool_sets::{SeenToolSet, ToolSets};
use super::upstream_cache::UpstreamCache;
use super::upstream_session::connection::RETRY_LATER;
use crate::control::approvals::{Approvals, HeldChange};

/// The time after which a repeated error is logged as a warning again.
const LOG_AGAIN: Duration = Duration::from_mins(10);
/// The maximum number of different errors of one upstream that are remembered.
const MAX_LOGGED: usize = 32;
/// The time after which an available upstream counts as sound. Its next error is a warning again.
const SOUND_AFTER: Duration = Duration::from_mins(1);

/// One configured upstream.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Opens the connections.
    pub connector: Arc<dyn UpstreamConnector>,
    /// The options of its use.
    pub options: UpstreamOptions,
    /// Equal for equal configuration. [`Proxy::replace_upstreams`](super::Proxy::replace_upstreams)
    /// keeps an upstream whose fingerprint is unchanged.
    pub fingerprint: String,
    /// Equal for equal servers, in other processes with the same key too. What is remembered of
    /// another server does not count. Empty if nothing is remembered.
    pub server_fingerprint: String,
    /// The approvals of its tool changes; `None` if changes are not held back.
    pub approvals: Option<Arc<Approvals>>,
}

impl Upstream {
    /// Returns an upstream with default options.
    #[must_use]
    pub fn new(connector: Arc<dyn UpstreamConnector>) -> Self {
        Self {
            connector,
            options: UpstreamOptions::default(),
            fingerprint: String::new(),
            server_fingerprint: String::new(),
            approvals: None,
        }
    }
}

/// The options of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// The treatment of its list entries while it is down.
    pub unavailable: Unavailable,
    /// The idle timeout of the connection of a silent session. The connection is reopened on
    /// demand.
    pub idle_timeout: Duration,
    /// The maximum number of concurrent connections (each may be a process); `None` for no limit.
    pub max_connections: Option<usize>,
    /// Whether [`Proxy::check_upstreams`](super::Proxy::check_upstreams) checks it.
    pub health_check: bool,
    /// Whether a connection starts a process. What is known of such an upstream is answered without
    /// a connection.
    pub starts_processes: bool,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            unavailable: Unavailable::default(),
            idle_timeout: Duration::from_mins(5),
            max_connections: Some(128),
            health_check: true,
            starts_processes: false,
        }
    }
}

/// The treatment of list entries of an upstream that is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unavailable {
    /// The last known entries stay in lists, so that an outage changes no list.
    #[default]
    Keep,
    /// Entries are left out of lists.
    Hide,
    /// The last known entries stay in lists, marked as unavailable.
    List,
}

/// The state of an upstream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamState {
    /// Its configured name.
    pub name: UpstreamName,
    /// False after a failed attempt to connect, until an attempt succeeds.
    pub is_available: bool,
    /// Whether its first start is in progress, so that nothing is known of its availability yet.
    pub is_starting: bool,
    /// The reason why it is not available.
    pub reason: Option<String>,
    /// The kind of the reason, for readers without a token.
    pub kind: Option<String>,
    /// The number of open connections.
    pub n_connections: usize,
    /// The number of sessions that wait for a connection permit.
    pub n_waiting: usize,
    /// Whether a connection was ever requested.
    pub was_used: bool,
    /// The number of tool lists that were shown without the tools of this upstream, because it was
    /// starting or down.
    pub n_left_out: u64,
    /// The set of tools that it listed last; `None` until a list was seen completely.
    pub tool_set: Option<SeenToolSet>,
    /// The numbers of tools for clients of revisions with and without a handshake, if the server
    /// shows them other tools.
    pub tools_by_era: Option<(usize, usize)>,
    /// The tool changes that are held back.
    pub held: Vec<HeldChange>,
}

/// A configured upstream with its state.
#[derive(Debug)]
pub(super) struct UpstreamEntry {
    pub(super) upstream: Upstream,
    pub(super) catalog: UpstreamCache,
    pub(super) params: ParamHeaders,
    pub(super) slots: Arc<ConnectionPermits>,
    health: Mutex<UpstreamHealth>,
    /// Whether it has answered nothing since the last failed attempt, or since the start.
    is_unproven: AtomicBool,
    made: Instant,
    /// The time of the last answer in microseconds since `made`; zero before the first answer.
    answered_us: AtomicU64,
    /// The logged errors with the time of the last warning.
    logged: Mutex<HashMap<String, Instant>>,
    n_left_out: AtomicU64,
    observer: Arc<dyn Observer>,
    pub(super) tool_sets: ToolSets,
    pub(super) checks: CheckPlan,
    /// The time when somebody first waited for it to become known.
    awaited: OnceLock<Instant>,
}

#[derive(Clone, Debug, Default)]
struct UpstreamHealth {
    was_used: bool,
    /// The time since which it is available; `None` if it has not answered since its last failure.
    up_since: Option<Instant>,
    failure: Option<UpstreamError>,
    /// Whether its unavailability was logged as a warning.
    is_logged: bool,
    /// Whether a session met an error that may concern the upstream or only that session.
    is_doubted: bool,
}

impl UpstreamEntry {
    pub(super) fn new(upstream: Upstream, observer: Arc<dyn Observer>) -> Self {
        Self {
            upstream,
            catalog: UpstreamCache::default(),
            params: ParamHeaders::default(),
            slots: Arc::default(),
            health: Mutex::default(),
            is_unproven: AtomicBool::new(true),
            made: Instant::now(),
            answered_us: AtomicU64::new(0),
            logged: Mutex::default(),
            n_left_out: AtomicU64::new(0),
            observer,
            tool_sets: ToolSets::default(),
            checks: CheckPlan::default(),
            awaited: OnceLock::new(),
        }
    }

    /// Returns the era by which answers for a client are told apart; `None` if the server speaks one
    /// era only.
    pub(super) fn era_of(&self, client: Era) -> Option<Era> {
        self.tells_eras_apart().then_some(client)
    }

    /// Returns whether the server speaks a modern revision, and so maybe both eras.
    pub(super) fn tells_eras_apart(&self) -> bool {
        self.upstream.connector.speaks_modern() || self.catalog.tells_eras_apart()
    }

    /// Returns the server for the store of its answers.
    pub(super) fn known_server(&self) -> KnownServer<'_> {
        KnownServer {
            name: self.name(),
            fingerprint: &self.upstream.server_fingerprint,
            cache: &self.catalog,
        }
    }

    /// Returns the last known answer to a handshake or to discovery by clients of an era.
    pub(super) fn greeting(&self, client: Era) -> Option<Arc<str>> {
        self.catalog.greeting(self.era_of(client), client)
    }

    /// Returns whether a connection would start a process, so that sessions are answered from what is
    /// known. Definitions that may need an approval always come from the server.
    pub(super) fn starts_processes(&self) -> bool {
        self.upstream.options.starts_processes && self.upstream.approvals.is_none()
    }

    /// Returns the time that may still be spent on waiting for an answer that is not known: of
    /// `limit` from the first call on. So only the first clients wait.
    pub(super) fn wait_left(&self, limit: Duration) -> Duration {
        let since = self.awaited.get_or_init(Instant::now);
        limit.saturating_sub(since.elapsed())
    }

    /// Returns whether its first check is in progress or due, and no session has used it before.
    pub(super) fn is_starting(&self) -> bool {
        self.upstream.options.health_check
            && !self.checks.has_ended()
            && !self.health.lock().was_used
    }

    /// Waits at most `limit` for the end of the first check, if one is in progress or due.
    pub(super) async fn wait_for_check(&self, limit: Duration) {
        if self.is_starting() {
            // After the limit the upstream is still unknown.
            let _ = tokio::time::timeout(limit, self.checks.first_end()).await;
        }
    }

    pub(super) fn name(&self) -> &UpstreamName {
        self.upstream.connector.name()
    }

    /// Registers a connection that was opened and set up.
    pub(super) fn note_connected(&self) {
        self.note_answer();
        self.is_unproven.store(false, Ordering::Release);
        let mut health = self.health.lock();
        health.was_used = true;
        health.is_doubted = false;
        health.up_since.get_or_insert_with(Instant::now);
        if health.failure.take().is_some() {
            let name = self.name();
            // The level follows the level of the failure message. An unstable upstream must not
            // fill the log.
            if std::mem::take(&mut health.is_logged) {
                tracing::info!(upstream = %name, "upstream {name} is available again");
            } else {
                tracing::debug!(upstream = %name, "upstream {name} is available again");
            }
            drop(health);
            self.report_availability(true);
        }
    }

    /// Registers an answer over a connection that was set up before.
    pub(super) fn note_answered_request(&self) {
        self.note_answer();
        if self.is_unproven.load(Ordering::Acquire) {
            self.note_connected();
        }
    }

    fn note_answer(&self) {
        let since = u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX);
        // Zero means that it never answered.
        self.answered_us.store(since.max(1), Ordering::Release);
    }

    /// Returns whether any session got an answer since the given time.
    pub(super) fn has_answered_since(&self, since: Instant) -> bool {
        let answered = self.answered_us.load(Ordering::Acquire);
        answered > 0 && self.made + Duration::from_micros(answered) >= since
    }

    /// Registers that the handshake begun at `since` exceeded the time that sessions wait for it.
    /// If other sessions got answers in the meantime, the delay concerns that session only.
    pub(super) fn note_late(&self, since: Instant) {
        if !self.has_answered_since(since) {
            self.note_failure(&UpstreamError::Unreachable {
                reason: "no answer to the handshake yet",
            });
        }
    }

    /// Schedules a check that decides whether an error of a session concerns the upstream.
    pub(super) fn request_check(&self) {
        self.health.lock().is_doubted = true;
        self.checks.check_soon();
    }

    /// Registers the refused handshake of a session. The client itself may be the reason. If other
    /// sessions get answers, only a refused check makes the upstream unavailable.
    pub(super) fn note_refused_handshake(&self, error: &UpstreamError) {
        if self.health.lock().up_since.is_none() {
            return self.note_failure(error);
        }
        self.log("rejected a session", error);
        self.request_check();
    }

    /// Registers that the upstream had no capacity for a session. This is no sign of a failure.
    pub(super) fn note_no_capacity(&self, error: &UpstreamError) {
        self.log("has no capacity for a session", error);
    }

    /// Registers a failure to open or set up a connection.
    pub(super) fn note_failure(&self, error: &UpstreamError) {
        // A refused attempt during the back-off repeats an earlier failure.
        if *error
            == (UpstreamError::Unreachable {
                reason: RETRY_LATER,
            })
        {
            return;
        }
        if matches!(error, UpstreamError::Busy { .. }) {
            return self.note_no_capacity(error);
        }
        self.is_unproven.store(true, Ordering::Release);
        let was_available = {
            let mut health = self.health.lock();
            let up_since = health.up_since.take();
            if up_since.is_some_and(|since| since.elapsed() >= SOUND_AFTER) {
                self.logged.lock().clear();
            }
            health.was_used = true;
            health.is_doubted = false;
            health.is_logged |= self.log("is unavailable", error);
            health.failure.replace(error.clone()).is_none()
        };
        if was_available {
            self.report_availability(false);
        }
    }

    /// Registers a failed request. It counts as a failure of the upstream only if the upstream
    /// never answered.
    pub(super) fn note_request_failure(&self, error: &UpstreamError) {
        if self.is_unproven.load(Ordering::Acquire) {
            self.note_failure(error);
        } else {
            self.log("failed", error);
        }
    }

    /// Logs an error. It is a warning the first time and again after `LOG_AGAIN`, because every
    /// session and request may meet the same error. Returns whether it was logged as a warning.
    fn log(&self, what: &str, error: &UpstreamError) -> bool {
        let (name, text) = (self.name(), format!("{what}: {}", error.with_remedy()));
        let is_news = {
            let mut logged = self.logged.lock();
            if logged.len() >= MAX_LOGGED && !logged.contains_key(&text) {
                logged.clear();
            }
            let now = Instant::now();
            let last = logged.get(&text).copied();
            let is_news = last.is_none_or(|last| now.duration_since(last) >= LOG_AGAIN);
            if is_news {
                logged.insert(text.clone(), now);
            }
            is_news
        };
        if is_news {
            tracing::warn!(upstream = %name, "upstream {name} {text}");
        } else {
            tracing::debug!(upstream = %name, "upstream {name} {text}");
        }
        is_news
    }

    /// Counts a tool list that was shown without the tools of the upstream.
    pub(super) fn count_left_out(&self) {
        self.n_left_out.fetch_add(1, Ordering::Relaxed);
    }

    fn report_availability(&self, is_available: bool) {
        self.observer.observe(&Event::UpstreamChanged {
            upstream: self.name(),
            is_available,
        });
    }

    /// Returns the reason why the upstream is not available.
    pub(super) fn failure(&self) -> Option<UpstreamError> {
        self.health.lock().failure.clone()
    }

    /// Returns whether a check should connect to the upstream: its state is unknown and no session
    /// is connecting, or it failed last, or it is in doubt. A check never causes an idle connection
    /// to close.
    pub(super) fn wants_check(&self) -> bool {
        let options = &self.upstream.options;
        let n_taken = self.slots.n_taken();
        if !options.health_check || options.max_connections.is_some_and(|most| n_taken >= most) {
            return false;
        }
        let health = self.health.lock();
        let is_suspect = health.failure.is_some() || health.is_doubted;
        is_suspect || (!health.was_used && n_taken == 0)
    }

    pub(super) fn state(&self) -> UpstreamState {
        let health = self.health.lock().clone();
        UpstreamState {
            name: self.name().clone(),
            is_available: health.failure.is_none(),
            is_starting: self.is_starting(),
            reason: health.failure.as_ref().map(UpstreamError::with_remedy),
            kind: health.failure.as_ref().map(UpstreamError::public_text),
            n_connections: self.slots.n_taken(),
            n_waiting: self.slots.n_waiting(),
            was_used: health.was_used,
            n_left_out: self.n_left_out.load(Ordering::Relaxed),
            tool_set: self.tool_sets.last_set(),
            tools_by_era: self.catalog.tools_by_era(),
            held: (self.upstream.approvals.as_ref())
                .map_or_else(Vec::new, |approvals| approvals.pending_changes(self.name())),
        }
    }
}

#[derive(Debug, Default)]
pub(super) struct UpstreamSet {
    pub(super) entries: Vec<Arc<UpstreamEntry>>,
}

impl UpstreamSet {
    /// Returns a set of these upstreams. Keeps the state in `old` of upstreams with unchanged
    /// configuration.
    pub(super) fn new(upstreams: Vec<Upstream>, old: &Self, observer: &Arc<dyn Observer>) -> Self {
        let entries = upstreams
            .into_iter()
            .map(|upstream| {
                let same = old.entries.iter().find(|entry| {
                    entry.name() == upstream.connector.name()
                        && entry.upstream.fingerprint == upstream.fingerprint
                });
                let new = || Arc::new(UpstreamEntry::new(upstream, Arc::clone(observer)));
                same.map_or_else(new, Arc::clone)
            })
            .collect();
        Self { entries }
    }
}
