//! Experiments: assignments, stops and outcomes.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::experiment::{
    Assignment, AssignmentUnit, CallMeasure, ExperimentStop, RecommendationOutcome, UnitTrial,
};
use riglm_domain::privacy::audit::AuditEntry;

use super::StoreError;

/// Stores the arm of each subject of an experiment and the stops of experiments, and reads their
/// outcomes.
#[async_trait]
pub trait ExperimentRepository: Send + Sync + fmt::Debug {
    /// Assigns a subject to an arm of an experiment unless it has one. Returns the assignment that
    /// is in force. Concurrent calls all return the same assignment.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects it.
    async fn assign(&self, assignment: &Assignment) -> Result<Assignment, StoreError>;

    /// Returns the assignments of an experiment, ordered by subject.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn assignments(&self, experiment: &str) -> Result<Vec<Assignment>, StoreError>;

    /// Stops an experiment; returns false if it was stopped before.
    ///
    /// The entry for the audit trail is written in the same transaction, and
    /// [`Topic::Experiments`](super::Topic::Experiments) changes. For an experiment that was
    /// stopped before, nothing is written.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects it.
    async fn stop_experiment(
        &self,
        stop: &ExperimentStop,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError>;

    /// Returns the stops of all experiments, ordered by name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn experiment_stops(&self) -> Result<Vec<ExperimentStop>, StoreError>;

    /// Returns the outcomes of the oldest `limit` recommendations of an experiment by identifier,
    /// oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn recommendation_outcomes(
        &self,
        experiment: &str,
        limit: u32,
    ) -> Result<Vec<RecommendationOutcome>, StoreError>;

    /// Returns the oldest `limit` calls of an experiment as trials, by identifier, oldest first.
    ///
    /// Included are calls that units of the experiment made within `window` of their assignment,
    /// and that the measure counts. Among these calls alone, the first call of a tool in its
    /// session is determined. With [`CallMeasure::Coverage`] a call succeeds at the moment at which
    /// it begins.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn call_trials(
        &self,
        experiment: &str,
        unit: AssignmentUnit,
        measure: CallMeasure,
        window: Duration,
        limit: u32,
    ) -> Result<Vec<UnitTrial>, StoreError>;
}
