//! Experiments: assignments, ends, and what came of them.

use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::audit::AuditEntry;
use riglm_domain::experiment::{
    Assignment, CallMeasure, ExperimentStop, RecommendationOutcome, Trial, Unit,
};

use super::StoreError;

/// Keeps who takes part in which arm.
#[async_trait]
pub trait AssignmentRepository: Send + Sync + fmt::Debug {
    /// Assigns a subject to an arm of an experiment unless it has one; returns the assignment that
    /// holds. Of several assignments at once all return the same.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take it.
    async fn assign(&self, assignment: &Assignment) -> Result<Assignment, StoreError>;

    /// Returns the assignments of an experiment, ordered by subject.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn assignments(&self, experiment: &str) -> Result<Vec<Assignment>, StoreError>;
}

/// Keeps which experiments were stopped, and tells what came of them.
#[async_trait]
pub trait ExperimentRepository: Send + Sync + fmt::Debug {
    /// Stops an experiment; returns whether it was not stopped before. The entry for the audit trail
    /// is written together with it, and [`Topic::Experiments`](super::Topic::Experiments) changes; of
    /// one that was stopped before nothing is written.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take it.
    async fn stop_experiment(
        &self,
        stop: &ExperimentStop,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError>;

    /// Returns all experiments that were stopped, ordered by name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn experiment_stops(&self) -> Result<Vec<ExperimentStop>, StoreError>;

    /// Returns what became of the oldest `limit` recommendations of an experiment by identifier,
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

    /// Returns what became of the oldest `limit` calls by identifier, oldest first, of those that the
    /// units of an experiment made within `window` of their assignment, and that the measure counts.
    /// Which call of a tool is the first of its session is told among these calls alone. With
    /// [`CallMeasure::Coverage`] a call goes well at the moment at which it begins.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn call_trials(
        &self,
        experiment: &str,
        unit: Unit,
        measure: CallMeasure,
        window: Duration,
        limit: u32,
    ) -> Result<Vec<Trial>, StoreError>;
}
