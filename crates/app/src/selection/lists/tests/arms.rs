//! Tests of lists with a predictor from the arm of an experiment.

use std::time::Duration;

use riglm_domain::experiment::{ArmPlan, AssignmentUnit, ExperimentMetric, ExperimentPlan};
use riglm_domain::prediction::{ExpertSet, PredictionMethod, PredictorSet};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_ports::analytics::ExperimentRepository as _;
use tokio_util::sync::CancellationToken;

use super::*;
use riglm_discovery::experiments::ExperimentStores;

/// Returns an experiment with all principals in it.
fn experiments(store: &Arc<MemoryStore>) -> Arc<Experiments> {
    let arm = |name: &str| ArmPlan {
        name: name.into(),
        share: 0.5,
        weights: None,
        fusion: None,
        policy: None,
        predictors: Some(PredictorSet::new(PredictionMethod::Mix, ExpertSet::ALL)),
    };
    let plan = ExperimentPlan {
        name: "e".into(),
        is_running: true,
        unit: AssignmentUnit::Principal,
        metric: ExperimentMetric::Coverage,
        alpha: 0.05,
        window: Duration::from_hours(1),
        control: "control".into(),
        arms: vec![arm("control"), arm("other")],
    };
    let stores = ExperimentStores {
        experiments: store.clone(),
        changes: store.clone(),
    };
    let clock = Arc::new(ManualClock::at(NOW));
    let hasher = KeyedHasher::new(&[1; 32]);
    Arc::new(Experiments::new(&[plan], hasher, stores, clock))
}

async fn assigned_subjects(experiments: &Arc<Experiments>, store: &MemoryStore) -> Vec<String> {
    let stop = CancellationToken::new();
    stop.cancel();
    Arc::clone(experiments).watch_changes(stop).await;
    let assigned = store.assignments("e").await.unwrap().into_iter();
    assigned.map(|one| one.subject).collect()
}

#[tokio::test]
async fn only_subjects_with_predicted_lists_join_experiments() {
    let store = Arc::new(MemoryStore::default());
    let experiments = experiments(&store);
    let is_failing = Arc::new(AtomicBool::new(false));
    let options = FilteringConfig::default();
    let usual: Vec<Vec<ToolRef>> = (0..60).map(|_| vec![tool(3)]).collect();
    let next_tools = trained_next_tools(&usual, NOW, Arc::clone(&is_failing))
        .with_arms(Vec::new(), Some(Arc::clone(&experiments)));
    let lists = Lists::new(ListsParts {
        experiments: None,
        search: SearchTerms::default(),
        observer: Arc::new(riglm_ports::observer::NoObserver),
        options: options.clone(),
        profiles: HashMap::new(),
        predictions: Arc::new(next_tools).into(),
        stores: None,
        overrides: Arc::default(),
        counter: Arc::new(WordCounter),
        clock: Arc::new(ManualClock::at(NOW)),
    });
    let [few, shown, modern_one, looked_at, failed] =
        ["few", "shown", "modern", "looked at", "failed"].map(Principal::from_name);
    // A catalog so small that nothing is predicted.
    let small = catalog_of(0..options.min_tools);
    lists.list(&request(&few, 1), &small).await;
    let catalog = catalog_of(0..N);
    assert!(
        lists
            .forecast(&request(&looked_at, 2), &catalog, 5)
            .await
            .is_some()
    );
    assert_eq!(
        assigned_subjects(&experiments, &store).await,
        [] as [String; 0]
    );
    let list = lists.list(&request(&shown, 3), &catalog).await;
    assert_eq!(list.mode, SelectionMode::Prediction);
    assert_eq!(assigned_subjects(&experiments, &store).await, ["shown"]);
    // Shared lists belong to a principal, too.
    lists.list(&modern(&modern_one, 4), &catalog).await;
    assert_eq!(
        assigned_subjects(&experiments, &store).await,
        ["modern", "shown"]
    );
    is_failing.store(true, Ordering::SeqCst);
    lists.list(&request(&failed, 5), &catalog).await;
    assert_eq!(
        assigned_subjects(&experiments, &store).await,
        ["modern", "shown"]
    );
}
