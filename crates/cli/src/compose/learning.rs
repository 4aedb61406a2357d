//! Learning from recorded calls.

use std::sync::Arc;

use riglm_adapters_http::{Learning as ControlLearning, LearningCondition, LearningHealth};
use riglm_adapters_prediction::{PredictionConfig, predictor_from};
use riglm_discovery::experiments::Experiments;
use riglm_discovery::learning::{
    ArmPredictor, LearningStores, LearningTask, NextTools, NextToolsOptions,
};

use super::foundation::Foundation;

/// Returns the predictor, and the task that trains it; `None` if prediction is off or nothing is
/// stored.
pub(super) fn learning_from(
    base: &Foundation<'_>,
    experiments: Option<&Arc<Experiments>>,
) -> Option<(Arc<NextTools>, LearningTask)> {
    let config = &base.config.prediction;
    let store = base.store().filter(|_| config.enabled)?;
    let options = next_tools_options(config);
    let next_tools = NextTools::new(predictor_from(config), options)
        .with_arms(arm_predictors(config, experiments), experiments.cloned());
    let next_tools = Arc::new(next_tools);
    let stores = LearningStores {
        calls: Arc::clone(&store) as _,
        contexts: Arc::clone(&store) as _,
        tools: Arc::clone(&store) as _,
        activities: Arc::clone(&store) as _,
        snapshots: Arc::clone(&store) as _,
        changes: store,
    };
    let model = config.model();
    let config = config.clone();
    let make = move || predictor_from(&config);
    let clock = Arc::clone(&base.clock);
    let task = LearningTask::new(stores, clock, Arc::clone(&next_tools), model, make);
    Some((next_tools, task))
}

/// Returns the predictors of experiment arms that differ from that of the configuration.
fn arm_predictors(
    config: &PredictionConfig,
    experiments: Option<&Arc<Experiments>>,
) -> Vec<ArmPredictor> {
    let named = experiments.map_or_else(Vec::new, |experiments| experiments.predictors());
    let others = named.into_iter().filter(|set| *set != config.predictors());
    let predictor = |set| {
        let of_arm = config.with_predictors(set);
        ArmPredictor {
            set,
            model: of_arm.model(),
            make: Arc::new(move || predictor_from(&of_arm)),
        }
    };
    others.map(predictor).collect()
}

/// Returns the options for the confidence in predictions.
pub(super) fn next_tools_options(config: &PredictionConfig) -> NextToolsOptions {
    NextToolsOptions {
        measure: config.confidence,
        bands: config.bands(),
        shows_all: config.shows_all(),
    }
}

/// Returns the source of the health of the learning.
pub(super) fn learning_state(next_tools: Option<Arc<NextTools>>) -> ControlLearning {
    Arc::new(move || match &next_tools {
        None => LearningHealth {
            condition: LearningCondition::Off,
            learned_calls: 0,
            failures: 0,
        },
        Some(next_tools) => LearningHealth {
            condition: if next_tools.is_delayed() {
                LearningCondition::Delayed
            } else if next_tools.is_ready() {
                LearningCondition::Ok
            } else {
                LearningCondition::Starting
            },
            learned_calls: next_tools.n_learned(),
            failures: next_tools.n_failed(),
        },
    })
}
