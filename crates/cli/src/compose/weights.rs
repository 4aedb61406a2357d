//! The weights of recommendations: their source and their tuning.

use std::sync::Arc;

use riglm_discovery::learning::LearningIsolation;
use riglm_discovery::weight_tuning::{TuningStores, TuningTask, WeightSource, WeightTuning};

use super::foundation::Foundation;
use super::learning::isolation;

/// Returns the source of the weights. With a store, it follows the versions there, and starts
/// tuning if it is enabled. Isolated principals have the configured weights, or the defaults: the
/// versions of the store follow from the feedback of all.
pub(super) fn weights_from(base: &Foundation<'_>) -> Arc<WeightSource> {
    let config = &base.config.recommend;
    let (stop, tasks) = (&base.stop, &base.tasks);
    let source = Arc::new(WeightSource::new(config.weights));
    let is_shared = isolation(&base.config.prediction) == LearningIsolation::Shared;
    let Some(store) = base.store().filter(|_| is_shared) else {
        return source;
    };
    let watch = Arc::clone(&source).watch_changes(store.clone(), store.clone(), stop.clone());
    tasks.spawn(watch);
    if config.tuning.enabled {
        let stores = TuningStores::of(&store);
        let tuning = WeightTuning::new(stores, Arc::clone(&source), Arc::clone(&base.clock));
        let task = TuningTask {
            tuning: Arc::new(tuning),
            store,
            config: config.tuning.clone(),
        };
        tasks.spawn(task.run(stop.clone()));
    }
    source
}
