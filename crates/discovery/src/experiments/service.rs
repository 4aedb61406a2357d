//! Reports on experiments for operators, and their stop.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::experiment::{ExperimentPlan, ExperimentStop, UnitTrial};
use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::privacy::redaction::redact_text;
use riglm_ports::analytics::{ExperimentRepository, StoreError};
use riglm_ports::clock::Clock;

use super::report::{ExperimentReport, ExperimentState, ReportInputs};
use crate::entropy::EntropySource;

/// Maximum length of a stored reason in bytes.
const MAX_REASON_BYTES: usize = 4 << 10;

/// An experiment, its state, and its stop if it was stopped.
pub type ExperimentSummary<'a> = (&'a ExperimentPlan, ExperimentState, Option<ExperimentStop>);

/// Maximum number of recommendations or calls in a report, oldest first.
const MAX_TRIALS: u32 = 200_000;

/// Lists, evaluates and stops experiments.
#[derive(Debug)]
pub struct ExperimentService {
    plans: Vec<ExperimentPlan>,
    experiments: Arc<dyn ExperimentRepository>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
    max_trials: u32,
}

/// Recorded trials of an experiment.
struct RecordedTrials {
    trials: Vec<UnitTrial>,
    /// The time up to which the trials are complete, or `None` if all are there.
    up_to: Option<Timestamp>,
}

impl ExperimentService {
    /// Returns a service for these experiments over a store.
    #[must_use]
    pub fn new(
        plans: Vec<ExperimentPlan>,
        experiments: Arc<dyn ExperimentRepository>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            plans,
            experiments,
            clock,
            entropy: EntropySource::new(),
            max_trials: MAX_TRIALS,
        }
    }

    /// Returns all configured experiments, each with its state and its stop.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn all(&self) -> Result<Vec<ExperimentSummary<'_>>, StoreError> {
        let stops = self.experiments.experiment_stops().await?;
        let with_state = self.plans.iter().map(|plan| {
            let stop = stops.iter().find(|stop| stop.experiment == plan.name);
            (plan, ExperimentState::of(plan, stop), stop.cloned())
        });
        Ok(with_state.collect())
    }

    /// Evaluates an experiment. Returns `None` if it is not configured.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn report(&self, name: &str) -> Result<Option<ExperimentReport>, StoreError> {
        let Some(plan) = self.plan(name) else {
            return Ok(None);
        };
        let RecordedTrials { trials, up_to } = self.load_trials(plan).await?;
        let evidence = ReportInputs {
            stop: self.stop_of(name).await?,
            assignments: self.experiments.assignments(name).await?,
            up_to,
            trials,
        };
        let (plan, now) = (plan.clone(), self.clock.now());
        // The comparison of many units is slow, so it runs on a blocking thread.
        let made = tokio::task::spawn_blocking(move || ExperimentReport::new(plan, evidence, now));
        let made = made.await.map_err(|error| StoreError::Failed {
            operation: "compare the arms of an experiment",
            source: Box::new(error),
        });
        made.map(Some)
    }

    /// Stops an experiment permanently, for all processes that share the store. Its units then get
    /// the default treatment. Returns the stop, which is the earlier one if it was stopped before.
    /// Returns `None` if the experiment is not configured.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn stop(
        &self,
        name: &str,
        reason: Option<String>,
        actor: &Principal,
    ) -> Result<Option<ExperimentStop>, StoreError> {
        if self.plan(name).is_none() {
            return Ok(None);
        }
        // The store has microseconds. A later request returns the same time.
        let now = self.clock.now();
        let now = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
        let stop = ExperimentStop {
            experiment: name.into(),
            stopped_at: now,
            stopped_by: actor.clone(),
            reason: reason.map(|reason| redact_text(&reason, MAX_REASON_BYTES)),
        };
        let audit = AuditEntry {
            id: AuditId::new(now, self.entropy.next()),
            at: now,
            actor: actor.clone(),
            action: "experiment.stop".into(),
            target: name.into(),
            detail: serde_json::to_string(&stop).ok(),
        };
        if self.experiments.stop_experiment(&stop, &audit).await? {
            return Ok(Some(stop));
        }
        let earlier = self.stop_of(name).await?;
        Ok(earlier.or(Some(stop)))
    }

    fn plan(&self, name: &str) -> Option<&ExperimentPlan> {
        self.plans.iter().find(|plan| plan.name == name)
    }

    async fn stop_of(&self, name: &str) -> Result<Option<ExperimentStop>, StoreError> {
        let stops = self.experiments.experiment_stops().await?;
        Ok(stops.into_iter().find(|stop| stop.experiment == name))
    }

    async fn load_trials(&self, plan: &ExperimentPlan) -> Result<RecordedTrials, StoreError> {
        let store = &self.experiments;
        let n = usize::try_from(self.max_trials).unwrap_or(usize::MAX);
        // One more trial than the limit shows whether the data are cut, and at which time. Trials
        // are sorted by identifier, which is the order of time in milliseconds.
        let limit = self.max_trials.saturating_add(1);
        let in_ms = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        if let Some(measure) = plan.metric.call_measure() {
            let (unit, window) = (plan.unit, plan.window);
            let calls = store.call_trials(&plan.name, unit, measure, window, limit);
            let mut trials = calls.await?;
            let up_to = trials.get(n).map(|left_out| in_ms(left_out.at));
            trials.truncate(n);
            return Ok(RecordedTrials { trials, up_to });
        }
        let outcomes = store.recommendation_outcomes(&plan.name, limit).await?;
        let up_to = outcomes.get(n).map(|left_out| in_ms(left_out.shown_at));
        let counted = outcomes.iter().take(n);
        let trials = counted.filter_map(|outcome| outcome.trial(plan.unit, plan.metric));
        Ok(RecordedTrials {
            trials: trials.collect(),
            up_to,
        })
    }
}

#[cfg(test)]
mod tests;
