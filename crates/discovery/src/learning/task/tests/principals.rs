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
