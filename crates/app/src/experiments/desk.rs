//! What operators are told of experiments, and how they stop one.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::experiment::{ExperimentPlan, ExperimentStop, Trial};
use riglm_domain::id::AuditId;
use riglm_domain::principal::Principal;
use riglm_domain::redaction::redacted_text;
use riglm_ports::analytics::{AssignmentRepository, ExperimentRepository, StoreError};
use riglm_ports::clock::Clock;

use super::report::{Evidence, ExperimentReport, ExperimentState};
use crate::tracking::EntropySource;

/// The longest reason that is stored, in bytes.
const MAX_REASON_BYTES: usize = 4 << 10;

/// An experiment, whether it runs, and its end where somebody stopped it.
pub type ListedExperiment<'a> = (&'a ExperimentPlan, ExperimentState, Option<ExperimentStop>);

/// The most recommendations or calls that a report is made of, the oldest of all.
const MAX_TRIALS: u32 = 200_000;

/// Tells what came of experiments, and stops them.
#[derive(Debug)]
pub struct ExperimentDesk {
    plans: Vec<ExperimentPlan>,
    assignments: Arc<dyn AssignmentRepository>,
    experiments: Arc<dyn ExperimentRepository>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
    max_trials: u32,
}

/// What happened in an experiment.
struct Happened {
    trials: Vec<Trial>,
    /// The moment up to which all of it is there, where that is not now.
    up_to: Option<Timestamp>,
}

impl ExperimentDesk {
    /// Returns a desk for these experiments, over a store.
    #[must_use]
    pub fn new(
        plans: Vec<ExperimentPlan>,
        assignments: Arc<dyn AssignmentRepository>,
        experiments: Arc<dyn ExperimentRepository>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            plans,
            assignments,
            experiments,
            clock,
            entropy: EntropySource::new(),
            max_trials: MAX_TRIALS,
        }
    }

    /// Returns all experiments that are configured, each with whether it runs and its end.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn all(&self) -> Result<Vec<ListedExperiment<'_>>, StoreError> {
        let stops = self.experiments.experiment_stops().await?;
        let with_state = self.plans.iter().map(|plan| {
            let stop = stops.iter().find(|stop| stop.experiment == plan.name);
            (plan, ExperimentState::of(plan, stop), stop.cloned())
        });
        Ok(with_state.collect())
    }

    /// Returns what came of an experiment so far; `None` of one that is not configured.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn report(&self, name: &str) -> Result<Option<ExperimentReport>, StoreError> {
        let Some(plan) = self.plan(name) else {
            return Ok(None);
        };
        let Happened { trials, up_to } = self.happened(plan).await?;
        let evidence = Evidence {
            stop: self.stop_of(name).await?,
            assignments: self.assignments.assignments(name).await?,
            up_to,
            trials,
        };
        let (plan, now) = (plan.clone(), self.clock.now());
        // Many units take a while to be compared.
        let made = tokio::task::spawn_blocking(move || ExperimentReport::new(plan, evidence, now));
        let made = made.await.map_err(|error| StoreError::Failed {
            operation: "compare the arms of an experiment",
            source: Box::new(error),
        });
        made.map(Some)
    }

    /// Stops an experiment for all processes that share the store, for ever: from then on everything
    /// is for its units as it is for everybody. Returns its end, which is an earlier one where it was
    /// stopped before; `None` for an experiment that is not configured.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn stop(
        &self,
        name: &str,
        reason: Option<String>,
        actor: &Principal,
    ) -> Result<Option<ExperimentStop>, StoreError> {
        if self.plan(name).is_none() {
            return Ok(None);
        }
        // As it is stored: whoever asks again is told the same.
        let now = self.clock.now();
        let now = Timestamp::from_microsecond(now.as_microsecond()).unwrap_or(now);
        let stop = ExperimentStop {
            experiment: name.into(),
            stopped_at: now,
            stopped_by: actor.clone(),
            reason: reason.map(|reason| redacted_text(&reason, MAX_REASON_BYTES)),
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

    async fn happened(&self, plan: &ExperimentPlan) -> Result<Happened, StoreError> {
        let store = &self.experiments;
        let n = usize::try_from(self.max_trials).unwrap_or(usize::MAX);
        // One more tells whether there are more, and from when on. They are in the order of their
        // identifiers, which is that of their moments but for the part of a millisecond.
        let limit = self.max_trials.saturating_add(1);
        let in_ms = |at: Timestamp| Timestamp::from_millisecond(at.as_millisecond()).unwrap_or(at);
        if let Some(measure) = plan.metric.of_calls() {
            let (unit, window) = (plan.unit, plan.window);
            let calls = store.call_trials(&plan.name, unit, measure, window, limit);
            let mut trials = calls.await?;
            let up_to = trials.get(n).map(|left_out| in_ms(left_out.at));
            trials.truncate(n);
            return Ok(Happened { trials, up_to });
        }
        let outcomes = store.recommendation_outcomes(&plan.name, limit).await?;
        let up_to = outcomes.get(n).map(|left_out| in_ms(left_out.shown_at));
        let counted = outcomes.iter().take(n);
        let trials = counted.filter_map(|outcome| outcome.trial(plan.unit, plan.metric));
        Ok(Happened {
            trials: trials.collect(),
            up_to,
        })
    }
}

#[cfg(test)]
mod tests;
