//! Experiments: who takes part in which arm, what came of it, and what can be said of the arms.
//!
//! An [`ExperimentPlan`] is what an operator configured. [`ExperimentPlan::arm_of`] says which arm a
//! unit belongs to; [`settled`] makes one value of all that a unit did; [`compare`] compares the
//! values of an arm with those of the control, at any time.

mod assignment;
mod comparison;
mod outcome;
mod plan;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::principal::Principal;

pub use comparison::{Comparison, ComparisonVerdict, compare};
pub use outcome::{RecommendationOutcome, Settled, Trial, settled};
pub use plan::{
    ArmPlan, CallMeasure, ExperimentPlan, FusionRule, Lever, Metric, PlanError, PlanFault, Unit,
    check_plans, is_name,
};

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
    /// Who was assigned: a principal or a work session, by the text that identifies it.
    pub subject: String,
    /// When the assignment was made.
    pub assigned_at: Timestamp,
}

/// The end of an experiment before its configuration says so. There is no way back: what comes
/// after a pause could not be told from what came before it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentStop {
    /// The name of the experiment.
    pub experiment: String,
    /// When it ended.
    pub stopped_at: Timestamp,
    /// Who ended it.
    pub stopped_by: Principal,
    /// Why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
