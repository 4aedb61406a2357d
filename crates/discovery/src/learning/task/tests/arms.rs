//! Predictors of arms, which are trained together with the default one.

use riglm_domain::id::WorkSessionId;
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::usage::invocation::InvocationSummary;

use super::*;

/// A store that counts the reads of calls.
#[derive(Debug)]
pub(super) struct ReadCountingStore {
    pub(super) store: Arc<MemoryStore>,
    pub(super) n_pages: Arc<AtomicU64>,
    pub(super) n_rows: Arc<AtomicU64>,
}

#[async_trait]
impl InvocationRepository for ReadCountingStore {
    async fn invocations(
        &self,
        filter: &InvocationFilter,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        self.store.invocations(filter, limit).await
    }

    async fn calls_by_id(
        &self,
        ids: &[InvocationId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        self.store.calls_by_id(ids).await
    }

    async fn past_calls(
        &self,
        scope: Option<&Principal>,
        after: Option<InvocationId>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        self.n_pages.fetch_add(1, Ordering::SeqCst);
        let page = self.store.past_calls(scope, after, limit).await?;
        self.n_rows.fetch_add(page.len() as u64, Ordering::SeqCst);
        Ok(page)
    }

    async fn recent_calls(
        &self,
        scope: Option<&Principal>,
        limit: u32,
    ) -> Result<Vec<PastCall>, StoreError> {
        self.store.recent_calls(scope, limit).await
    }

    async fn call_before_newest(
        &self,
        scope: Option<&Principal>,
        n: u32,
    ) -> Result<Option<InvocationId>, StoreError> {
        self.store.call_before_newest(scope, n).await
    }

    async fn calls_after(
        &self,
        contexts: &[ContextId],
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        self.store.calls_after(contexts).await
    }

    async fn last_calls(&self, tools: &[ToolRef]) -> Result<Vec<(ToolRef, Timestamp)>, StoreError> {
        self.store.last_calls(tools).await
    }

    async fn calls_of_work(
        &self,
        work_session: WorkSessionId,
        limit: u32,
    ) -> Result<Vec<InvocationSummary>, StoreError> {
        self.store.calls_of_work(work_session, limit).await
    }

    async fn count(&self, filter: &InvocationFilter) -> Result<u64, StoreError> {
        self.store.count(filter).await
    }

    async fn exchanges(&self, session: SessionId, limit: u32) -> Result<Vec<Exchange>, StoreError> {
        self.store.exchanges(session, limit).await
    }
}

impl RunningTask {
    /// Returns the learned data of the predictors of arms.
    fn learned_of_arms(&self) -> Vec<Vec<u8>> {
        let of_arms = self.next.arm_learners().iter();
        let learned = of_arms.map(|of_arms| of_arms.learner.read().learned_bytes());
        learned.collect()
    }

    /// Returns the number of calls that each has learned from since the start.
    fn n_learned_of_arms(&self) -> Vec<u64> {
        let of_arms = self.next.arm_learners().iter();
        of_arms
            .map(|of_arms| of_arms.learner.read().n_learned())
            .collect()
    }

    fn are_arms_ready(&self) -> Vec<bool> {
        let of_arms = self.next.arm_learners().iter();
        of_arms.map(ArmLearner::is_ready).collect()
    }
}

const BOTH: [Expert; 2] = [Expert::Frequency, Expert::Recency];

#[tokio::test(start_paused = true)]
async fn predictors_of_arms_share_one_reading_of_the_calls() {
    let scene = TaskScene::new().await;
    for n in 0..5 {
        scene.calls(n, &["a", "b"].repeat(125)).await;
        scene.pass(Duration::from_mins(1)).await;
    }
    let read = async |of_arms: &[Expert]| {
        let before = scene.n_pages.load(Ordering::SeqCst);
        let running = scene.start_with(of_arms);
        scene.pass(Duration::from_secs(1)).await;
        let n_pages = scene.n_pages.load(Ordering::SeqCst) - before;
        assert_eq!(running.next.n_learned(), 1_250);
        (running, n_pages)
    };
    let (alone, n_alone) = read(&[]).await;
    let expected = alone.learned_bytes();
    alone.task.abort();
    let (beside, n_beside) = read(&BOTH).await;
    assert_eq!(n_beside, n_alone);
    assert_eq!(beside.n_learned_of_arms(), [1_250, 1_250]);
    // All count the same calls, even if they learn different things.
    assert!(beside.learned_bytes() == expected);
    assert!(
        beside
            .learned_of_arms()
            .iter()
            .all(|learned| *learned == expected)
    );
    assert_eq!(beside.are_arms_ready(), [true, true]);
    scene.calls(9, &["b"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(beside.n_learned_of_arms(), [1_251, 1_251]);
    beside.stop().await;
}

#[tokio::test(start_paused = true)]
async fn each_predictor_continues_from_its_own_snapshots() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 50]).await;
    let first = scene.start_with(&[Expert::Frequency]);
    scene.pass(A_WHILE).await;
    let learned = first.learned_of_arms();
    first.stop().await;
    for (model, version) in [("test", Some(1)), ("frequency", Some(1)), ("recency", None)] {
        let saved = scene.saved_of(model).await;
        assert_eq!(saved.map(|saved| saved.version), version, "{model}");
    }
    scene.pass(Duration::from_mins(1)).await;
    // A new predictor learns from the beginning, and takes over nothing from another one.
    let second = scene.start_with(&[Expert::Recency, Expert::Frequency]);
    scene.pass(A_WHILE).await;
    assert_eq!(second.next.n_learned(), 0);
    assert_eq!(second.n_learned_of_arms(), [50, 0]);
    assert!(second.learned_of_arms()[1] == learned[0]);
    assert_eq!(second.are_arms_ready(), [true, true]);
    scene.calls(2, &["b"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(second.n_learned_of_arms(), [51, 1]);
    second.stop().await;
    for (model, version) in [("test", 2), ("frequency", 2), ("recency", 1)] {
        let saved = scene.saved_of(model).await;
        assert_eq!(saved.map(|saved| saved.version), Some(version), "{model}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_late_predictor_does_not_delay_others() {
    let scene = TaskScene::new().await;
    // More than one part of the reading, all of it within seconds.
    for n in 0..24 {
        scene.calls(n, &["a"; 250]).await;
    }
    scene.pass(Duration::from_mins(1)).await;
    scene.calls(50, &["a"]).await;
    let first = scene.start();
    scene.pass(A_WHILE).await;
    first.stop().await;
    let second = scene.start_with(&[Expert::Frequency]);
    let at = async |seconds: u64| {
        scene.pass(Duration::from_secs(seconds)).await;
        let state = (second.next.is_ready(), second.are_arms_ready()[0]);
        (state, second.n_learned_of_arms()[0])
    };
    assert_eq!(at(1).await, ((true, false), 0));
    assert_eq!(at(2).await, ((true, false), 5_000));
    // The default predictor learns from new calls at once, the predictor of the arm later.
    scene.calls(60, &["b"]).await;
    assert_eq!(at(2).await, ((true, true), 6_002));
    assert_eq!(second.next.n_learned(), 1);
    scene.calls(61, &["b"]).await;
    assert_eq!(at(3).await, ((true, true), 6_003));
    assert_eq!(second.next.n_learned(), 2);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn learning_on_request_includes_the_predictors_of_arms() {
    let scene = TaskScene::new().await;
    for n in 0..24 {
        scene.calls(n, &["a"; 250]).await;
    }
    scene.pass(Duration::from_mins(1)).await;
    scene.calls(50, &["a"]).await;
    let first = scene.start();
    scene.pass(A_WHILE).await;
    first.stop().await;
    let (next, mut task) = scene.task_with(&[Expert::Frequency]);
    task.learn_all().await.unwrap();
    let of_arm = &next.arm_learners()[0];
    assert_eq!(
        (of_arm.is_ready(), of_arm.learner.read().n_learned()),
        (true, 6_001)
    );
}

#[tokio::test(start_paused = true)]
async fn predictors_of_arms_forget_and_relearn_with_the_others() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 9]).await;
    scene.calls(2, &["b"; 3]).await;
    let running = scene.start_with(&BOTH);
    scene.pass(A_WHILE).await;
    assert_eq!(running.n_learned_of_arms(), [12, 12]);
    scene.remove("client1").await;
    scene.pass(REMOVAL_CHECK_INTERVAL * 2).await;
    assert_eq!(running.n_learned_of_arms(), [3, 3]);
    let saved = scene.saved_of("recency").await.unwrap();
    assert_eq!(saved.version, 1);
    scene.calls(3, &["a"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(running.n_learned_of_arms(), [4, 4]);
    let begun_at = |running: &RunningTask| {
        let of_arms = running.next.arm_learners().iter();
        let begun = of_arms.map(|of_arms| of_arms.learner.read().origin().begun_at);
        begun.collect::<Vec<_>>()
    };
    let before = begun_at(&running);
    scene.pass(RELEARN_INTERVAL).await;
    let after = begun_at(&running);
    assert!(
        before
            .iter()
            .zip(&after)
            .all(|(before, after)| before < after)
    );
    assert_eq!(running.n_learned_of_arms(), [4, 4]);
    running.stop().await;
}
