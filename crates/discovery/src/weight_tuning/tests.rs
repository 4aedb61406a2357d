use std::time::Duration;

use jiff::SignedDuration;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{FeedbackId, RecommendationId, UpstreamName};
use riglm_domain::recommendation::record::{Recommendation, RecommendedTool};
use riglm_domain::recommendation::{Factor, Factors};
use riglm_domain::usage::feedback::{Feedback, Verdict};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    AuditTrail as _, Maintenance as _, MaintenanceTask, RecordSink as _, WeightRepository as _,
};
use riglm_ports::contract::scene::{audit, hash};
use riglm_ports::fake::{ManualClock, MemoryStore};
use tokio::time::advance;
use tokio_util::sync::CancellationToken;

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
const OPTIONS: WeightTuningConfig = WeightTuningConfig {
    enabled: true,
    interval: Duration::from_hours(1),
    min_examples: 100,
    seed: 3,
};

/// Returns a recommendation of three tools, and feedback that selects the tool with high ratings. A
/// tool with a slightly better relevance is above or below it. The third tool fits nothing.
fn recommendation_with_feedback(n: u32) -> (Recommendation, Feedback) {
    let mut random = [0; 10];
    random[..4].copy_from_slice(&n.to_be_bytes());
    let at = NOW + SignedDuration::from_secs(n.into());
    let tool = |name: &str| ToolRef {
        upstream: UpstreamName::parse("up").unwrap(),
        tool: name.into(),
    };
    let ranked = |name: &str, relevance: f64, rating: f64| RecommendedTool {
        tool: tool(name),
        score: 0.5,
        factors: Some(Factors::new([relevance, 0.5, 0.5, 0.5, rating])),
    };
    // The gap that the ratings must outweigh varies, so a larger weight moves more rated tools to
    // the top.
    let gap = f64::from(n % 7) * 0.1;
    let mut tools = vec![
        ranked("fits", 0.3 + gap, 0.1),
        ranked("rated", 0.3, 0.9),
        ranked("neither", 0.0, 0.0),
    ];
    let weights = FactorWeights::default();
    let score =
        |tool: &RecommendedTool| tool.factors.map_or(0.0, |factors| weights.score(&factors));
    tools.sort_by(|a, b| score(b).total_cmp(&score(a)));
    let shown = Recommendation {
        id: RecommendationId::new(at, random),
        session: None,
        work_session: None,
        principal: Principal::from_name("alice"),
        shown_at: at,
        intent_hash: hash("want it"),
        intent: None,
        weights: None,
        experiment: None,
        tools,
    };
    let said = Feedback {
        id: FeedbackId::new(at, random),
        principal: Principal::from_name("alice"),
        session: None,
        work_session: None,
        tool: tool("rated"),
        verdict: Verdict::Selected,
        rating: None,
        comment: None,
        recommendation: Some(shown.id),
        invocation: None,
        given_at: at,
    };
    (shown, said)
}

async fn fill(store: &MemoryStore, numbers: std::ops::Range<u32>) {
    for n in numbers {
        let (shown, said) = recommendation_with_feedback(n);
        let records = [Record::Recommended(shown), Record::FeedbackGiven(said)];
        store.apply(&records).await.unwrap();
    }
}

struct Scene {
    store: Arc<MemoryStore>,
    source: Arc<WeightSource>,
    clock: Arc<ManualClock>,
    tuning: Arc<WeightTuning>,
}

/// A store with 300 recommendations, one per second, and the time after the last one.
async fn scene() -> Scene {
    let store = Arc::new(MemoryStore::default());
    fill(&store, 0..300).await;
    let source = Arc::new(WeightSource::new(None));
    let clock = Arc::new(ManualClock::at(NOW + SignedDuration::from_secs(300)));
    let stores = TuningStores::of(&store);
    let tuning = Arc::new(WeightTuning::new(stores, source.clone(), clock.clone()));
    Scene {
        store,
        source,
        clock,
        tuning,
    }
}

fn alice() -> Principal {
    Principal::from_name("alice")
}

#[tokio::test]
async fn better_weights_are_stored_with_reason_and_audit_entry() {
    let Scene { store, tuning, .. } = scene().await;
    let run = tuning.tune(&OPTIONS, &alice()).await.unwrap();
    let RunOutcome::Adopted { version, trial } = &run.outcome else {
        panic!("{run}");
    };
    assert_eq!((*version, run.n_examples), (2, 300));
    let rating = trial.candidate.of(Factor::UserRating);
    assert!(rating > FactorWeights::default().of(Factor::UserRating));
    let history = tuning.history().await.unwrap();
    assert_eq!(history.used, Some(2));
    let [first, second] = history.versions.as_slice() else {
        panic!("{history:?}");
    };
    assert_eq!(first.weights, FactorWeights::default().by_name());
    assert_eq!(second.weights, trial.candidate.by_name());
    for part in ["user_rating 0.1000 to", "210 recommendations", "90 later"] {
        assert!(second.reason.contains(part), "{part}: {}", second.reason);
    }
    let entries = store.entries(9).await.unwrap();
    let actions: Vec<&str> = entries.iter().map(|entry| &*entry.action).collect();
    assert_eq!(actions, ["weights.tune", "weights.tune"]);
    assert!(entries.iter().all(|entry| entry.actor == alice()));
    let detail = entries[1].detail.as_deref().unwrap();
    let detail: serde_json::Value = serde_json::from_str(detail).unwrap();
    assert_eq!(detail["version"], 2);
    assert_eq!(detail["before"]["user_rating"], 0.1);
    assert_eq!(detail["after"]["user_rating"], rating);
}

#[tokio::test]
async fn a_preview_changes_nothing() {
    let Scene { store, tuning, .. } = scene().await;
    let looked = tuning.preview(&OPTIONS).await.unwrap();
    assert!(matches!(looked.outcome, RunOutcome::Better(_)), "{looked}");
    assert_eq!(tuning.history().await.unwrap().versions, []);
    assert_eq!(store.entries(9).await.unwrap(), []);
}

#[tokio::test]
async fn examples_judge_only_one_version() {
    let Scene {
        store,
        clock,
        tuning,
        ..
    } = scene().await;
    tuning.tune(&OPTIONS, &alice()).await.unwrap();
    let again = tuning.tune(&OPTIONS, &alice()).await.unwrap();
    assert!(matches!(again.outcome, RunOutcome::TooFew(_)), "{again}");
    fill(&store, 301..400).await;
    clock.advance(Duration::from_mins(5));
    let again = tuning.tune(&OPTIONS, &alice()).await.unwrap();
    let RunOutcome::Adopted { version, trial } = &again.outcome else {
        panic!("{again}");
    };
    assert_eq!((*version, trial.n_judging), (3, 99));
    assert_eq!(again.present.version, Some(2));
}

#[tokio::test]
async fn tuning_reports_too_little_feedback() {
    let Scene { tuning, .. } = scene().await;
    let options = WeightTuningConfig {
        min_examples: 301,
        ..OPTIONS
    };
    let run = tuning.tune(&options, &alice()).await.unwrap();
    assert!(run.to_string().contains("300 recommendations"), "{run}");
    assert_eq!(tuning.history().await.unwrap().versions, []);
}

#[tokio::test]
async fn weights_can_be_rolled_back_and_restored() {
    let Scene { store, tuning, .. } = scene().await;
    let none = tuning.roll_back(None, &alice()).await.unwrap_err();
    assert!(matches!(none, TuningError::NoEarlier), "{none}");
    let none = tuning.roll_back(Some(1), &alice()).await.unwrap_err();
    assert!(matches!(none, TuningError::NoVersion(1)), "{none}");
    tuning.tune(&OPTIONS, &alice()).await.unwrap();
    let back = tuning.roll_back(None, &alice()).await.unwrap();
    let default = FactorWeights::default();
    assert_eq!((back.version, back.weights), (Some(1), default));
    assert_eq!(tuning.history().await.unwrap().used, Some(1));
    let none = tuning.roll_back(None, &alice()).await.unwrap_err();
    assert!(matches!(none, TuningError::NoEarlier), "{none}");
    let none = tuning.roll_back(Some(9), &alice()).await.unwrap_err();
    assert!(matches!(none, TuningError::NoVersion(9)), "{none}");
    tuning.roll_back(Some(2), &alice()).await.unwrap();
    assert_eq!(tuning.history().await.unwrap().used, Some(2));
    let entries = store.entries(9).await.unwrap();
    let details: Vec<_> = (entries.iter().filter(|entry| entry.action == "weights.use"))
        .map(|entry| entry.detail.as_deref())
        .collect();
    let expected = [r#"{"from":2,"to":1}"#, r#"{"from":1,"to":2}"#];
    assert_eq!(details, expected.map(Some));
}

#[tokio::test]
async fn configured_weights_are_not_tuned() {
    let Scene { source, tuning, .. } = scene().await;
    source.set_configured(Some(FactorWeights::default()));
    let looked = tuning.preview(&OPTIONS).await.unwrap_err();
    let run = tuning.tune(&OPTIONS, &alice()).await.unwrap_err();
    let back = tuning.roll_back(None, &alice()).await.unwrap_err();
    for refused in [looked, run, back] {
        assert!(refused.to_string().starts_with("recommend.weights"));
    }
    assert!(tuning.history().await.unwrap().is_configured);
}

#[tokio::test]
async fn stored_weights_of_unknown_factors_are_not_tuned() {
    let Scene { store, tuning, .. } = scene().await;
    let odd = WeightVersion {
        ranking: RANKING.into(),
        version: 1,
        weights: [("luck".to_owned(), 1.0)].into(),
        reason: "another version".into(),
        created_at: NOW,
    };
    store.add_weights(&odd, &audit(1)).await.unwrap();
    let error = tuning.tune(&OPTIONS, &alice()).await.unwrap_err();
    assert!(error.to_string().contains("luck"), "{error}");
}

fn task(scene: &Scene) -> TuningTask {
    TuningTask {
        tuning: scene.tuning.clone(),
        store: scene.store.clone(),
        config: WeightTuningConfig {
            interval: Duration::from_hours(24),
            ..OPTIONS
        },
    }
}

#[tokio::test]
async fn only_one_process_tunes_and_none_after_a_rollback() {
    let scene = scene().await;
    let task = task(&scene);
    let other = scene.store.try_begin(MaintenanceTask::WeightTuning).await;
    assert_eq!(task.tune_once().await.unwrap(), None);
    drop(other);
    let run = task.tune_once().await.unwrap().unwrap();
    assert!(matches!(run.outcome, RunOutcome::Adopted { .. }), "{run}");
    scene.tuning.roll_back(None, &alice()).await.unwrap();
    fill(&scene.store, 301..400).await;
    assert_eq!(task.tune_once().await.unwrap(), None);
    // An explicit request is allowed.
    let asked = scene.tuning.preview(&OPTIONS).await.unwrap();
    assert!(matches!(asked.outcome, RunOutcome::Better(_)), "{asked}");
    scene.tuning.roll_back(Some(2), &alice()).await.unwrap();
    assert!(task.tune_once().await.unwrap().is_some());
}

#[tokio::test(start_paused = true)]
async fn the_task_tunes_after_a_while_and_then_at_intervals() {
    let scene = scene().await;
    let stop = CancellationToken::new();
    let running = tokio::spawn(task(&scene).run(stop.clone()));
    let used = async || scene.tuning.history().await.unwrap().used;
    let pass = async |minutes: u64| {
        for _ in 0..minutes {
            advance(Duration::from_mins(1)).await;
            // The search runs on a thread of its own, which ignores the paused clock.
            std::thread::sleep(Duration::from_millis(1));
            tokio::task::yield_now().await;
        }
    };
    pass(9).await;
    assert_eq!(used().await, None);
    while used().await.is_none() {
        pass(1).await;
    }
    assert_eq!(used().await, Some(2));
    stop.cancel();
    running.await.unwrap();
}
