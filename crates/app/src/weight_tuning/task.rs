//! Weights are tuned from time to time while the proxy runs.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::principal::Principal;
use riglm_ports::analytics::{Maintenance, MaintenanceTask};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;
use tracing::{info, warn};

use super::{RunOptions, RunOutcome, TuningError, TuningRun, WeightTuning};

/// How long the first run waits at most: a process that is started every day would never tune.
const FIRST_AFTER: Duration = Duration::from_mins(10);

/// Who the audit trail says it was.
const ACTOR: &str = "weight tuning";

/// Tunes weights at intervals.
#[derive(Debug)]
pub struct TuningTask {
    /// What tunes them.
    pub tuning: Arc<WeightTuning>,
    /// Keeps other processes from it meanwhile.
    pub store: Arc<dyn Maintenance>,
    /// How they are tuned.
    pub options: RunOptions,
    /// The time between two runs.
    pub interval: Duration,
}

impl TuningTask {
    /// Tunes ten minutes after the start, or after one interval if that is shorter, and then at
    /// intervals, until `stop`. Does nothing while another process does, while the configuration
    /// has weights, or while somebody has gone back to an earlier version. Failures are logged.
    pub async fn run(self, stop: CancellationToken) {
        stop.run_until_cancelled_owned(self.tune_for_ever()).await;
    }

    async fn tune_for_ever(self) {
        sleep(FIRST_AFTER.min(self.interval)).await;
        loop {
            match self.tune_once().await {
                Ok(Some(run)) if matches!(run.outcome, RunOutcome::Adopted { .. }) => {
                    info!("{run}");
                }

                Ok(Some(run)) => tracing::debug!("{run}"),
                Ok(None) => {}
                Err(error @ TuningError::Configured) => {
                    info!("the weights of recommendations are not tuned: {error}");
                }
                Err(error) => {
                    let error = &error as &dyn std::error::Error;
                    warn!(error, "could not tune the weights of recommendations");
                }
            }
            sleep(self.interval).await;
        }
    }

    /// Tunes once; `None` while another process does, or while somebody has gone back to an earlier
    /// version, which stays until somebody decides otherwise.
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
        let actor = Principal::named(ACTOR);
        let run = self.tuning.tune(&self.options, &actor).await?;
        Ok(Some(run))
    }
}
