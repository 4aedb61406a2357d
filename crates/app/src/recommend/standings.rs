//! How tools did so far, read from the store now and then: what is the same for everybody once for all,
//! and for each principal what is its own.

use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use riglm_domain::invocation::{CallSession, Outcome, PastCall};
use riglm_domain::principal::Principal;
use riglm_domain::recommender::{
    Endings, Standings, Successions, ToolStanding, Workflows, decayed,
};
use riglm_domain::tool::ToolRef;
use riglm_domain::usage::ToolStatistics;
use riglm_ports::analytics::{
    FeedbackRepository, InvocationRepository, StoreError, UsageRepository,
};
use riglm_ports::clock::Clock;
use tokio::sync::watch;

/// After this time what is known is read anew, or tried to be once more.
const READ_ANEW_AFTER: SignedDuration = SignedDuration::from_mins(1);
/// The ages in days between which uses are told apart.
const AGES: [u32; 6] = [1, 4, 16, 64, 256, 1_024];
/// How far back it is counted how calls ended and how long they took, in days.
const COUNTED_DAYS: u32 = 90;
/// How many of the newest calls are looked at for sequences.
const MAX_CALLS: u32 = 10_000;
/// How many of the newest pieces of feedback are looked at.
const MAX_FEEDBACK: u32 = 20_000;
/// How many principals are known at a time.
const MAX_PRINCIPALS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(255);

/// What was recorded. One store is all of them.
pub trait RecommendStores: UsageRepository + InvocationRepository + FeedbackRepository {}

impl<T: UsageRepository + InvocationRepository + FeedbackRepository> RecommendStores for T {}

/// What is known of tools for one principal.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// How they did.
    pub(super) standings: Standings,
    /// Which followed which.
    pub(super) successions: Arc<Successions>,
    /// Which sequences of calls sessions had in common.
    pub(super) workflows: Arc<Workflows>,
}

/// What is known of tools for everybody.
#[derive(Debug)]
struct General {
    of: BTreeMap<ToolRef, ToolStanding>,
    successions: Arc<Successions>,
    workflows: Arc<Workflows>,
    read_at: Timestamp,
}

/// What the last tries to read that came to.
#[derive(Debug, Default)]
struct LastGeneral {
    read: Option<Arc<General>>,
    failed_at: Option<Timestamp>,
}

/// What is known of tools, for those who asked lately.
#[derive(Debug)]
pub(super) struct KnownTools {
    store: Option<Arc<dyn RecommendStores>>,
    clock: Arc<dyn Clock>,
    half_life_days: f64,
    /// What was read last for everybody; who reads it anew has the others wait.
    general: tokio::sync::Mutex<LastGeneral>,
    of: Mutex<LruCache<Principal, Entry>>,
}

/// What is known for one principal.
#[derive(Clone, Debug, Default)]
struct Entry {
    /// What was read last; `None` as long as nothing was.
    known: Option<Arc<Known>>,
    /// Whether that is what the last try to read came to.
    is_whole: bool,
    /// When the last try began.
    tried_at: Option<Timestamp>,
    /// Is closed when the last try is over.
    reading: Option<watch::Receiver<()>>,
}

impl KnownTools {
    pub(super) fn new(
        store: Option<Arc<dyn RecommendStores>>,
        clock: Arc<dyn Clock>,
        half_life_days: f64,
    ) -> Self {
        Self {
            store,
            clock,
            half_life_days,
            general: tokio::sync::Mutex::default(),
            of: Mutex::new(LruCache::new(MAX_PRINCIPALS)),
        }
    }

    /// Returns what is known for a principal, and whether that is all there is: a store that does
    /// not answer within a quarter of a second, or fails, leaves what was known before. All that ask
    /// at once wait for the same read.
    pub(super) async fn of(self: &Arc<Self>, principal: &Principal) -> (Arc<Known>, bool) {
        const PATIENCE: Duration = Duration::from_millis(250);
        let Some(store) = &self.store else {
            return (Arc::default(), true);
        };
        if let Some(mut reading) = self.reading(store, principal) {
            // Nothing is ever sent: it changes when it is closed. Later is not too late.
            let _ = tokio::time::timeout(PATIENCE, reading.changed()).await;
        }
        let entry = self.lock().get(principal).cloned().unwrap_or_default();
        (entry.known.unwrap_or_default(), entry.is_whole)
    }

    /// Returns what was read last for a principal, however long ago, without waiting; where nothing is
    /// remembered, what [`Self::of`] says.
    pub(super) async fn at_hand(self: &Arc<Self>, principal: &Principal) -> Arc<Known> {
        let entry = self.lock().get(principal).cloned().unwrap_or_default();
        if let Some(known) = entry.known {
            return known;
        }
        let (known, _) = self.of(principal).await;
        known
    }

    /// Returns the read to wait for: the one that goes on, or one that begins now since the last try is
    /// too long ago. `None` where it is not.
    fn reading(
        self: &Arc<Self>,
        store: &Arc<dyn RecommendStores>,
        principal: &Principal,
    ) -> Option<watch::Receiver<()>> {
        let now = self.clock.now();
        let mut of = self.lock();
        let entry = of.get_or_insert_mut(principal.clone(), Entry::default);
        let is_open = |reading: &&watch::Receiver<()>| reading.has_changed().is_ok();
        if let Some(reading) = entry.reading.as_ref().filter(is_open) {
            return Some(reading.clone());
        }
        let is_new = |tried_at: Timestamp| now.duration_since(tried_at) < READ_ANEW_AFTER;
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
                tracing::warn!("how tools did so far cannot be read: {error}");
            };
            let read = read.inspect_err(failed).ok().flatten();
            // It is as old as the oldest part of it.
            let (read, read_at) = read.unzip();
            known_tools.note(whose, read, read_at.unwrap_or(now));
            drop(going_on);
        });
        Some(reading)
    }

    /// Notes what a try to read came to, and as of when that is.
    fn note(&self, whose: Principal, read: Option<Known>, tried_at: Timestamp) {
        let mut of = self.lock();
        let entry = of.get_or_insert_mut(whose, Entry::default);
        entry.tried_at = Some(tried_at);
        entry.is_whole = read.is_some();
        if let Some(known) = read {
            entry.known = Some(Arc::new(known));
        }
    }

    /// Returns what is known for a principal, and as of when; `None` where what is known for everybody
    /// cannot be read.
    async fn read(
        &self,
        store: &dyn RecommendStores,
        principal: &Principal,
        asked_at: Timestamp,
    ) -> Result<Option<(Known, Timestamp)>, StoreError> {
        let Some(general) = self.general(store, asked_at).await? else {
            return Ok(None);
        };
        let mut of = general.of.clone();
        let counted = since(self.clock.now(), COUNTED_DAYS);
        for statistics in store.statistics(Some(principal), None, counted).await? {
            of.entry(statistics.tool.clone()).or_default().own = Endings::from(&statistics);
        }
        let known = Known {
            standings: Standings::new(of),
            successions: Arc::clone(&general.successions),
            workflows: Arc::clone(&general.workflows),
        };
        Ok(Some((known, general.read_at)))
    }

    /// Returns what is known for everybody; `None` where it was tried to read it since it was asked
    /// for, and it could not be: all who wait are told by one try.
    async fn general(
        &self,
        store: &dyn RecommendStores,
        asked_at: Timestamp,
    ) -> Result<Option<Arc<General>>, StoreError> {
        let mut last = self.general.lock().await;
        let now = self.clock.now();
        let is_new =
            |general: &&Arc<General>| now.duration_since(general.read_at) < READ_ANEW_AFTER;
        if let Some(general) = last.read.as_ref().filter(is_new) {
            return Ok(Some(Arc::clone(general)));
        }
        if last.failed_at.is_some_and(|failed_at| failed_at > asked_at) {
            return Ok(None);
        }
        let read = General::read(store, self.half_life_days, now).await;
        let general = read.inspect_err(|_| last.failed_at = Some(self.clock.now()))?;
        let general = Arc::new(general);
        last.read = Some(Arc::clone(&general));
        Ok(Some(general))
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<Principal, Entry>> {
        self.of.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl General {
    async fn read(
        store: &dyn RecommendStores,
        half_life_days: f64,
        now: Timestamp,
    ) -> Result<Self, StoreError> {
        let mut of: BTreeMap<ToolRef, ToolStanding> = BTreeMap::new();
        let mut uses: BTreeMap<ToolRef, Vec<(f64, u64)>> = BTreeMap::new();
        for days in AGES {
            for tool in store.frequencies(None, since(now, days)).await? {
                let known = uses.entry(tool.tool).or_default();
                known.push((f64::from(days), tool.n_calls));
            }
        }
        for (tool, n_since) in uses {
            of.entry(tool).or_default().uses = decayed(&n_since, half_life_days);
        }
        let counted = since(now, COUNTED_DAYS);
        for statistics in store.statistics(None, None, counted).await? {
            let standing = of.entry(statistics.tool.clone()).or_default();
            standing.endings = Endings::from(&statistics);
            standing.latency = latency(&statistics);
        }
        for feedback in store.feedback(None, MAX_FEEDBACK).await? {
            of.entry(feedback.tool.clone()).or_default().rate(&feedback);
        }
        let transitions = store.transitions(None, None).await?;
        let calls = store.recent_calls(MAX_CALLS).await?;
        Ok(Self {
            of,
            successions: Arc::new(Successions::new(&transitions)),
            workflows: Arc::new(workflows(&calls)),
            read_at: now,
        })
    }
}

/// Returns the sequences of calls, oldest first. What was held back was not done, and a further round
/// is part of a call that is there.
fn workflows(calls: &[PastCall]) -> Workflows {
    let was_made =
        |call: &&PastCall| call.continues.is_none() && call.outcome != Some(Outcome::Refused);
    let calls: Vec<(CallSession, ToolRef)> = (calls.iter().filter(was_made))
        .map(|call| (call.belongs_to(), call.tool_ref()))
        .collect();
    let mut of: BTreeMap<CallSession, Vec<&ToolRef>> = BTreeMap::new();
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
