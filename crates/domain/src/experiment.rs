//! Experiments (A/B tests): assignment of units to arms, outcomes, and statistics of arms.
//!
//! An [`ExperimentPlan`] is the configuration of an experiment. [`ExperimentPlan::arm_of`] assigns
//! a unit to an arm. [`arm_outcomes`] reduces the trials of each unit to one value. [`compare`] compares
//! the values of an arm with the values of the control; it may be called at any time.

#[cfg(feature = "keys")]
mod assignment;
mod comparison;
mod outcome;
mod plan;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::privacy::principal::Principal;

pub use comparison::{Comparison, ComparisonVerdict, compare};
pub use outcome::{ArmOutcome, RecommendationOutcome, UnitTrial, arm_outcomes};
pub use plan::{
    ArmPlan, AssignmentUnit, CallMeasure, ExperimentMetric, ExperimentPlan, FusionRule, PlanError,
    PlanFault, Treatment, check_plans, is_valid_name,
};

/// An arm of an experiment.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExperimentArm {
    /// The name of the experiment.
    pub experiment: String,
    /// The name of the arm.
    pub arm: String,
}

/// The arm to which a subject was assigned. It is kept even if the experiment changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Assignment {
    /// The arm.
    pub arm: ExperimentArm,
    /// The assigned subject: a principal or a work session, by the text that identifies it.
    pub subject: String,
    /// Time of the assignment.
    pub assigned_at: Timestamp,
}

/// The end of an experiment by an operator. It is final: after a pause, effects from before and
/// after it could not be separated.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExperimentStop {
    /// The name of the experiment.
    pub experiment: String,
    /// Time of the stop.
    pub stopped_at: Timestamp,
    /// The principal that stopped it.
    pub stopped_by: Principal,
    /// The stated reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
