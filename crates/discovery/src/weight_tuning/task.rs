//! Periodic tuning of the weights while the proxy runs.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{Maintenance, MaintenanceTask};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{RunOutcome, TuningError, TuningRun, WeightTuning, WeightTuningConfig};

/// Longest delay of the first run. With the full interval, a process that is restarted every day
/// would never tune.
const FIRST_AFTER: Duration = Duration::from_mins(10);

/// Actor in the audit trail.
const ACTOR: &str = "weight tuning";

/// Tunes weights at intervals.
#[derive(Debug)]
pub struct TuningTask {
    /// The tuning service.
    pub tuning: Arc<WeightTuning>,
    /// Lock between processes.
    pub store: Arc<dyn Maintenance>,
    /// Configuration of the runs.
    pub config: WeightTuningConfig,
}

impl TuningTask {
    /// Tunes ten minutes after the start, or after one interval if that is shorter, and then at
    /// intervals, until cancelled. A run is skipped while another process tunes, while the
    /// configuration has weights, and while an earlier version is in use. Errors are logged.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled_owned(self.tune_for_ever()).await;
    }

    async fn tune_for_ever(self) {
        sleep(FIRST_AFTER.min(self.config.interval)).await;
        loop {
            match self.tune_once().await {
                Ok(Some(run)) if matches!(run.outcome, RunOutcome::Adopted { .. }) => {
                    info!("{run}");
                }

                Ok(Some(run)) => tracing::debug!("{run}"),
                Ok(None) => {}
                Err(error @ TuningError::Configured) => {
                    info!("recommendation weights are not tuned: {error}");
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "failed to tune recommendation weights");
                }
            }
            sleep(self.config.interval).await;
        }
    }

    /// Tunes once. Returns `None` while another process tunes, or while an operator has rolled back
    /// to an earlier version.
    ///
    /// # Errors
    ///
    /// As for [`WeightTuning::tune`].
    pub async fn tune_once(&self) -> Result<Option<TuningRun>, TuningError> {
        let Some(_guard) = self.store.try_begin(MaintenanceTask::WeightTuning).await? else {
            return Ok(None);
        };
        if self.tuning.is_rolled_back().await? {
            return Ok(None);
        }
        let actor = Principal::from_name(ACTOR);
        let run = self.tuning.tune(&self.config, &actor).await?;
        Ok(Some(run))
    }
}
