use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use riglm_domain::feedback::Feedback;
use riglm_domain::id::{ContextId, InvocationId, WorkSessionId};
use riglm_domain::invocation::InvocationSummary;
use riglm_domain::usage::{ToolCooccurrence, ToolFrequency, ToolSessions, ToolTransition};
use riglm_ports::analytics::InvocationFilter;
use riglm_ports::fake::ManualClock;
use tokio::sync::Semaphore;

use super::*;

/// Counts how often it is read, lets nothing through before it is told to, and can be down.
#[derive(Debug)]
struct Gate {
    n_reads: AtomicUsize,
    /// How often it was read what one principal did.
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
impl FeedbackRepository for Gate {
    async fn feedback(
        &self,
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
        _after: Option<InvocationId>,
        _limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        Ok(Vec::new())
    }

    async fn recent_calls(&self, _limit: u32) -> Result<Vec<PastCall>, StoreError> {
        Ok(Vec::new())
    }

    async fn calls_after(
        &self,
        _contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        Ok(Vec::new())
    }

    async fn calls_of_work(
        &self,
        _work_session: WorkSessionId,
        _limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
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

/// Returns what is known over a store that lets this many through at a time.
fn known_over(n_through: usize) -> (Arc<KnownTools>, Arc<Gate>, Arc<ManualClock>) {
    let store = Arc::new(Gate {
        n_reads: AtomicUsize::new(0),
        n_own: AtomicUsize::new(0),
        is_down: AtomicBool::new(false),
        open: Semaphore::new(n_through),
    });
    let clock = Arc::new(ManualClock::default());
    let known = KnownTools::new(Some(store.clone()), clock.clone(), 30.0);
    (Arc::new(known), store, clock)
}

#[tokio::test(start_paused = true)]
async fn all_that_ask_wait_for_the_same_read_however_long_it_takes() {
    let (known, store, clock) = known_over(0);
    let alice = Principal::named("alice");
    for _ in 0..3 {
        let (first, second) = tokio::join!(known.of(&alice), known.of(&alice));
        assert!(!first.1 && !second.1);
    }
    clock.advance(Duration::from_mins(2));
    assert!(!known.of(&alice).await.1);
    assert_eq!(store.n_reads(), 1);
    let bob = Principal::named("bob");
    assert!(!known.of(&bob).await.1);
    assert_eq!(store.n_reads(), 1, "one at a time is read for all");
    store.open.add_permits(1);
    assert!(known.of(&alice).await.1 && known.of(&bob).await.1);
    // What took so long is from two minutes ago: it was read anew for the other one, and is as of now.
    assert!(known.of(&alice).await.1 && known.of(&alice).await.1);
    assert_eq!(store.n_reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn all_who_wait_are_told_by_one_try_that_it_failed() {
    let (known, store, clock) = known_over(0);
    let all = ["alice", "bob", "carol"].map(Principal::named);
    for principal in &all {
        assert!(!known.of(principal).await.1);
    }
    store.set_down(true);
    clock.advance(Duration::from_secs(5));
    store.open.add_permits(1);
    for principal in &all {
        assert!(!known.of(principal).await.1);
    }
    assert_eq!(store.n_reads(), 1);
    store.set_down(false);
    clock.advance(Duration::from_mins(1));
    assert!(known.of(&all[2]).await.1);
    assert_eq!(store.n_reads(), 2);
}

#[tokio::test(start_paused = true)]
async fn what_is_the_same_for_everybody_is_read_once_a_minute() {
    let (known, store, clock) = known_over(1);
    let all = ["alice", "bob", "carol"].map(Principal::named);
    let n_own = || store.n_own.load(Ordering::Relaxed);
    for n in 1..=3 {
        for principal in &all {
            assert!(known.of(principal).await.1 && known.of(principal).await.1);
        }
        assert_eq!((store.n_reads(), n_own()), (n, 3 * n));
        clock.advance(Duration::from_mins(1));
    }
    // Nobody is told what is older than a minute, however late it was asked for.
    clock.advance(Duration::from_secs(1));
    assert!(known.of(&all[0]).await.1);
    clock.advance(Duration::from_secs(59));
    assert!(known.of(&all[1]).await.1);
    let n_before = store.n_reads();
    clock.advance(Duration::from_secs(1));
    assert!(known.of(&all[1]).await.1);
    assert_eq!(store.n_reads(), n_before + 1);
}

#[tokio::test(start_paused = true)]
async fn a_read_that_failed_is_tried_again_after_a_minute() {
    let (known, store, clock) = known_over(1);
    let alice = Principal::named("alice");
    store.set_down(true);
    for _ in 0..3 {
        assert!(!known.of(&alice).await.1);
    }
    store.set_down(false);
    clock.advance(Duration::from_secs(59));
    assert!(!known.of(&alice).await.1);
    assert_eq!(store.n_reads(), 1);
    clock.advance(Duration::from_secs(1));
    let (read, is_whole) = known.of(&alice).await;
    assert!(is_whole);
    store.set_down(true);
    clock.advance(Duration::from_mins(1));
    for _ in 0..3 {
        let (kept, is_whole) = known.of(&alice).await;
        assert!(Arc::ptr_eq(&kept, &read) && !is_whole);
    }
    assert_eq!(store.n_reads(), 3);
}

#[tokio::test(start_paused = true)]
async fn what_is_at_hand_is_not_waited_for() {
    let (known, store, clock) = known_over(1);
    let alice = Principal::named("alice");
    let read = known.at_hand(&alice).await;
    clock.advance(Duration::from_hours(1));
    assert!(Arc::ptr_eq(&known.at_hand(&alice).await, &read));
    assert_eq!(store.n_reads(), 1);
}
