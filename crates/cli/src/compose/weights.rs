//! The weights of recommendations: their source and their tuning.

use std::sync::Arc;

use riglm_adapters_storage::Storage;
use riglm_discovery::weight_tuning::{TuningStores, TuningTask, WeightSource, WeightTuning};
use riglm_ports::clock::Clock;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::config::Config;

/// Returns the source of the weights. With a store, it follows the versions there, and starts
/// tuning if it is enabled.
pub(super) fn weights_from(
    config: &Config,
    storage: Option<&Storage>,
    clock: &Arc<dyn Clock>,
    (stop, tasks): (&CancellationToken, &TaskTracker),
) -> Arc<WeightSource> {
    let config = &config.recommend;
    let source = Arc::new(WeightSource::new(config.weights));
    let Some(storage) = storage else {
        return source;
    };
    let store = Arc::new(storage.store.clone());
    let watch = Arc::clone(&source).watch_changes(store.clone(), store.clone(), stop.clone());
    tasks.spawn(watch);
    if config.tuning.enabled {
        let stores = TuningStores::of(&store);
        let tuning = WeightTuning::new(stores, Arc::clone(&source), Arc::clone(clock));
        let task = TuningTask {
            tuning: Arc::new(tuning),
            store,
            config: config.tuning.clone(),
        };
        tasks.spawn(task.run(stop.clone()));
    }
    source
}
