//! Plans of experiments, as an operator configures them, and their validation.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use strum::{IntoStaticStr, VariantArray};

use crate::id::needs_no_escaping;
use crate::prediction::PredictorSet;
use crate::recommendation::FactorWeights;
use crate::retrieval::RankFusion;
use crate::selection::ListPolicyName;

/// The unit of assignment: all its activity belongs to one arm.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum AssignmentUnit {
    /// A principal, with all its sessions.
    #[default]
    Principal,
    /// A work session.
    WorkSession,
}

impl AssignmentUnit {
    /// Returns the name under which the unit is configured and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// The metric of an experiment, measured for each unit.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum ExperimentMetric {
    /// The share of the unit's recommendations from which a tool was selected.
    #[default]
    ClickThrough,
    /// The share of the unit's recommendations from which a tool was selected and called
    /// successfully.
    Success,
    /// The share of the unit's calls that succeeded.
    CallSuccess,
    /// The share of tools that were in the list at their first call in a session.
    Coverage,
}

/// The event that a call is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallMeasure {
    /// Each call is a trial. It succeeds if the answer is a result without error.
    Success,
    /// The first call of each tool in a work session is a trial; without a derived work session, in
    /// a session. It succeeds if the client's list had the tool. Repeated calls are not counted,
    /// because used tools stay in the list.
    Coverage,
}

impl ExperimentMetric {
    /// Returns the name of the metric in the configuration and in output.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns the measure of calls; `None` for metrics of recommendations.
    #[must_use]
    pub fn call_measure(self) -> Option<CallMeasure> {
        match self {
            Self::ClickThrough | Self::Success => None,
            Self::CallSuccess => Some(CallMeasure::Success),
            Self::Coverage => Some(CallMeasure::Coverage),
        }
    }

    /// Returns whether the metric counts recommendations.
    #[must_use]
    pub fn is_of_recommendations(self) -> bool {
        self.call_measure().is_none()
    }
}

/// A setting that arms may override.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, IntoStaticStr, VariantArray,
)]
#[serde(rename_all = "snake_case")]
#[strum(serialize_all = "snake_case")]
pub enum Treatment {
    /// The weight of each factor of a recommendation.
    Weights,
    /// The rule that fuses the parts of a search score.
    Fusion,
    /// The policy for changes of lists.
    Policy,
    /// The predictors of the next tools of a session.
    Predictors,
}

impl Treatment {
    /// All treatments.
    pub const ALL: &'static [Self] = Self::VARIANTS;

    /// Returns the name of the treatment, which is its key in an arm.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }

    /// Returns whether it changes recommendations.
    #[must_use]
    pub fn is_of_recommendations(self) -> bool {
        matches!(self, Self::Weights | Self::Fusion)
    }
}

/// A rule that fuses the parts of a score.
#[derive(Clone, Debug, PartialEq)]
pub enum FusionRule {
    /// Scores are added.
    Score,
    /// Weighted reciprocal ranks are added.
    ReciprocalRank(RankFusion),
}

/// An arm. Its settings apply to its units; all other settings are as in the configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmPlan {
    /// The name of the arm.
    pub name: String,
    /// The share of all units in this arm, above 0 and at most 1.
    pub share: f64,
    /// The weight of each factor of a recommendation.
    pub weights: Option<FactorWeights>,
    /// The rule that fuses search scores.
    pub fusion: Option<FusionRule>,
    /// The policy for changes of lists.
    pub policy: Option<ListPolicyName>,
    /// The predictors of the next tools of a session.
    pub predictors: Option<PredictorSet>,
}

impl ArmPlan {
    /// Returns whether the arm has this setting.
    #[must_use]
    pub fn has(&self, lever: Treatment) -> bool {
        match lever {
            Treatment::Weights => self.weights.is_some(),
            Treatment::Fusion => self.fusion.is_some(),
            Treatment::Policy => self.policy.is_some(),
            Treatment::Predictors => self.predictors.is_some(),
        }
    }
}

/// An experiment, as an operator configures it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentPlan {
    /// The name of the experiment.
    pub name: String,
    /// Whether units are assigned to arms.
    pub is_running: bool,
    /// The unit of assignment.
    pub unit: AssignmentUnit,
    /// The measured metric.
    pub metric: ExperimentMetric,
    /// The error rate: the highest probability that any arm is ever called better or worse although
    /// none is.
    pub alpha: f64,
    /// The time after its first trial in which a unit is measured.
    pub window: Duration,
    /// The name of the arm that the others are compared with.
    pub control: String,
    /// The arms.
    pub arms: Vec<ArmPlan>,
}

impl ExperimentPlan {
    /// Returns the settings that differ in its arms.
    pub fn treatments(&self) -> impl Iterator<Item = Treatment> {
        let is_used = |lever: &Treatment| self.arms.iter().any(|arm| arm.has(*lever));
        Treatment::ALL.iter().copied().filter(is_used)
    }

    /// Returns whether one of its arms has this setting.
    #[must_use]
    pub fn changes(&self, lever: Treatment) -> bool {
        self.treatments().any(|changed| changed == lever)
    }

    /// Returns the arm with this name.
    #[must_use]
    pub fn arm(&self, name: &str) -> Option<&ArmPlan> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    fn check(&self) -> Result<(), PlanError> {
        let refuse = |key: &str, fault: PlanFault| Err(self.error(key, fault));
        if !is_valid_name(&self.name) {
            return refuse("", PlanFault::Name);
        }
        if self.arms.len() < 2 {
            return refuse("arms", PlanFault::TooFewArms(self.arms.len()));
        }
        for arm in &self.arms {
            let name = &arm.name;
            if !is_valid_name(name) {
                return refuse(&format!("arms.{name}"), PlanFault::Name);
            }
            // Negated comparisons, so that NaN is rejected, too.
            if !(arm.share > 0.0 && arm.share <= 1.0) {
                return refuse(&format!("arms.{name}.share"), PlanFault::Share(arm.share));
            }
        }
        let sum: f64 = self.arms.iter().map(|arm| arm.share).sum();
        if sum > 1.0 + FactorWeights::TOLERANCE {
            return refuse("arms", PlanFault::Shares(sum));
        }
        if self.arm(&self.control).is_none() {
            return refuse("control", PlanFault::NoControl(self.control.clone()));
        }
        if !(self.alpha > 0.0 && self.alpha <= 0.5) {
            return refuse("alpha", PlanFault::Alpha(self.alpha));
        }
        if !(SHORTEST_WINDOW..=LONGEST_WINDOW).contains(&self.window) {
            return refuse("window", PlanFault::Window);
        }
        if self.treatments().next().is_none() {
            return refuse("arms", PlanFault::NothingChanged);
        }
        let has_policy = self.changes(Treatment::Policy);
        if has_policy && self.unit != AssignmentUnit::Principal {
            return refuse("unit", PlanFault::PolicyUnit);
        }
        if has_policy && self.metric.is_of_recommendations() {
            return refuse("metric", PlanFault::PolicyMetric);
        }
        if self.changes(Treatment::Predictors) && self.metric.is_of_recommendations() {
            return refuse("metric", PlanFault::PredictorsMetric);
        }
        Ok(())
    }

    fn error(&self, key: &str, fault: PlanFault) -> PlanError {
        let parted = if key.is_empty() { "" } else { "." };
        PlanError {
            key: format!("{}{parted}{key}", self.name),
            fault,
        }
    }
}

const SHORTEST_WINDOW: Duration = Duration::from_mins(1);
const LONGEST_WINDOW: Duration = Duration::from_hours(24 * 365);

/// An invalid experiment: the key and the fault.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct PlanError {
    /// The invalid key, with the name of the experiment in front.
    pub key: String,
    /// The fault of the key.
    pub fault: PlanFault,
}

/// A fault of an experiment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanFault {
    /// A name has characters that are not allowed.
    #[error(
        "a name must be 1 to 64 characters of letters, digits, '-', '_' and '.', begin with a \
        letter or digit, and have no '__'"
    )]
    Name,
    /// Fewer than two arms.
    #[error("expected at least 2 arms, got {0}")]
    TooFewArms(usize),
    /// A share is outside its range.
    #[error("expected a number above 0 and at most 1, got {0}")]
    Share(f64),
    /// The shares of the arms sum to more than 1.
    #[error("the shares of the arms sum to {0}, which is more than 1")]
    Shares(f64),
    /// The control is not among the arms.
    #[error("unknown arm {0:?}")]
    NoControl(String),
    /// The error rate is outside its range.
    #[error("expected a number above 0 and at most 0.5, got {0}")]
    Alpha(f64),
    /// The window is too short or too long.
    #[error("expected a duration from 1 minute to 365 days")]
    Window,
    /// All arms are equal.
    #[error("no arm has weights, a fusion, a policy or predictors: there is nothing to compare")]
    NothingChanged,
    /// A policy needs principals as units, because the work sessions of a principal may share a
    /// list.
    #[error("arms with a policy need unit = \"principal\"")]
    PolicyUnit,
    /// A policy needs a metric of calls, because recommendations do not depend on lists.
    #[error("arms with a policy need metric = \"call_success\" or \"coverage\"")]
    PolicyMetric,
    /// Predictors need a metric of calls, because recommendations do not use predictions.
    #[error("arms with predictors need metric = \"call_success\" or \"coverage\"")]
    PredictorsMetric,
    /// Two running experiments have the same setting.
    #[error(
        "experiment {other} is running and also has arms with {lever}",
        lever = .lever.as_str()
    )]
    Overlap {
        /// The other experiment.
        other: String,
        /// The setting that is in both.
        lever: Treatment,
    },
    /// Two running experiments change recommendations.
    #[error(
        "experiment {0} is running and also changes recommendations: a recommendation belongs to \
         one experiment only"
    )]
    SameAnswers(String),
}

/// Validates each experiment, and checks the running ones for conflicts with each other.
///
/// # Errors
///
/// Returns the first [`PlanError`] in the order of the experiments.
pub fn check_plans(plans: &[ExperimentPlan]) -> Result<(), PlanError> {
    for (at, plan) in plans.iter().enumerate() {
        plan.check()?;
        let mut others = plans[..at].iter().filter(|other| other.is_running);
        let faults = |other: &ExperimentPlan| {
            let both = plan.treatments().find(|lever| other.changes(*lever));
            let name = other.name.clone();
            if let Some(lever) = both {
                return Some(PlanFault::Overlap { other: name, lever });
            }
            let recommends =
                |plan: &ExperimentPlan| plan.treatments().any(Treatment::is_of_recommendations);
            (recommends(plan) && recommends(other)).then_some(PlanFault::SameAnswers(name))
        };
        let fault = others.find_map(faults);
        if let Some(fault) = fault.filter(|_| plan.is_running) {
            return Err(plan.error("arms", fault));
        }
    }
    Ok(())
}

/// Returns whether a text is a valid name of an experiment or an arm: it can be part of a
/// configuration key, an address, an option and the name of a variable.
#[must_use]
pub fn is_valid_name(name: &str) -> bool {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    needs_no_escaping(name) && begins_well && !name.contains("__")
}

#[cfg(test)]
pub(super) mod tests;
