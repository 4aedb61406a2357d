//! A/B experiments.

use std::sync::Arc;

use riglm_discovery::experiments::{ExperimentService, ExperimentStores, Experiments};

use super::foundation::Foundation;
use super::recording::hasher_from;

/// Returns the assignment of clients to arms, with the stored assignments loaded; `None` if no
/// experiment runs.
pub(super) async fn experiments_from(
    base: &Foundation<'_>,
) -> anyhow::Result<Option<Arc<Experiments>>> {
    let config = base.config;
    let is_running = config.experiments.iter().any(|plan| plan.is_running);
    let Some(store) = base.store().filter(|_| is_running) else {
        return Ok(None);
    };
    let stores = ExperimentStores {
        experiments: Arc::clone(&store) as _,
        changes: store,
    };
    let hasher = hasher_from(config)?;
    let clock = Arc::clone(&base.clock);
    let experiments = Experiments::new(&config.experiments, hasher, stores, clock);
    experiments.load().await;
    Ok(Some(Arc::new(experiments)))
}

/// Returns the service for operators of experiments; `None` if nothing is stored.
pub(super) fn experiment_service_from(base: &Foundation<'_>) -> Option<Arc<ExperimentService>> {
    let plans = base.config.experiments.clone();
    let service = ExperimentService::new(plans, base.store()?, Arc::clone(&base.clock));
    Some(Arc::new(service))
}
