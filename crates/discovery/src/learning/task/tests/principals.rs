//! Predictors of principals, each of which learns from its own calls alone.

use riglm_domain::selection::SessionShape;

use super::*;
use crate::learning::principals::MAX_PRINCIPAL_PREDICTORS;
use crate::learning::{NextTool, SessionView};

fn predictors(expected: &[&str]) -> PrincipalPredictors {
    let method = PredictionMethod::Expert(Expert::Frequency);
    PrincipalPredictors {
        model: "test".into(),
        make: Arc::new(move || Box::new(FailingPredictor::of(Engine::new(method, 30.0)))),
        expected: expected
            .iter()
            .map(|name| Principal::from_name(name))
            .collect(),
    }
}

/// The view of a principal on the learned data.
#[derive(Debug, PartialEq)]
struct SeenData {
    ranked: Vec<NextTool>,
    has_learned: bool,
    n_sessions: u64,
    seeks: Option<u64>,
}

/// Returns the view of a principal in a new session.
fn seen_by(next: &NextTools, name: &str, now: Timestamp) -> SeenData {
    let principal = Principal::from_name(name);
    let view = SessionView {
        session: riglm_domain::usage::invocation::SessionKey::Connection(SessionId::new(
            now, [99; 10],
        )),
        principal: &principal,
        client: "client",
        intent: None,
        now,
    };
    let tools = ["a", "b"].map(riglm_ports::contract::scene::tool);
    let outlook = next.outlook(&view, false, &SessionShape::TYPICAL);
    SeenData {
        ranked: next.predict(&view, &tools).ranked,
        has_learned: next.has_learned(&principal),
        n_sessions: outlook.n_sessions.to_bits(),
        seeks: next
            .search_probability(&principal, "client")
            .map(f64::to_bits),
    }
}

#[tokio::test(start_paused = true)]
async fn a_principal_sees_nothing_of_the_calls_of_another() {
    let mut seen = Vec::new();
    for has_other in [false, true] {
        let scene = TaskScene::new().await;
        let (next, mut task) = scene.task_of(&[], Some(predictors(&["bob"])));
        for n in 0..5 {
            if has_other {
                scene.calls_of("alice", 2 * n, &["b"; 20]).await;
            }
            scene.calls_of("bob", 2 * n + 1, &["a", "a", "b"]).await;
            scene.clock.advance(Duration::from_hours(2));
            task.learn_all().await.unwrap();
        }
        let now = scene.clock.now();
        seen.push(seen_by(&next, "bob", now));
        assert!(seen[0].has_learned && seen[0].ranked[0].position == 0);
        // A new principal starts without anything.
        let carol = seen_by(&next, "carol", now);
        assert!(
            !carol.has_learned && carol.ranked[0].probability < 0.51,
            "{carol:?}"
        );
    }
    assert_eq!(seen[0], seen[1]);
    // With shared learning, the same calls do affect others.
    let scene = TaskScene::new().await;
    let (next, mut task) = scene.task();
    scene.calls_of("alice", 1, &["b"; 20]).await;
    task.learn_all().await.unwrap();
    assert!(next.has_learned(&Principal::from_name("bob")));
}

#[tokio::test(start_paused = true)]
async fn a_principal_that_was_not_expected_is_learned_when_it_is_needed() {
    let scene = TaskScene::new().await;
    scene.calls_of("bob", 1, &["b", "b"]).await;
    let (next, mut task) = scene.task_of(&[], Some(predictors(&[])));
    task.learn_all().await.unwrap();
    let now = scene.clock.now();
    assert!(!seen_by(&next, "bob", now).has_learned);
    task.learn_all().await.unwrap();
    let bob = seen_by(&next, "bob", now);
    assert!(bob.has_learned && bob.ranked[0].position == 1, "{bob:?}");
    // The principals that were needed least recently are dropped, and learned again.
    for n in 0..MAX_PRINCIPAL_PREDICTORS.get() {
        let _ = seen_by(&next, &format!("other {n}"), now);
    }
    task.learn_all().await.unwrap();
    assert!(!seen_by(&next, "bob", now).has_learned);
    task.learn_all().await.unwrap();
    assert_eq!(seen_by(&next, "bob", now), bob);
}

#[tokio::test(start_paused = true)]
async fn operators_that_look_at_a_principal_create_no_predictor() {
    let scene = TaskScene::new().await;
    let (next, mut task) = scene.task_of(&[], Some(predictors(&[])));
    task.learn_all().await.unwrap();
    let now = scene.clock.now();
    let _ = seen_by(&next, "bob", now);
    let names = || -> Vec<Principal> {
        let all = next.principals().unwrap().all();
        all.iter().map(|one| one.principal.clone()).collect()
    };
    for n in 0..MAX_PRINCIPAL_PREDICTORS.get() {
        let other = Principal::from_name(&format!("other {n}"));
        assert_eq!(next.search_probability(&other, "client"), None);
    }
    assert_eq!(names(), [Principal::from_name("bob")]);
    // Nor is a principal in use because somebody looked at it.
    for n in 1..MAX_PRINCIPAL_PREDICTORS.get() {
        let _ = seen_by(&next, &format!("other {n}"), now);
    }
    let bob = Principal::from_name("bob");
    assert!(names().contains(&bob));
    let _ = next.search_probability(&bob, "client");
    let _ = seen_by(&next, "one more", now);
    assert!(!names().contains(&bob));
}

#[tokio::test(start_paused = true)]
async fn a_new_principal_reads_only_its_newest_calls() {
    let scene = TaskScene::new().await;
    for n in 0..4 {
        scene.calls_of("alice", n, &["b"; 200]).await;
        scene.pass(Duration::from_mins(1)).await;
    }
    for n in 4..7 {
        scene.calls_of("bob", n, &["a"; 4]).await;
        scene.pass(Duration::from_mins(1)).await;
    }
    let (next, mut task) = scene.task_of(&[], Some(predictors(&[])));
    task.max_relearned = 10;
    task.learn_all().await.unwrap();
    let n_rows = || scene.n_rows.load(Ordering::SeqCst);
    let before = n_rows();
    let learner = || {
        let bob = next.principals().unwrap().of(&Principal::from_name("bob"));
        bob.learner.clone()
    };
    let _ = learner();
    task.learn_all().await.unwrap();
    // The calls of the last seconds may be read again.
    assert!(n_rows() - before <= 14, "{} rows", n_rows() - before);
    assert_eq!(learner().read().n_learned(), 10);
    // From here on it learns with all others, and reads nothing for long.
    let before = n_rows();
    scene.calls_of("bob", 8, &["a"; 3]).await;
    scene.calls_of("alice", 9, &["b"; 3]).await;
    task.learn_all().await.unwrap();
    assert_eq!(learner().read().n_learned(), 13);
    assert!(n_rows() - before <= 10, "{} rows", n_rows() - before);
}

#[tokio::test(start_paused = true)]
async fn a_principal_that_returns_learns_what_is_newer_than_its_snapshot() {
    let scene = TaskScene::new().await;
    scene.calls_of("bob", 1, &["b"; 60]).await;
    let names = predictors(&["bob"]);
    let start = || {
        let (next, task) = scene.task_of(&[], Some(names.clone()));
        let stop = CancellationToken::new();
        let running = tokio::spawn(task.run(stop.clone()));
        RunningTask {
            next,
            stop,
            task: running,
        }
    };
    let first = start();
    scene.pass(Duration::from_mins(1)).await;
    scene.calls_of("alice", 9, &["a"]).await;
    scene.pass(A_WHILE).await;
    first.stop().await;
    // The rest goes on without bob, beyond the interval of learning everything again.
    let others = predictors(&[]);
    let (next, task) = scene.task_of(&[], Some(others));
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    for n in 2..4 {
        scene.pass(RELEARN_INTERVAL).await;
        scene.calls_of("alice", n, &["a"; 50]).await;
        scene.pass(Duration::from_mins(1)).await;
    }
    scene.calls_of("bob", 5, &["a"]).await;
    scene.pass(A_WHILE).await;
    let before = scene.n_rows.load(Ordering::SeqCst);
    let bob = next.principals().unwrap().of(&Principal::from_name("bob"));
    scene.pass(A_WHILE).await;
    assert_eq!(bob.learner.read().n_learned(), 1);
    assert!(bob.learner.read().has_learned());
    let n_rows = scene.n_rows.load(Ordering::SeqCst) - before;
    // Each turn reads the calls of the last seconds.
    assert!(n_rows < 20, "{n_rows} rows");
    stop.cancel();
    running.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn each_principal_has_a_snapshot_of_its_own() {
    let scene = TaskScene::new().await;
    scene.calls_of("bob", 1, &["b", "b"]).await;
    scene.calls_of("alice", 2, &["a"]).await;
    let names = predictors(&["alice", "bob"]);
    let (next, task) = scene.task_of(&[], Some(names.clone()));
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    scene.pass(A_WHILE).await;
    let now = scene.clock.now();
    let before = seen_by(&next, "bob", now);
    assert!(before.has_learned);
    stop.cancel();
    running.await.unwrap();
    for name in ["alice", "bob"] {
        let model = names.model_of(&Principal::from_name(name));
        assert!(scene.saved_of(&model).await.is_some(), "{model}");
    }
    let (next, mut task) = scene.task_of(&[], Some(names));
    task.learn_all().await.unwrap();
    assert_eq!(seen_by(&next, "bob", now).ranked, before.ranked);

    // After the removal of a client, its calls are in no predictor.
    let stop = CancellationToken::new();
    let running = tokio::spawn(task.run(stop.clone()));
    assert_eq!(scene.remove("client1").await, 2);
    scene.pass(REMOVAL_CHECK_INTERVAL + A_WHILE).await;
    assert!(!seen_by(&next, "bob", scene.clock.now()).has_learned);
    assert!(seen_by(&next, "alice", scene.clock.now()).has_learned);
    stop.cancel();
    running.await.unwrap();
}
