//! Clients in an arm get the predictor of the arm.

use std::time::Duration;

use riglm_domain::experiment::{ArmPlan, AssignmentUnit, ExperimentMetric, ExperimentPlan};
use riglm_domain::id::WorkSessionId;
use riglm_domain::prediction::{Engine, Expert, ExpertSet, PredictionMethod, PredictorSet};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_ports::analytics::ExperimentRepository as _;
use riglm_ports::fake::{ManualClock, MemoryStore};
use tokio_util::sync::CancellationToken;

use super::*;
use crate::experiments::ExperimentStores;

const FREQUENCY: PredictionMethod = PredictionMethod::Expert(Expert::Frequency);

/// Returns a running experiment whose second arm predicts by frequency.
fn experiments(store: &Arc<MemoryStore>, unit: AssignmentUnit) -> Arc<Experiments> {
    let arm = |name: &str, predictors| ArmPlan {
        name: name.into(),
        share: 0.5,
        weights: None,
        fusion: None,
        policy: None,
        predictors,
    };
    let plan = ExperimentPlan {
        name: "e".into(),
        is_running: true,
        unit,
        metric: ExperimentMetric::Coverage,
        alpha: 0.05,
        window: Duration::from_hours(1),
        control: "control".into(),
        arms: vec![
            arm("control", None),
            arm(
                "frequent",
                Some(PredictorSet::new(FREQUENCY, ExpertSet::ALL)),
            ),
        ],
    };
    let stores = ExperimentStores {
        experiments: store.clone(),
        changes: store.clone(),
    };
    let clock = Arc::new(ManualClock::at(START));
    let hasher = KeyedHasher::new(&[1; 32]);
    Arc::new(Experiments::new(&[plan], hasher, stores, clock))
}

/// Returns predictions where `write` follows `read`, and `list` is the most frequent. The
/// predictors of arms have learned the same.
fn trained_with_arms(experiments: &Arc<Experiments>) -> NextTools {
    let of_arm = ArmPredictor {
        set: PredictorSet::new(FREQUENCY, ExpertSet::ALL),
        model: "frequency".into(),
        make: Arc::new(|| Box::new(FailingPredictor::of(Engine::new(FREQUENCY, 30.0)))),
    };
    let next = NextTools::new(Box::new(FailingPredictor::default()), OPTIONS)
        .with_arms(vec![of_arm], Some(Arc::clone(experiments)));
    let learners = [next.learner(), &next.arm_learners()[0].learner];
    for learner in learners {
        let mut learner = learner.write();
        learner.add_known_tools(&["list", "read", "write"].map(tool));
        for n in 0..80_u8 {
            let name = ["read", "write", "list", "list"][usize::from(n % 4)];
            let started_at = START - jiff::SignedDuration::from_secs(600 - i64::from(n));
            let call = PastCall {
                id: InvocationId::new(started_at, [n; 10]),
                session: session(n),
                work_session: Some(WorkSessionId::new(START, [100 + n / 4; 10])),
                principal: Principal::local(),
                client: Some("client".into()),
                upstream: tool(name).upstream,
                tool: tool(name).tool,
                started_at,
                continues: None,
                context: None,
                outcome: Some(Outcome::Ok),
            };
            learner.learn_call(&call, None, START);
        }
    }
    next
}

/// Returns the position of the tool that is most likely after `read`.
fn after_read(next: &NextTools, view: &SessionView<'_>) -> usize {
    next.record_call(view.session, &tool("read"), START);
    positions(&next.predict(view, &["write", "list", "read"].map(tool)))[0]
}

#[tokio::test]
async fn units_of_an_arm_use_its_predictor() {
    let store = Arc::new(MemoryStore::default());
    let experiments = experiments(&store, AssignmentUnit::Principal);
    let next = trained_with_arms(&experiments);
    let principals: Vec<Principal> = (0..20_u8)
        .map(|n| Principal::from_name(&format!("p{n}")))
        .collect();
    let mut n_frequent = 0;
    for (n, principal) in (0..).zip(&principals) {
        let view = view(principal, connection_session(n));
        assert_eq!(after_read(&next, &view), 0, "an arm is behind");
        next.record_exposure(&view);
    }
    next.set_ready();
    assert_eq!(
        next.predictor_of(Participant::of(&principals[0], connection_session(0))),
        0
    );
    next.arm_learners()[0].set_ready();
    for (n, principal) in (0..).zip(&principals) {
        let view = view(principal, connection_session(n));
        let arm = experiments.arm(view.participant(), Treatment::Predictors);
        let is_frequent = arm.unwrap().name().arm == "frequent";
        let number = next.predictor_of(view.participant());
        assert_eq!(number, usize::from(is_frequent), "{n}");
        assert_eq!(after_read(&next, &view), usize::from(is_frequent), "{n}");
        let tools = ["write", "list", "read"].map(tool);
        let why = next.explain(&view, &tools, &[0]);
        let why = why[0].as_ref().unwrap().sentence();
        assert_eq!(why.contains("read"), !is_frequent, "{why}");
        n_frequent += usize::from(is_frequent);
    }
    assert!((5..=15).contains(&n_frequent), "{n_frequent}");
    // No list was shown, so no client is exposed.
    assert_eq!(n_assigned(&experiments, &store).await, 0);
    for (n, principal) in (0..3).zip(&principals) {
        next.record_exposure(&view(principal, connection_session(n)));
    }
    assert_eq!(n_assigned(&experiments, &store).await, 3);
}

/// Returns the number of assigned units after all pending ones are stored.
async fn n_assigned(experiments: &Arc<Experiments>, store: &MemoryStore) -> usize {
    let stop = CancellationToken::new();
    stop.cancel();
    Arc::clone(experiments).watch_changes(stop).await;
    store.assignments("e").await.unwrap().len()
}

#[test]
fn only_work_sessions_use_the_predictor_of_an_arm() {
    let store = Arc::new(MemoryStore::default());
    let experiments = experiments(&store, AssignmentUnit::WorkSession);
    let next = trained_with_arms(&experiments);
    next.set_ready();
    next.arm_learners()[0].set_ready();
    let principal = Principal::local();
    let of_work = |n: u8| {
        let session = SessionKey::Work(WorkSessionId::new(START, [n; 10]));
        next.predictor_of(Participant::of(&principal, session))
    };
    let n_frequent: usize = (0..20).map(of_work).sum();
    assert!((5..=15).contains(&n_frequent), "{n_frequent}");
    for n in 0..20 {
        let connected = Participant::of(&principal, connection_session(n));
        assert_eq!(next.predictor_of(connected), 0);
    }
}

#[test]
fn an_arm_without_a_predictor_uses_the_default() {
    let store = Arc::new(MemoryStore::default());
    let experiments = experiments(&store, AssignmentUnit::Principal);
    let next = NextTools::new(Box::new(FailingPredictor::default()), OPTIONS)
        .with_arms(Vec::new(), Some(Arc::clone(&experiments)));
    next.set_ready();
    for n in 0..20_u8 {
        let principal = Principal::from_name(&format!("p{n}"));
        assert_eq!(
            next.predictor_of(Participant::of(&principal, connection_session(n))),
            0
        );
    }
}
