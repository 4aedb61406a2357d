use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use riglm_domain::id::{
    ContextId, FeedbackId, InvocationId, RecommendationId, SessionId, WorkSessionId,
};
use riglm_domain::intent::context::Context;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::usage::feedback::{Feedback, Verdict};
use riglm_domain::usage::invocation::InvocationSummary;
use riglm_domain::usage::record::Record;
use riglm_domain::usage::{ToolCooccurrence, ToolFrequency, ToolSessions, ToolTransition};
use riglm_ports::analytics::{InvocationFilter, RecordSink as _};
use riglm_ports::contract::scene::{call_of, feedback};
use riglm_ports::fake::{ManualClock, MemoryStore};
use tokio::sync::Semaphore;

use super::*;

/// A store that counts reads, blocks them until it gets permits, and can be switched off.
#[derive(Debug)]
struct Gate {
    n_reads: AtomicUsize,
    /// Number of reads of one principal's statistics.
    n_own: AtomicUsize,
    is_down: AtomicBool,
    open: Semaphore,
}

impl Gate {
    fn n_reads(&self) -> usize {
        self.n_reads.load(Ordering::Relaxed)
    }

    fn set_down(&self, is_down: bool) {
        self.is_down.store(is_down, Ordering::Relaxed);
    }
}

#[async_trait]
impl DiscoveryRepository for Gate {
    async fn searches(&self, _: Option<SessionId>, _: u32) -> Result<Vec<Search>, StoreError> {
        Ok(Vec::new())
    }

    async fn contexts(&self, _: Option<SessionId>, _: u32) -> Result<Vec<Context>, StoreError> {
        Ok(Vec::new())
    }

    async fn contexts_of(&self, _: &Principal, _: u32) -> Result<Vec<Context>, StoreError> {
        Ok(Vec::new())
    }

    async fn contexts_with(&self, _: &[ContextId]) -> Result<Vec<Context>, StoreError> {
        Ok(Vec::new())
    }

    async fn recommendation(
        &self,
        _: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError> {
        Ok(None)
    }

    async fn recommendations(&self, _: u32) -> Result<Vec<Recommendation>, StoreError> {
        Ok(Vec::new())
    }

    async fn feedback(
        &self,
        _scope: Option<&Principal>,
        _tool: Option<&ToolRef>,
        _limit: u32,
    ) -> Result<Vec<Feedback>, StoreError> {
        self.n_reads.fetch_add(1, Ordering::Relaxed);
        let _through = self.open.acquire().await.unwrap();
        if self.is_down.load(Ordering::Relaxed) {
            return Err(StoreError::Failed {
                operation: "read feedback",
                source: "down".into(),
            });
        }
        Ok(Vec::new())
    }
}

#[async_trait]
impl InvocationRepository for Gate {
    async fn invocations(
        &self,
        _filter: &InvocationFilter,
        _limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(Vec::new())
    }

    async fn calls_by_id(
        &self,
        _ids: &[InvocationId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(Vec::new())
    }

    async fn past_calls(
        &self,
        _scope: Option<&Principal>,
        _after: Option<InvocationId>,
        _limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        Ok(Vec::new())
    }

    async fn recent_calls(
        &self,
        _scope: Option<&Principal>,
        _limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        Ok(Vec::new())
    }

    async fn call_before_newest(
        &self,
        _scope: Option<&Principal>,
        _n: u32,
    ) -> Result<Option<InvocationId>, StoreError> {
        Ok(None)
    }

    async fn calls_after(
        &self,
        _contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(Vec::new())
    }

    async fn last_calls(
        &self,
        _tools: &[ToolRef],
    ) -> Result<Vec<(ToolRef, Timestamp)>, StoreError> {
        Ok(Vec::new())
    }

    async fn calls_of_work(
        &self,
        _work_session: WorkSessionId,
        _limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(Vec::new())
    }

    async fn exchanges(
        &self,
        _session: SessionId,
        _limit: u32,
    ) -> Result<Vec<Exchange>, StoreError> {
        Ok(Vec::new())
    }

    async fn count(&self, _filter: &InvocationFilter) -> Result<u64, StoreError> {
        Ok(0)
    }
}

#[async_trait]
impl UsageRepository for Gate {
    async fn frequencies(
        &self,
        _scope: Option<&Principal>,
        _since: Timestamp,
    ) -> Result<Vec<ToolFrequency>, StoreError> {
        Ok(Vec::new())
    }

    async fn sessions_using(
        &self,
        _scope: Option<&Principal>,
        _tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolSessions>, StoreError> {
        Ok(Vec::new())
    }

    async fn cooccurrences(
        &self,
        _scope: Option<&Principal>,
        _tools: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolCooccurrence>, StoreError> {
        Ok(Vec::new())
    }

    async fn transitions(
        &self,
        _scope: Option<&Principal>,
        _from: Option<&[ToolRef]>,
    ) -> Result<Vec<ToolTransition>, StoreError> {
        Ok(Vec::new())
    }

    async fn statistics(
        &self,
        scope: Option<&Principal>,
        _tools: Option<&[ToolRef]>,
        _since: Timestamp,
    ) -> Result<Vec<ToolStatistics>, StoreError> {
        self.n_own
            .fetch_add(usize::from(scope.is_some()), Ordering::Relaxed);
        Ok(Vec::new())
    }
}

/// Returns a cache over a store that admits this many reads at a time.
fn cache_over(n_through: usize) -> (Arc<StatisticsCache>, Arc<Gate>, Arc<ManualClock>) {
    let store = Arc::new(Gate {
        n_reads: AtomicUsize::new(0),
        n_own: AtomicUsize::new(0),
        is_down: AtomicBool::new(false),
        open: Semaphore::new(n_through),
    });
    let clock = Arc::new(ManualClock::default());
    let known = StatisticsCache::new(Some(store.clone()), clock.clone(), 30.0);
    (Arc::new(known), store, clock)
}

/// Returns the statistics of bob, who made few calls and ratings, before very many of alice.
async fn statistics_of_bob(isolation: LearningIsolation, n_of_alice: u32) -> String {
    let (bob, alice) = (Principal::from_name("bob"), Principal::from_name("alice"));
    let clock = Arc::new(ManualClock::default());
    let now = clock.now();
    let id = |n: u32| {
        let mut id = [0; 10];
        id[..4].copy_from_slice(&n.to_be_bytes());
        id
    };
    let calls_of = |principal: &Principal, n: u32, names: [&str; 2]| {
        let session = SessionId::new(now, id(n / 2));
        let mut call = call_of(session, 0, names[usize::from(n % 2 == 1)]);
        call.id = InvocationId::new(now, id(n));
        call.principal = principal.clone();
        (call.started_at, call.continues, call.work_session) = (now, None, None);
        Record::CallOpened(call)
    };
    let rating_of = |principal: &Principal, n: u32| {
        Record::FeedbackGiven(Feedback {
            id: FeedbackId::new(now, id(n)),
            principal: principal.clone(),
            verdict: Verdict::Helpful,
            given_at: now,
            ..feedback(SessionId::new(now, id(n)), 0, "a")
        })
    };
    let mut records: Vec<Record> = Vec::new();
    for n in 0..8 {
        records.extend([calls_of(&bob, n, ["a", "b"]), rating_of(&bob, n)]);
    }
    for n in 8..8 + n_of_alice {
        records.push(calls_of(&alice, n, ["c", "d"]));
        // Twice as many ratings are read.
        records.extend([rating_of(&alice, 2 * n), rating_of(&alice, 2 * n + 1)]);
    }
    let store = Arc::new(MemoryStore::default());
    store.apply(&records).await.unwrap();
    let cache = StatisticsCache::new(Some(store), clock, 30.0).with_isolation(isolation);
    let (known, is_whole) = Arc::new(cache).get(&bob).await;
    assert!(is_whole);
    format!("{known:?}")
}

#[tokio::test]
async fn isolated_principals_have_a_whole_window_each() {
    let isolated = LearningIsolation::PerPrincipal;
    let alone = statistics_of_bob(isolated, 0).await;
    assert_eq!(statistics_of_bob(isolated, MAX_CALLS).await, alone);
    let shared = LearningIsolation::Shared;
    let alone = statistics_of_bob(shared, 0).await;
    assert_ne!(statistics_of_bob(shared, MAX_CALLS).await, alone);
}

#[tokio::test(start_paused = true)]
async fn concurrent_requests_wait_for_one_slow_read() {
    let (known, store, clock) = cache_over(0);
    let alice = Principal::from_name("alice");
    for _ in 0..3 {
        let (first, second) = tokio::join!(known.get(&alice), known.get(&alice));
        assert!(!first.1 && !second.1);
    }
    clock.advance(Duration::from_mins(2));
    assert!(!known.get(&alice).await.1);
    assert_eq!(store.n_reads(), 1);
    let bob = Principal::from_name("bob");
    assert!(!known.get(&bob).await.1);
    assert_eq!(store.n_reads(), 1, "one at a time is read for all");
    store.open.add_permits(1);
    assert!(known.get(&alice).await.1 && known.get(&bob).await.1);
    // The data of the slow read are two minutes old. The other principal caused a new read, so its
    // data are up to date.
    assert!(known.get(&alice).await.1 && known.get(&alice).await.1);
    assert_eq!(store.n_reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_answers_all_waiting_requests() {
    let (known, store, clock) = cache_over(0);
    let all = ["alice", "bob", "carol"].map(Principal::from_name);
    for principal in &all {
        assert!(!known.get(principal).await.1);
    }
    store.set_down(true);
    clock.advance(Duration::from_secs(5));
    store.open.add_permits(1);
    for principal in &all {
        assert!(!known.get(principal).await.1);
    }
    assert_eq!(store.n_reads(), 1);
    store.set_down(false);
    clock.advance(Duration::from_mins(1));
    assert!(known.get(&all[2]).await.1);
    assert_eq!(store.n_reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn shared_data_are_read_once_a_minute() {
    let (known, store, clock) = cache_over(1);
    let all = ["alice", "bob", "carol"].map(Principal::from_name);
    let n_own = || store.n_own.load(Ordering::Relaxed);
    for n in 1..=3 {
        for principal in &all {
            assert!(known.get(principal).await.1 && known.get(principal).await.1);
        }
        assert_eq!((store.n_reads(), n_own()), (n, 3 * n));
        clock.advance(Duration::from_mins(1));
    }
    // Data older than a minute are read again, also for a late request.
    clock.advance(Duration::from_secs(1));
    assert!(known.get(&all[0]).await.1);
    clock.advance(Duration::from_secs(59));
    assert!(known.get(&all[1]).await.1);
    let n_before = store.n_reads();
    clock.advance(Duration::from_secs(1));
    assert!(known.get(&all[1]).await.1);
    assert_eq!(store.n_reads(), n_before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_failed_read_is_retried_after_a_minute() {
    let (known, store, clock) = cache_over(1);
    let alice = Principal::from_name("alice");
    store.set_down(true);
    for _ in 0..3 {
        assert!(!known.get(&alice).await.1);
    }
    store.set_down(false);
    clock.advance(Duration::from_secs(59));
    assert!(!known.get(&alice).await.1);
    assert_eq!(store.n_reads(), 1);
    clock.advance(Duration::from_secs(1));
    let (read, is_whole) = known.get(&alice).await;
    assert!(is_whole);
    store.set_down(true);
    clock.advance(Duration::from_mins(1));
    for _ in 0..3 {
        let (kept, is_whole) = known.get(&alice).await;
        assert!(Arc::ptr_eq(&kept, &read) && !is_whole);
    }
    assert_eq!(store.n_reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn cached_data_are_returned_without_waiting() {
    let (known, store, clock) = cache_over(1);
    let alice = Principal::from_name("alice");
    let read = known.cached_or_read(&alice).await;
    clock.advance(Duration::from_hours(1));
    assert!(Arc::ptr_eq(&known.cached_or_read(&alice).await, &read));
    assert_eq!(store.n_reads(), 1);
}
