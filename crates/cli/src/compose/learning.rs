//! What is learned from recorded calls.

use std::sync::Arc;

use riglm_adapters_http::{Learning as ControlLearning, LearningCondition, LearningHealth};
use riglm_adapters_prediction::{PredictionConfig, predictor_from};
use riglm_adapters_storage::Storage;
use riglm_app::learning::{LearningStores, LearningTask, NextTools, NextToolsOptions};
use riglm_ports::clock::Clock;

/// Returns what predicts, and the task that teaches it; `None` where it is switched off.
pub(super) fn learning_from(
    config: &PredictionConfig,
    storage: &Arc<Storage>,
    clock: Arc<dyn Clock>,
) -> Option<(Arc<NextTools>, LearningTask)> {
    if !config.enabled {
        return None;
    }
    let options = next_tools_options(config);
    let next_tools = Arc::new(NextTools::new(predictor_from(config), options));
    let store = Arc::new(storage.store.clone());
    let stores = LearningStores {
        calls: Arc::clone(&store) as _,
        contexts: Arc::clone(&store) as _,
        tools: Arc::clone(&store) as _,
        snapshots: Arc::clone(&store) as _,
        changes: store,
    };
    // What was learned with other numbers is not gone on with.
    let experts = config.experts.iter().map(|expert| expert.as_str());
    let model = format!(
        "next tool: {} {:?}, half-life {} days",
        config.predictor,
        experts.collect::<Vec<_>>(),
        config.half_life_days
    );
    let config = config.clone();
    let make = move || predictor_from(&config);
    let task = LearningTask::new(stores, clock, Arc::clone(&next_tools), model, make);
    Some((next_tools, task))
}

/// Returns how predictions are judged.
pub(super) fn next_tools_options(config: &PredictionConfig) -> NextToolsOptions {
    NextToolsOptions {
        measure: config.confidence,
        bands: config.bands(),
    }
}

/// Returns what the control server asks for the learning.
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
