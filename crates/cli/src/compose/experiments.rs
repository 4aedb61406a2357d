//! A/B experiments.

use std::sync::Arc;

use riglm_adapters_storage::Storage;
use riglm_discovery::experiments::{ExperimentService, ExperimentStores, Experiments};
use riglm_ports::clock::Clock;

use super::hasher_from;
use crate::config::Config;

/// Returns the assignment of clients to arms, with the stored assignments loaded; `None` if no
/// experiment runs.
pub(super) async fn experiments_from(
    config: &Config,
    storage: Option<&Arc<Storage>>,
    clock: Arc<dyn Clock>,
) -> anyhow::Result<Option<Arc<Experiments>>> {
    let is_running = config.experiments.iter().any(|plan| plan.is_running);
    let Some(storage) = storage.filter(|_| is_running) else {
        return Ok(None);
    };
    let store = Arc::new(storage.store.clone());
    let stores = ExperimentStores {
        experiments: Arc::clone(&store) as _,
        changes: store,
    };
    let hasher = hasher_from(config)?;
    let experiments = Experiments::new(&config.experiments, hasher, stores, clock);
    experiments.load().await;
    Ok(Some(Arc::new(experiments)))
}

/// Returns the service for operators of experiments; `None` if nothing is stored.
pub(super) fn experiment_service_from(
    config: &Config,
    storage: Option<&Arc<Storage>>,
    clock: Arc<dyn Clock>,
) -> Option<Arc<ExperimentService>> {
    let store = Arc::new(storage?.store.clone());
    let plans = config.experiments.clone();
    let desk = ExperimentService::new(plans, store, clock);
    Some(Arc::new(desk))
}
