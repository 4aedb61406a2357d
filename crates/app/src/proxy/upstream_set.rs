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
    /// What kind of reason that is, for readers who need not be known.
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
    /// It said nothing since the last attempt to reach it failed, or since the start.
    is_unproven: AtomicBool,
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
    /// It answered a handshake since it failed last.
    was_up: bool,
    failure: Option<UpstreamError>,
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
        self.is_unproven.store(false, Ordering::Release);
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.was_used = true;
        health.was_up = true;
        if health.failure.take().is_some() {
            let name = self.name();
            tracing::info!(upstream = %name, "upstream {name} is available again");
            drop(health);
            self.logged().clear();
            self.tell(true);
        }
    }

    /// Notes that the upstream said something.
    pub(super) fn heard(&self) {
        if self.is_unproven.load(Ordering::Acquire) {
            self.succeeded();
        }
    }

    /// Notes that the upstream has not answered a handshake for as long as sessions wait for it,
    /// unless it ever answered one: then it may be the session alone that waits.
    pub(super) fn is_late(&self) {
        let was_up = {
            let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
            health.was_up
        };
        if !was_up {
            self.failed(&UpstreamError::Unreachable {
                reason: "it has not answered the handshake yet",
            });
        }
    }

    /// Notes that a connection could not be made or set up.
    pub(super) fn failed(&self, error: &UpstreamError) {
        if *error == (UpstreamError::Unreachable { reason: LATER }) {
            return;
        }
        self.is_unproven.store(true, Ordering::Release);
        let mut health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.was_used = true;
        health.was_up = false;
        let was_available = health.failure.replace(error.clone()).is_none();
        drop(health);
        self.log("is unavailable", error);
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
    /// every session and every request meets it again.
    fn log(&self, what: &str, error: &UpstreamError) {
        let (name, text) = (self.name(), error.with_remedy());
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
            tracing::warn!(upstream = %name, "upstream {name} {what}: {text}");
        } else {
            tracing::debug!(upstream = %name, "upstream {name} {what}: {text}");
        }
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
        let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
        health.failure.clone()
    }

    /// Returns whether nobody knows if it answers, or it did not, and no session is connecting to it.
    pub(super) fn wants_check(&self) -> bool {
        let (was_used, is_down) = {
            let health = self.health.lock().unwrap_or_else(PoisonError::into_inner);
            (health.was_used, health.failure.is_some())
        };
        let is_wanted = self.upstream.options.health_check && (!was_used || is_down);
        is_wanted && self.slots.n_taken() == 0
    }

    /// Returns how the upstream is doing.
    pub(super) fn state(&self) -> UpstreamState {
        let health = self
            .health
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
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
