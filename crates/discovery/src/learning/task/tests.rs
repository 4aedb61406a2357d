use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, RecommendationId, SessionId};
use riglm_domain::intent::context::Context;
use riglm_domain::prediction::{
    ConfidenceBands, ConfidenceMeasure, Engine, Expert, ExpertSet, PredictionMethod, PredictorSet,
};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::usage::feedback::Feedback;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::learned_state::Snapshot;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{ClientData as _, ClientSelector, RecordSink as _};
use riglm_ports::contract::scene::{call_of, end, hash, page, run, session};
use riglm_ports::fake::{FailingPredictor, ManualClock, MemoryStore};
use tokio::task::JoinHandle;

use super::*;
use crate::learning::{ArmPredictor, LearningPace, NextToolsOptions};

mod arms;
mod principals;

struct TaskScene {
    store: Arc<MemoryStore>,
    clock: Arc<ManualClock>,
    is_failing: Arc<AtomicBool>,
    is_away: Arc<AtomicBool>,
    /// Counts the pages of calls that were read.
    n_pages: Arc<AtomicU64>,
    /// Counts the calls in these pages.
    n_rows: Arc<AtomicU64>,
}

/// A store that can be unavailable.
#[derive(Debug)]
struct UnsteadyStore {
    store: Arc<MemoryStore>,
    is_away: Arc<AtomicBool>,
}

#[async_trait]
impl ChangeFeed for UnsteadyStore {
    async fn revisions(&self) -> Result<[u64; Topic::ALL.len()], StoreError> {
        if self.is_away.load(Ordering::SeqCst) {
            return Err(unreadable());
        }
        self.store.revisions().await
    }
}

#[async_trait]
impl DiscoveryRepository for UnsteadyStore {
    async fn searches(&self, _: Option<SessionId>, _: u32) -> Result<Vec<Search>, StoreError> {
        Err(unreadable())
    }

    async fn recommendation(
        &self,
        _: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError> {
        Err(unreadable())
    }

    async fn recommendations(&self, _: u32) -> Result<Vec<Recommendation>, StoreError> {
        Err(unreadable())
    }

    async fn feedback(
        &self,
        _: Option<&Principal>,
        _: Option<&ToolRef>,
        _: u32,
    ) -> Result<Vec<Feedback>, StoreError> {
        Err(unreadable())
    }

    async fn contexts(&self, _: Option<SessionId>, _: u32) -> Result<Vec<Context>, StoreError> {
        Err(unreadable())
    }

    async fn contexts_of(&self, _: &Principal, _: u32) -> Result<Vec<Context>, StoreError> {
        Err(unreadable())
    }

    async fn contexts_with(&self, _: &[ContextId]) -> Result<Vec<Context>, StoreError> {
        Err(unreadable())
    }
}

fn unreadable() -> StoreError {
    StoreError::Corrupt {
        table: "the table",
        reason: "the test says so".into(),
    }
}

struct RunningTask {
    next: Arc<NextTools>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

impl TaskScene {
    async fn new() -> Self {
        let scene = Self {
            store: Arc::default(),
            clock: Arc::default(),
            is_failing: Arc::default(),
            is_away: Arc::default(),
            n_pages: Arc::default(),
            n_rows: Arc::default(),
        };
        let seen_at = scene.clock.now();
        let listing = page("list", &["a", "b"]);
        scene.apply(&[Record::ToolsSeen { listing, seen_at }]).await;
        scene
    }

    async fn apply(&self, records: &[Record]) {
        self.store.apply(records).await.unwrap();
    }

    /// Records calls of a session by a client, at the current time.
    async fn calls(&self, n: u8, names: &[&str]) {
        self.calls_of("alice", n, names).await;
    }

    /// Records calls of a session of a principal, at the current time.
    async fn calls_of(&self, principal: &str, n: u8, names: &[&str]) {
        let principal = Principal::from_name(principal);
        let mut row = session(run(1), n);
        row.principal = principal.clone();
        row.client_info.name = format!("client{n}");
        row.client = hash(&row.client_info.name);
        row.id = SessionId::new(self.clock.now(), [n; 10]);
        let mut records = vec![Record::SessionOpened(row.clone())];
        for (number, name) in (0..).zip(names) {
            let at = self.clock.now();
            let mut made = call_of(row.id, number, name);
            made.id = InvocationId::new(at, [0, 0, 0, n, number, 0, 0, 0, 0, 0]);
            (made.started_at, made.continues, made.work_session) = (at, None, None);
            made.context = None;
            made.principal = principal.clone();
            records.push(Record::CallOpened(made.clone()));
            records.push(Record::CallClosed(end(&made, Outcome::Ok)));
        }
        self.apply(&records).await;
    }

    fn start(&self) -> RunningTask {
        self.start_with(&[])
    }

    /// Starts a task that also trains predictors of arms.
    fn start_with(&self, of_arms: &[Expert]) -> RunningTask {
        let (next, task) = self.task_with(of_arms);
        let stop = CancellationToken::new();
        let task = tokio::spawn(task.run(stop.clone()));
        RunningTask { next, stop, task }
    }

    fn task(&self) -> (Arc<NextTools>, LearningTask) {
        self.task_with(&[])
    }

    fn task_with(&self, of_arms: &[Expert]) -> (Arc<NextTools>, LearningTask) {
        self.task_of(of_arms, None)
    }

    /// Creates a task with predictors of arms, and with predictors of principals if given.
    fn task_of(
        &self,
        of_arms: &[Expert],
        of_principals: Option<PrincipalPredictors>,
    ) -> (Arc<NextTools>, LearningTask) {
        let is_failing = Arc::clone(&self.is_failing);
        let make = move || Box::new(FailingPredictor::new(Arc::clone(&is_failing)));
        let options = NextToolsOptions {
            measure: ConfidenceMeasure::Mass,
            bands: ConfidenceBands::MASS,
            shows_all: false,
        };
        let of_arms = of_arms
            .iter()
            .map(|expert| arm_predictor(*expert))
            .collect();
        let next = NextTools::new(make(), options).with_arms(of_arms, None);
        let next = Arc::new(next.with_principals(of_principals));
        let unsteady = Arc::new(UnsteadyStore {
            store: self.store.clone(),
            is_away: Arc::clone(&self.is_away),
        });
        let stores = LearningStores {
            calls: Arc::new(arms::ReadCountingStore {
                store: self.store.clone(),
                n_pages: Arc::clone(&self.n_pages),
                n_rows: Arc::clone(&self.n_rows),
            }),
            contexts: unsteady.clone(),
            tools: self.store.clone(),
            activities: self.store.clone(),
            snapshots: self.store.clone(),
            changes: unsteady,
        };
        let task = LearningTask::new(
            stores,
            self.clock.clone(),
            Arc::clone(&next),
            "test".into(),
            move || make(),
        );
        (next, task)
    }

    async fn pass(&self, time: Duration) {
        self.clock.advance(time);
        sleep(time).await;
    }

    /// Removes a client and returns its number of calls.
    async fn remove(&self, client: &str) -> u64 {
        let client = ClientSelector(client.into());
        self.store.delete(&client).await.unwrap().n_calls
    }

    async fn saved_snapshot(&self) -> Option<Snapshot> {
        self.saved_of("test").await
    }

    async fn saved_of(&self, model: &str) -> Option<Snapshot> {
        self.store.newest_snapshot(model).await.unwrap()
    }
}

/// Returns the factory of a predictor with one expert. Its snapshots have the name of the expert.
fn arm_predictor(expert: Expert) -> ArmPredictor {
    let method = PredictionMethod::Expert(expert);
    ArmPredictor {
        set: PredictorSet::new(method, ExpertSet::ALL),
        model: expert.as_str().into(),
        make: Arc::new(move || Box::new(FailingPredictor::of(Engine::new(method, 30.0)))),
    }
}

impl RunningTask {
    fn learned_bytes(&self) -> Vec<u8> {
        self.next.learner().read().learned_bytes()
    }

    async fn stop(self) {
        self.stop.cancel();
        self.task.await.unwrap();
    }
}

const A_WHILE: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn existing_and_new_calls_are_learned() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a", "b"]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 2);
    scene.calls(2, &["a", "nobody_listed_this"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 4);
    for _ in 0..10 {
        scene.pass(A_WHILE).await;
    }
    assert_eq!(running.next.n_learned(), 4);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn all_calls_are_learned_on_request() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a", "b"]).await;
    let (next, mut task) = scene.task();
    scene.is_away.store(true, Ordering::SeqCst);
    assert!(task.learn_all().await.is_err());
    assert!(next.is_delayed() && !next.is_ready());
    scene.is_away.store(false, Ordering::SeqCst);
    task.learn_all().await.unwrap();
    assert!(!next.is_delayed() && next.is_ready());
    assert_eq!(next.n_learned(), 2);
    scene.calls(2, &["a"]).await;
    assert_eq!(next.n_learned(), 2);
    task.learn_all().await.unwrap();
    assert_eq!(next.n_learned(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_program_can_decide_when_calls_are_learned() {
    let scene = TaskScene::new().await;
    let (next, task) = scene.task();
    let turns = Arc::new(LearningTurns::at(LearningPace::OnRequest));
    let stop = CancellationToken::new();
    let task = task.with_turns(Arc::clone(&turns));
    let running = tokio::spawn(task.run(stop.clone()));
    scene.pass(A_WHILE).await;
    assert!(next.is_ready());
    scene.calls(1, &["a", "b"]).await;
    scene.pass(Duration::from_mins(10)).await;
    assert_eq!(next.n_learned(), 0);
    turns.take().await;
    assert_eq!(next.n_learned(), 2);
    scene.calls(2, &["a"]).await;
    turns.set_pace(LearningPace::Steady);
    scene.pass(A_WHILE).await;
    assert_eq!(next.n_learned(), 3);
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_start_continues_from_the_saved_snapshot() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 50]).await;
    let first = scene.start();
    scene.pass(A_WHILE).await;
    let learned = first.learned_bytes();
    first.stop().await;
    assert_eq!(
        scene.saved_snapshot().await.map(|saved| saved.version),
        Some(1)
    );
    scene.pass(A_WHILE).await;
    let second = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(second.next.n_learned(), 0);
    assert!(second.learned_bytes() == learned);
    scene.calls(2, &["b"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(second.next.n_learned(), 1);
    second.stop().await;
    assert_eq!(
        scene.saved_snapshot().await.map(|saved| saved.version),
        Some(2)
    );
    // An unchanged state is not saved again.
    let third = scene.start();
    scene.pass(A_WHILE).await;
    third.stop().await;
    assert_eq!(
        scene.saved_snapshot().await.map(|saved| saved.version),
        Some(2)
    );
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_is_saved_periodically() {
    let scene = TaskScene::new().await;
    let running = scene.start();
    scene.calls(1, &["a"]).await;
    scene.pass(SAVE_EVERY / 2).await;
    assert_eq!(scene.saved_snapshot().await, None);
    scene.pass(SAVE_EVERY).await;
    assert_eq!(
        scene.saved_snapshot().await.map(|saved| saved.version),
        Some(1)
    );
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_snapshot_is_replaced() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a", "b"]).await;
    let damaged = Snapshot {
        model: "test".into(),
        version: 1,
        format: 7,
        learned_to: None,
        taken_at: scene.clock.now(),
        bytes: vec![1, 2, 3],
    };
    scene.store.save_snapshot(&damaged).await.unwrap();
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 2);
    running.stop().await;
    assert_eq!(
        scene.saved_snapshot().await.map(|saved| saved.version),
        Some(2)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_removed_client_are_forgotten() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 9]).await;
    let first = scene.start();
    scene.pass(A_WHILE).await;
    first.stop().await;
    scene.calls(2, &["b"; 3]).await;
    let second = scene.start();
    scene.pass(A_WHILE).await;
    let both = second.learned_bytes();
    assert_eq!(scene.remove("client1").await, 9);
    scene.pass(REMOVAL_CHECK_INTERVAL * 2).await;
    assert_eq!(second.next.n_learned(), 3);
    assert!(second.learned_bytes() != both);
    let saved = scene.saved_snapshot().await.unwrap();
    assert_eq!(saved.version, 1);
    second.stop().await;
}

#[tokio::test(start_paused = true)]
async fn unsaved_calls_of_a_removed_client_are_forgotten() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 9]).await;
    scene.calls(2, &["b"; 3]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 12);
    scene.remove("client1").await;
    scene.pass(REMOVAL_CHECK_INTERVAL * 2).await;
    assert_eq!(running.next.n_learned(), 3);
    // And once more, after the remaining data is saved.
    assert_eq!(
        scene.saved_snapshot().await.map(|saved| saved.version),
        Some(1)
    );
    scene.remove("client2").await;
    scene.pass(REMOVAL_CHECK_INTERVAL * 2).await;
    assert_eq!(running.next.n_learned(), 0);
    running.stop().await;
    assert_eq!(scene.saved_snapshot().await, None);
}

#[tokio::test(start_paused = true)]
async fn calls_of_a_removed_client_are_not_saved_at_shutdown() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 9]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    scene.remove("client1").await;
    running.stop().await;
    assert_eq!(scene.saved_snapshot().await, None);
}

#[tokio::test(start_paused = true)]
async fn both_of_two_processes_forget_a_removed_client() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a"; 9]).await;
    scene.calls(2, &["b"; 3]).await;
    let first = scene.start();
    scene.pass(Duration::from_secs(3)).await;
    let second = scene.start();
    scene.pass(SAVE_EVERY * 2).await;
    scene.remove("client1").await;
    scene.pass(REMOVAL_CHECK_INTERVAL * 2).await;
    assert_eq!(first.next.n_learned(), 3);
    assert_eq!(second.next.n_learned(), 3);
    first.stop().await;
    second.stop().await;
    let third = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(third.next.n_learned(), 0, "a snapshot is there");
    third.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_failing_store_is_retried() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a", "b"]).await;
    scene.is_away.store(true, Ordering::SeqCst);
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert!(running.next.is_delayed() && !running.next.is_ready());
    scene.is_away.store(false, Ordering::SeqCst);
    scene.pass(A_WHILE).await;
    assert!(!running.next.is_delayed() && running.next.is_ready());
    assert_eq!(running.next.n_learned(), 2);
    // Also while it learns.
    scene.is_away.store(true, Ordering::SeqCst);
    scene.pass(REMOVAL_CHECK_INTERVAL * 2).await;
    assert!(running.next.is_delayed() && running.next.is_ready());
    scene.is_away.store(false, Ordering::SeqCst);
    scene.pass(REMOVAL_CHECK_INTERVAL).await;
    assert!(!running.next.is_delayed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_predictor_continues_after_counted_failures() {
    let scene = TaskScene::new().await;
    scene.is_failing.store(true, Ordering::SeqCst);
    scene.calls(1, &["a", "b"]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!((running.next.n_learned(), running.next.n_failed()), (0, 2));
    scene.is_failing.store(false, Ordering::SeqCst);
    scene.calls(2, &["a"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!((running.next.n_learned(), running.next.n_failed()), (1, 2));
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_predictor_continues_after_a_failure_at_session_end() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a", "b"]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    scene.is_failing.store(true, Ordering::SeqCst);
    scene.pass(Duration::from_mins(11)).await;
    assert!(running.next.n_failed() > 0);
    scene.is_failing.store(false, Ordering::SeqCst);
    scene.calls(2, &["a"]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 3);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn an_unreadable_text_does_not_stop_learning() {
    let scene = TaskScene::new().await;
    let mut after_text = call_of(SessionId::new(scene.clock.now(), [1; 10]), 1, "a");
    after_text.id = InvocationId::new(scene.clock.now(), [1; 10]);
    after_text.started_at = scene.clock.now();
    after_text.continues = None;
    assert!(after_text.context.is_some());
    scene.apply(&[Record::CallOpened(after_text)]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 1);
    assert!(!running.next.is_delayed());
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_history_is_read_page_by_page() {
    let scene = TaskScene::new().await;
    for n in 0..5 {
        scene.calls(n, &["a"; 250]).await;
        scene.pass(Duration::from_mins(1)).await;
    }
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 5 * 250);
    running.stop().await;
}

#[tokio::test(start_paused = true)]
async fn all_calls_are_relearned_once_a_day() {
    let scene = TaskScene::new().await;
    scene.calls(1, &["a", "b"]).await;
    let running = scene.start();
    scene.pass(A_WHILE).await;
    // Too old to be read again.
    let mut late = call_of(SessionId::new(Timestamp::UNIX_EPOCH, [9; 10]), 1, "a");
    late.id = InvocationId::new(scene.clock.now() - Duration::from_mins(9), [9; 10]);
    (late.continues, late.work_session) = (None, None);
    scene.apply(&[Record::CallOpened(late)]).await;
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 2);
    running.stop().await;
    scene.pass(RELEARN_INTERVAL / 2).await;
    // Restarts do not delay it.
    let running = scene.start();
    scene.pass(A_WHILE).await;
    assert_eq!(running.next.n_learned(), 0);
    scene.pass(RELEARN_INTERVAL / 2).await;
    assert_eq!(running.next.n_learned(), 3);
    running.stop().await;
}
