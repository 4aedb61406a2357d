//! Statistics of tools for the recommender, read from the store at intervals. The statistics of all
//! principals are shared, those of one principal are read separately.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::{
    CallOutcomes, PerformanceTable, Successions, ToolPerformance, Workflows, decayed_uses,
};
use riglm_domain::usage::ToolStatistics;
use riglm_domain::usage::invocation::{Outcome, PastCall, SessionKey};
use riglm_ports::analytics::{
    DiscoveryRepository, InvocationRepository, StoreError, UsageRepository,
};
use riglm_ports::clock::Clock;
use tokio::sync::watch;

use crate::learning::LearningIsolation;

/// Statistics are read again after this time, also after an error.
const REFRESH_INTERVAL: SignedDuration = SignedDuration::from_mins(1);
/// Boundaries of the age classes of calls, in days.
const AGE_CLASSES_DAYS: [u32; 6] = [1, 4, 16, 64, 256, 1_024];
/// Outcomes and latencies of calls older than this are not counted.
const COUNTED_DAYS: u32 = 90;
/// Maximum number of calls in which sequences are searched, newest first: of all principals, or of
/// each if they are isolated.
const MAX_CALLS: u32 = 10_000;
/// Maximum number of feedback entries, newest first, of all principals or of each.
const MAX_FEEDBACK: u32 = 20_000;
/// Maximum number of principals with cached statistics.
const MAX_PRINCIPALS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// Repositories of recorded data, all in one store.
pub trait RecommendStores: UsageRepository + InvocationRepository + DiscoveryRepository {}

impl<T: UsageRepository + InvocationRepository + DiscoveryRepository> RecommendStores for T {}

/// Statistics of tools for one principal.
#[derive(Debug, Default)]
pub(super) struct PrincipalStatistics {
    pub(super) standings: PerformanceTable,
    /// Pairs of successive calls.
    pub(super) successions: Arc<Successions>,
    /// Common sequences of calls in sessions.
    pub(super) workflows: Arc<Workflows>,
}

/// Statistics over all principals, or over one if principals are isolated from each other.
#[derive(Debug)]
struct SharedStatistics {
    of: BTreeMap<ToolRef, ToolPerformance>,
    successions: Arc<Successions>,
    workflows: Arc<Workflows>,
    read_at: Timestamp,
}

/// Result of the last attempts to read the shared statistics.
#[derive(Debug, Default)]
struct LastSharedRead {
    read: Option<Arc<SharedStatistics>>,
    failed_at: Option<Timestamp>,
}

/// Cache of statistics for recent principals.
#[derive(Debug)]
pub(super) struct StatisticsCache {
    store: Option<Arc<dyn RecommendStores>>,
    clock: Arc<dyn Clock>,
    half_life_days: f64,
    isolation: LearningIsolation,
    /// The shared statistics. The lock is held during a read, so that concurrent requests wait for
    /// it.
    general: tokio::sync::Mutex<LastSharedRead>,
    of: Mutex<LruCache<Principal, StatisticsEntry>>,
}

/// Cached statistics of one principal.
#[derive(Clone, Debug, Default)]
struct StatisticsEntry {
    /// The last result, or `None` before the first one.
    known: Option<Arc<PrincipalStatistics>>,
    /// Whether the last attempt succeeded.
    is_whole: bool,
    /// Start of the last attempt.
    tried_at: Option<Timestamp>,
    /// Closed at the end of the last attempt.
    reading: Option<watch::Receiver<()>>,
}

impl StatisticsCache {
    pub(super) fn new(
        store: Option<Arc<dyn RecommendStores>>,
        clock: Arc<dyn Clock>,
        half_life_days: f64,
    ) -> Self {
        Self {
            store,
            clock,
            half_life_days,
            isolation: LearningIsolation::Shared,
            general: tokio::sync::Mutex::default(),
            of: Mutex::new(LruCache::new(MAX_PRINCIPALS)),
        }
    }

    /// Sets whether the statistics of a principal follow from its own calls and ratings alone.
    pub(super) fn with_isolation(self, isolation: LearningIsolation) -> Self {
        Self { isolation, ..self }
    }

    /// Returns the statistics for a principal, and whether they are up to date. If the store fails,
    /// or does not answer within 250 ms, returns the previous statistics. Concurrent requests share
    /// one read.
    pub(super) async fn get(
        self: &Arc<Self>,
        principal: &Principal,
    ) -> (Arc<PrincipalStatistics>, bool) {
        const PATIENCE: Duration = Duration::from_millis(250);
        let Some(store) = &self.store else {
            return (Arc::default(), true);
        };
        if let Some(mut reading) = self.pending_read(store, principal) {
            // No value is ever sent: `changed` ends when the channel is closed. After a timeout,
            // the read continues in the background.
            let _ = tokio::time::timeout(PATIENCE, reading.changed()).await;
        }
        let entry = self.of.lock().get(principal).cloned().unwrap_or_default();
        (entry.known.unwrap_or_default(), entry.is_whole)
    }

    /// Returns the cached statistics for a principal at any age, without waiting. If there are
    /// none, does the same as [`Self::of`].
    pub(super) async fn cached_or_read(
        self: &Arc<Self>,
        principal: &Principal,
    ) -> Arc<PrincipalStatistics> {
        let entry = self.of.lock().get(principal).cloned().unwrap_or_default();
        if let Some(known) = entry.known {
            return known;
        }
        let (known, _) = self.get(principal).await;
        known
    }

    /// Returns the read to wait for: a running one, or a new one if the last attempt is old enough.
    /// Returns `None` if no read is necessary.
    fn pending_read(
        self: &Arc<Self>,
        store: &Arc<dyn RecommendStores>,
        principal: &Principal,
    ) -> Option<watch::Receiver<()>> {
        let now = self.clock.now();
        let mut of = self.of.lock();
        let entry = of.get_or_insert_mut(principal.clone(), StatisticsEntry::default);
        let is_open = |reading: &&watch::Receiver<()>| reading.has_changed().is_ok();
        if let Some(reading) = entry.reading.as_ref().filter(is_open) {
            return Some(reading.clone());
        }
        let is_new = |tried_at: Timestamp| now.duration_since(tried_at) < REFRESH_INTERVAL;
        if entry.tried_at.is_some_and(is_new) {
            return None;
        }
        let (going_on, reading) = watch::channel(());
        entry.is_whole = false;
        entry.tried_at = Some(now);
        entry.reading = Some(reading.clone());
        drop(of);
        let (known_tools, store, whose) = (Arc::clone(self), Arc::clone(store), principal.clone());
        tokio::spawn(async move {
            let read = known_tools.read(&*store, &whose, now).await;
            let failed = |error: &StoreError| {
                tracing::warn!("failed to read tool statistics: {error}");
            };
            let read = read.inspect_err(failed).ok().flatten();
            // The result is as old as its oldest part.
            let (read, read_at) = read.unzip();
            known_tools.store_result(whose, read, read_at.unwrap_or(now));
            // Closing the channel wakes the waiting requests.
            drop(going_on);
        });
        Some(reading)
    }

    /// Stores the result of a read, with the time of its data.
    fn store_result(
        &self,
        whose: Principal,
        read: Option<PrincipalStatistics>,
        tried_at: Timestamp,
    ) {
        let mut of = self.of.lock();
        let entry = of.get_or_insert_mut(whose, StatisticsEntry::default);
        entry.tried_at = Some(tried_at);
        entry.is_whole = read.is_some();
        if let Some(known) = read {
            entry.known = Some(Arc::new(known));
        }
    }

    /// Reads the statistics for a principal, with the time of the data. Returns `None` if the
    /// shared statistics cannot be read.
    async fn read(
        &self,
        store: &dyn RecommendStores,
        principal: &Principal,
        asked_at: Timestamp,
    ) -> Result<Option<(PrincipalStatistics, Timestamp)>, StoreError> {
        let general = match self.isolation {
            LearningIsolation::Shared => self.shared_statistics(store, asked_at).await?,
            LearningIsolation::PerPrincipal => {
                let (days, now) = (self.half_life_days, self.clock.now());
                let read = SharedStatistics::read(store, Some(principal), days, now).await?;
                Some(Arc::new(read))
            }
        };
        let Some(general) = general else {
            return Ok(None);
        };
        let mut of = general.of.clone();
        let counted = since(self.clock.now(), COUNTED_DAYS);
        for statistics in store.statistics(Some(principal), None, counted).await? {
            of.entry(statistics.tool.clone()).or_default().own = CallOutcomes::from(&statistics);
        }
        let known = PrincipalStatistics {
            standings: PerformanceTable::new(of),
            successions: Arc::clone(&general.successions),
            workflows: Arc::clone(&general.workflows),
        };
        Ok(Some((known, general.read_at)))
    }

    /// Returns the shared statistics. Returns `None` if a read that began after `asked_at` has
    /// failed, so that one failure answers all waiting requests.
    async fn shared_statistics(
        &self,
        store: &dyn RecommendStores,
        asked_at: Timestamp,
    ) -> Result<Option<Arc<SharedStatistics>>, StoreError> {
        let mut last = self.general.lock().await;
        let now = self.clock.now();
        let is_new = |general: &&Arc<SharedStatistics>| {
            now.duration_since(general.read_at) < REFRESH_INTERVAL
        };
        if let Some(general) = last.read.as_ref().filter(is_new) {
            return Ok(Some(Arc::clone(general)));
        }
        if last.failed_at.is_some_and(|failed_at| failed_at > asked_at) {
            return Ok(None);
        }
        let read = SharedStatistics::read(store, None, self.half_life_days, now).await;
        let general = read.inspect_err(|_| last.failed_at = Some(self.clock.now()))?;
        let general = Arc::new(general);
        last.read = Some(Arc::clone(&general));
        Ok(Some(general))
    }
}

impl SharedStatistics {
    /// Reads the statistics over all principals, or over the one of a scope.
    async fn read(
        store: &dyn RecommendStores,
        scope: Option<&Principal>,
        half_life_days: f64,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let mut of: BTreeMap<ToolRef, ToolPerformance> = BTreeMap::new();
        let mut uses: BTreeMap<ToolRef, Vec<(f64, u64)>> = BTreeMap::new();
        for days in AGE_CLASSES_DAYS {
            for tool in store.frequencies(scope, since(now, days)).await? {
                let known = uses.entry(tool.tool).or_default();
                known.push((f64::from(days), tool.n_calls));
            }
        }
        for (tool, n_since) in uses {
            of.entry(tool).or_default().uses = decayed_uses(&n_since, half_life_days);
        }
        let counted = since(now, COUNTED_DAYS);
        for statistics in store.statistics(scope, None, counted).await? {
            let standing = of.entry(statistics.tool.clone()).or_default();
            standing.endings = CallOutcomes::from(&statistics);
            standing.latency = latency(&statistics);
        }
        for feedback in store.feedback(scope, None, MAX_FEEDBACK).await? {
            of.entry(feedback.tool.clone()).or_default().rate(&feedback);
        }
        let transitions = store.transitions(scope, None).await?;
        let calls = store.recent_calls(scope, MAX_CALLS).await?;
        Ok(Self {
            of,
            successions: Arc::new(Successions::new(&transitions)),
            workflows: Arc::new(workflows(&calls)),
            read_at: now,
        })
    }
}

/// Returns the common sequences of calls. Refused calls are left out because they were not
/// executed. A further round of a call is not a call of its own.
fn workflows(calls: &[PastCall]) -> Workflows {
    let was_made =
        |call: &&PastCall| call.continues.is_none() && call.outcome != Some(Outcome::Refused);
    let calls: Vec<(SessionKey, ToolRef)> = (calls.iter().filter(was_made))
        .map(|call| (call.session_key(), call.tool_ref()))
        .collect();
    let mut of: BTreeMap<SessionKey, Vec<&ToolRef>> = BTreeMap::new();
    for (session, tool) in &calls {
        of.entry(*session).or_default().push(tool);
    }
    Workflows::of_sessions(of.into_values())
}

fn latency(statistics: &ToolStatistics) -> Option<(Duration, u64)> {
    let median = statistics.latency.quantile_us(0.5)?;
    Some((Duration::from_micros(median), statistics.latency.n_calls()))
}

fn since(now: Timestamp, days: u32) -> Timestamp {
    let back = SignedDuration::from_hours(24 * i64::from(days));
    now.checked_sub(back).unwrap_or(Timestamp::UNIX_EPOCH)
}

#[cfg(test)]
mod tests;
