//! Assignments to experiments.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::experiment::Assignment;

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
