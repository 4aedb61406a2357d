use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::experiment::{ExperimentMetric, ExperimentStop};
use riglm_ports::contract::scene::audit;
use riglm_ports::fake::{ManualClock, MemoryStore};

use super::*;

const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

fn arm_with_share(name: &str, share: f64) -> ArmPlan {
    let weights = FactorWeights::new([1.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
    ArmPlan {
        name: name.into(),
        share,
        weights: (name != "control").then_some(weights),
        fusion: None,
        policy: None,
        predictors: None,
    }
}

fn plan(control: f64, a: f64) -> ExperimentPlan {
    ExperimentPlan {
        name: "e".into(),
        is_running: true,
        unit: AssignmentUnit::Principal,
        metric: ExperimentMetric::ClickThrough,
        alpha: 0.05,
        window: Duration::from_hours(24),
        control: "control".into(),
        arms: vec![arm_with_share("control", control), arm_with_share("a", a)],
    }
}

fn experiments(store: &Arc<MemoryStore>, plans: &[ExperimentPlan], key: u8) -> Arc<Experiments> {
    let stores = ExperimentStores {
        experiments: store.clone(),
        changes: store.clone(),
    };
    let clock = Arc::new(ManualClock::at(NOW));
    let hasher = KeyedHasher::new(&[key; 32]);
    Arc::new(Experiments::new(plans, hasher, stores, clock))
}

fn principals(n: usize) -> Vec<Principal> {
    (0..n)
        .map(|n| Principal::from_name(&format!("p{n}")))
        .collect()
}

fn who(principal: &Principal) -> Participant<'_> {
    Participant {
        principal,
        work_session: None,
    }
}

fn arms(experiments: &Experiments, principals: &[Principal]) -> Vec<Option<String>> {
    let arm = |principal| experiments.arm(who(principal), Treatment::Weights);
    let arms = principals.iter().map(arm);
    arms.map(|arm| arm.map(|arm| arm.name().arm)).collect()
}

#[tokio::test]
async fn a_stored_assignment_survives_other_shares_and_keys() {
    let store = Arc::new(MemoryStore::default());
    let all = principals(40);
    let first = experiments(&store, &[plan(0.5, 0.5)], 1);
    for principal in &all {
        first.expose(who(principal), Treatment::Weights).unwrap();
    }
    first.store_queued().await;
    assert_eq!(store.assignments("e").await.unwrap().len(), 40);
    let known = arms(&first, &all);
    assert!(known.contains(&Some("a".into())) && known.contains(&Some("control".into())));
    let later = experiments(&store, &[plan(0.01, 0.99)], 2);
    assert_ne!(arms(&later, &all), known, "nothing is known of them yet");
    later.load().await;
    assert_eq!(arms(&later, &all), known);
}

#[tokio::test]
async fn the_first_stored_assignment_applies_to_all_processes() {
    let store = Arc::new(MemoryStore::default());
    let all = principals(20);
    let [one, other] = [1, 2].map(|key| experiments(&store, &[plan(0.5, 0.5)], key));
    for experiments in [&one, &other] {
        for principal in &all {
            experiments
                .expose(who(principal), Treatment::Weights)
                .unwrap();
        }
    }
    assert_ne!(arms(&one, &all), arms(&other, &all));
    one.store_queued().await;
    other.store_queued().await;
    assert_eq!(arms(&one, &all), arms(&other, &all));
}

#[tokio::test]
async fn assignments_are_stored_after_a_store_failure() {
    let store = Arc::new(MemoryStore::default());
    let experiments = experiments(&store, &[plan(0.5, 0.5)], 1);
    for principal in &principals(3) {
        experiments
            .expose(who(principal), Treatment::Weights)
            .unwrap();
    }
    store.start_failing();
    experiments.store_queued().await;
    store.stop_failing();
    assert_eq!(store.assignments("e").await.unwrap(), []);
    experiments.store_queued().await;
    let assigned = store.assignments("e").await.unwrap();
    assert_eq!(assigned.len(), 3);
    assert!(assigned.iter().all(|one| one.assigned_at == NOW));
}

#[tokio::test]
async fn a_stopped_experiment_has_no_treatment() {
    let store = Arc::new(MemoryStore::default());
    let experiments = experiments(&store, &[plan(0.0001, 0.9999)], 1);
    let alice = Principal::from_name("alice");
    let weights = || experiments.for_recommendation(who(&alice))?.weights();
    assert!(weights().is_some());
    let stop = ExperimentStop {
        experiment: "e".into(),
        stopped_at: NOW,
        stopped_by: alice.clone(),
        reason: None,
    };
    store.stop_experiment(&stop, &audit(1)).await.unwrap();
    let token = CancellationToken::new();
    let watching = tokio::spawn(Arc::clone(&experiments).watch_changes(token.clone()));
    let gone = async {
        while experiments.for_recommendation(who(&alice)).is_some() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), gone)
        .await
        .unwrap();
    assert_eq!(weights(), None);
    token.cancel();
    watching.await.unwrap();
    // Waiting assignments are stored at the end.
    assert_eq!(store.assignments("e").await.unwrap().len(), 1);
}

#[test]
fn requests_without_a_unit_have_no_arm() {
    let store = Arc::new(MemoryStore::default());
    let of_work = ExperimentPlan {
        unit: AssignmentUnit::WorkSession,
        ..plan(0.5, 0.5)
    };
    let experiments = experiments(&store, &[of_work], 1);
    let alice = Principal::from_name("alice");
    assert!(experiments.for_recommendation(who(&alice)).is_none());
    let working = Participant {
        work_session: Some(WorkSessionId::new(NOW, [1; 10])),
        ..who(&alice)
    };
    let arm = experiments.for_recommendation(working).unwrap();
    assert_eq!(arm.name().experiment, "e");
    assert!(experiments.arm(working, Treatment::Policy).is_none());
}

#[test]
fn an_inactive_experiment_has_no_units() {
    let store = Arc::new(MemoryStore::default());
    let off = ExperimentPlan {
        is_running: false,
        ..plan(0.5, 0.5)
    };
    let experiments = experiments(&store, &[off], 1);
    let alice = Principal::from_name("alice");
    assert!(experiments.for_recommendation(who(&alice)).is_none());
}
