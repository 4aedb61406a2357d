//! The configured upstreams, and what all sessions know of each of them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riglm_domain::id::UpstreamName;
use riglm_ports::observer::{Event, Observer};
use riglm_ports::upstream::{UpstreamConnector, UpstreamError};
use serde::Deserialize;

use super::checking::CheckPlan;
use super::known_params::KnownParams;
use super::relay::connection::LATER;
use super::slots::Slots;
use super::tool_sets::{SeenToolSet, ToolSets};
use super::united::catalog::Catalog;
use crate::approvals::{Approvals, HeldChange};

/// After how long a trouble that goes on is a warning again.
const LOG_AGAIN: Duration = Duration::from_mins(10);
/// How many different troubles of one upstream are remembered.
const MAX_LOGGED: usize = 32;
/// An upstream that was available for so long was sound: its next trouble is a warning again.
const SOUND_AFTER: Duration = Duration::from_mins(1);

/// One configured upstream.
#[derive(Clone, Debug)]
pub struct Upstream {
    /// Makes the connections.
    pub connector: Arc<dyn UpstreamConnector>,
    /// How it is used.
    pub options: UpstreamOptions,
    /// Equal for equal configuration: what did not change is left alone by
    /// [`Proxy::replace_upstreams`](super::Proxy::replace_upstreams).
    pub fingerprint: String,
    /// Decides how its tools are shown, where changes of them are held back.
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
            approvals: None,
        }
    }
}

/// How an upstream is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// What becomes of its entries in lists while it is down.
    pub unavailable: Unavailable,
    /// How long the connection of a silent session stays open. It is made again when it is needed.
    pub idle_timeout: Duration,
    /// The most connections at once, where each is a process of its own; `None` for any number.
    pub max_connections: Option<usize>,
    /// Whether [`Proxy::check_upstreams`](super::Proxy::check_upstreams) checks it.
    pub health_check: bool,
}

impl Default for UpstreamOptions {
    fn default() -> Self {
        Self {
            unavailable: Unavailable::Hide,
            idle_timeout: Duration::from_mins(5),
            max_connections: Some(128),
            health_check: true,
        }
    }
}

/// What becomes of the entries of an upstream that is down.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unavailable {
    /// They are left out of lists.
    #[default]
    Hide,
    /// The last known ones stay listed, marked as unavailable.
    List,
}

/// How an upstream is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UpstreamState {
    /// Its configured name.
    pub name: UpstreamName,
    /// False after a failed attempt to connect, until one succeeds.
    pub is_available: bool,
    /// Why it is not available.
    pub reason: Option<String>,
    /// The kind of that reason, for readers without a token.
    pub kind: Option<String>,
    /// How many connections are open.
    pub n_connections: usize,
    /// How many wait for a place among them.
    pub n_waiting: usize,
    /// Whether a connection was ever asked for.
    pub was_used: bool,
    /// How often a client was shown a list of tools without those of this upstream, because it was
    /// starting or down.
    pub n_left_out: u64,
    /// The tools that it listed last; `None` as long as no list of it was seen to its end.
    pub tool_set: Option<SeenToolSet>,
    /// The changes of its tools that are held back.
    pub held: Vec<HeldChange>,
}

/// An upstream with what was learned about it.
#[derive(Debug)]
pub(super) struct UpstreamEntry {
    pub(super) upstream: Upstream,
    pub(super) catalog: Catalog,
    pub(super) params: KnownParams,
    pub(super) slots: Arc<Slots>,
    health: Mutex<Health>,
    /// It answered nothing since the last attempt to reach it failed, or since the start.
    is_unproven: AtomicBool,
    made: Instant,
    /// When it answered last, in microseconds since `made`; zero before it ever did.
    answered_us: AtomicU64,
    /// When which trouble with it was logged.
    logged: Mutex<HashMap<String, Instant>>,
    n_left_out: AtomicU64,
    observer: Arc<dyn Observer>,
    pub(super) tool_sets: ToolSets,
    pub(super) checks: CheckPlan,
}

#[derive(Clone, Debug, Default)]
struct Health {
    was_used: bool,
    /// Since when it is available; `None` as long as it did not answer since it failed last.
    up_since: Option<Instant>,
    failure: Option<UpstreamError>,
    /// The log says that it is unavailable.
    is_logged: bool,
    /// A session met trouble that may be the state of the upstream, or concern that session alone.
    is_doubted: bool,
}

impl UpstreamEntry {
    pub(super) fn new(upstream: Upstream, observer: Arc<dyn Observer>) -> Self {
        Self {
            upstream,
            catalog: Catalog::default(),
            params: KnownParams::default(),
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
        }
    }

    /// Returns the configured name.
    pub(super) fn name(&self) -> &UpstreamName {
        self.upstream.connector.name()
    }

    /// Notes that a connection was made and set up.
    pub(super) fn succeeded(&self) {
        self.note_answer();
        self.is_unproven.store(false, Ordering::Release);
        let mut health = self.health();
        health.was_used = true;
        health.is_doubted = false;
        health.up_since.get_or_insert_with(Instant::now);
        if health.failure.take().is_some() {
            let name = self.name();
            // As loud as the news that it is not: one that comes and goes must not fill the log.
            if std::mem::take(&mut health.is_logged) {
                tracing::info!(upstream = %name, "upstream {name} is available again");
            } else {
                tracing::debug!(upstream = %name, "upstream {name} is available again");
            }
            drop(health);
            self.tell(true);
        }
    }

    /// Notes that the upstream answered a request over a connection that was set up before.
    pub(super) fn heard(&self) {
        self.note_answer();
        if self.is_unproven.load(Ordering::Acquire) {
            self.succeeded();
        }
    }

    fn note_answer(&self) {
        let since = u64::try_from(self.made.elapsed().as_micros()).unwrap_or(u64::MAX);
        self.answered_us.store(since.max(1), Ordering::Release);
    }

    /// Returns whether anybody got an answer since a moment.
    pub(super) fn has_answered_since(&self, since: Instant) -> bool {
        let answered = self.answered_us.load(Ordering::Acquire);
        answered > 0 && self.made + Duration::from_micros(answered) >= since
    }

    /// Notes that somebody has waited in vain for the answer to a handshake for as long as sessions
    /// wait for it, since `since`. Where others got answers meanwhile, that is the matter of who waits.
    pub(super) fn is_late(&self, since: Instant) {
        if !self.has_answered_since(since) {
            self.failed(&UpstreamError::Unreachable {
                reason: "it has not answered the handshake yet",
            });
        }
    }

    /// Has a check find out whether what a session met is the state of the upstream.
    pub(super) fn doubt(&self) {
        self.health().is_doubted = true;
        self.checks.hasten();
    }

    /// Notes that the handshake of a session was refused. That may be for what its client said: where
    /// others are answered, a check has to be refused too.
    pub(super) fn refused(&self, error: &UpstreamError) {
        if self.health().up_since.is_none() {
            return self.failed(error);
        }
        self.log("refused a session", error);
        self.doubt();
    }

    /// Notes that there was no room for a session, which says nothing of the upstream.
    pub(super) fn had_no_room(&self, error: &UpstreamError) {
        self.log("did not serve a session", error);
    }

    /// Notes that a connection could not be made or set up.
    pub(super) fn failed(&self, error: &UpstreamError) {
        if *error == (UpstreamError::Unreachable { reason: LATER }) {
            return;
        }
        if matches!(error, UpstreamError::Busy { .. }) {
            return self.had_no_room(error);
        }
        self.is_unproven.store(true, Ordering::Release);
        let was_available = {
            let mut health = self.health();
            let up_since = health.up_since.take();
            if up_since.is_some_and(|since| since.elapsed() >= SOUND_AFTER) {
                self.logged().clear();
            }
            health.was_used = true;
            health.is_doubted = false;
            health.is_logged |= self.log("is unavailable", error);
            health.failure.replace(error.clone()).is_none()
        };
        if was_available {
            self.tell(false);
        }
    }

    /// Notes that a request failed. That says nothing of whether others would, unless the upstream
    /// never said anything.
    pub(super) fn troubled(&self, error: &UpstreamError) {
        if self.is_unproven.load(Ordering::Acquire) {
            self.failed(error);
        } else {
            self.log("failed", error);
        }
    }

    /// Logs a trouble, as a warning the first time and again when it has not been one for a while:
    /// every session and every request meets it again. Returns whether it was a warning.
    fn log(&self, what: &str, error: &UpstreamError) -> bool {
        let (name, text) = (self.name(), format!("{what}: {}", error.with_remedy()));
        let is_news = {
            let mut logged = self.logged();
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

    fn health(&self) -> MutexGuard<'_, Health> {
        self.health.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn logged(&self) -> MutexGuard<'_, HashMap<String, Instant>> {
        self.logged.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a client was shown a list of tools without those of the upstream.
    pub(super) fn was_left_out(&self) {
        self.n_left_out.fetch_add(1, Ordering::Relaxed);
    }

    fn tell(&self, is_available: bool) {
        self.observer.observe(&Event::UpstreamChanged {
            upstream: self.name(),
            is_available,
        });
    }

    /// Returns why the upstream is not available, if it is not.
    pub(super) fn failure(&self) -> Option<UpstreamError> {
        self.health().failure.clone()
    }

    /// Returns whether a check is to find out if it answers: nobody knows and no session is connecting
    /// to it, it did not the last time, or that is in doubt. A check has no connection make place.
    pub(super) fn wants_check(&self) -> bool {
        let options = &self.upstream.options;
        let n_taken = self.slots.n_taken();
        if !options.health_check || options.max_connections.is_some_and(|most| n_taken >= most) {
            return false;
        }
        let health = self.health();
        let is_suspect = health.failure.is_some() || health.is_doubted;
        is_suspect || (!health.was_used && n_taken == 0)
    }

    /// Returns how the upstream is doing.
    pub(super) fn state(&self) -> UpstreamState {
        let health = self.health().clone();
        UpstreamState {
            name: self.name().clone(),
            is_available: health.failure.is_none(),
            reason: health.failure.as_ref().map(UpstreamError::with_remedy),
            kind: health.failure.as_ref().map(UpstreamError::kind_with_remedy),
            n_connections: self.slots.n_taken(),
            n_waiting: self.slots.n_waiting(),
            was_used: health.was_used,
            n_left_out: self.n_left_out.load(Ordering::Relaxed),
            tool_set: self.tool_sets.seen(),
            held: (self.upstream.approvals.as_ref())
                .map_or_else(Vec::new, |approvals| approvals.held(self.name())),
        }
    }
}

/// The upstreams in their order.
#[derive(Debug, Default)]
pub(super) struct UpstreamSet {
    pub(super) entries: Vec<Arc<UpstreamEntry>>,
}

impl UpstreamSet {
    /// Returns a set of these upstreams. What `old` has learned of one that is configured as
    /// before is kept.
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
