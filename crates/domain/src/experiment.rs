//! Who takes part in which arm of an experiment.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// An arm of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExperimentArm {
    /// The name of the experiment.
    pub experiment: String,
    /// The name of the arm.
    pub arm: String,
}

/// The arm that a subject was assigned to. It stays, whatever becomes of the experiment.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The arm.
    pub arm: ExperimentArm,
    /// Who was assigned: a principal, a client or a session, by the text that identifies it.
    pub subject: String,
    /// When the assignment was made.
    pub assigned_at: Timestamp,
}
