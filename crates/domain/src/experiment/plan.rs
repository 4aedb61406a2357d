//! Experiments as an operator wants them, and which of them cannot be.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::id::is_plain_name;
use crate::listing::ListPolicyName;
use crate::prediction::PredictorSet;
use crate::recommender::FactorWeights;
use crate::retrieval::RankFusion;

/// What is assigned to an arm as a whole.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Unit {
    /// All that a principal does.
    #[default]
    Principal,
    /// A work session.
    WorkSession,
}

impl Unit {
    /// Returns the name under which the unit is configured and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Principal => "principal",
            Self::WorkSession => "work_session",
        }
    }
}

/// What is counted for the units of an arm.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Metric {
    /// The share of its recommendations of which a tool was selected.
    #[default]
    ClickThrough,
    /// The share of its recommendations of which a tool was selected and its call succeeded.
    Success,
    /// The share of its calls that succeeded.
    CallSuccess,
    /// The share of the tools that it called in a session whose first call found them in the list.
    Coverage,
}

/// What a call counts as.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallMeasure {
    /// Each call is a trial, and goes well when it is answered with a result that is no error.
    Success,
    /// The first call of each tool in a work session, or in a session where none was derived, is a
    /// trial, and goes well when the client's list had the tool. A repeated call tells little: what
    /// was used stays listed.
    Coverage,
}

impl Metric {
    /// Returns the name under which the metric is configured and shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::ClickThrough => "click_through",
            Self::Success => "success",
            Self::CallSuccess => "call_success",
            Self::Coverage => "coverage",
        }
    }

    /// Returns what calls count as; `None` where recommendations are counted.
    #[must_use]
    pub fn of_calls(self) -> Option<CallMeasure> {
        match self {
            Self::ClickThrough | Self::Success => None,
            Self::CallSuccess => Some(CallMeasure::Success),
            Self::Coverage => Some(CallMeasure::Coverage),
        }
    }

    /// Returns whether it counts recommendations.
    #[must_use]
    pub fn is_of_recommendations(self) -> bool {
        self.of_calls().is_none()
    }
}

/// Something that arms may have in another way than the rest of the configuration says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lever {
    /// How much each factor of a recommendation counts.
    Weights,
    /// How the parts of the score of a search are fused.
    Fusion,
    /// When lists change.
    Policy,
    /// What the next tools of a session are predicted with.
    Predictors,
}

impl Lever {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::Weights, Self::Fusion, Self::Policy, Self::Predictors];

    /// Returns its name, which is the key of an arm.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Weights => "weights",
            Self::Fusion => "fusion",
            Self::Policy => "policy",
            Self::Predictors => "predictors",
        }
    }

    /// Returns whether it changes what is recommended.
    #[must_use]
    pub fn is_of_recommendations(self) -> bool {
        matches!(self, Self::Weights | Self::Fusion)
    }
}

/// How the parts of a score are fused.
#[derive(Clone, Debug, PartialEq)]
pub enum FusionRule {
    /// Scores are added.
    Score,
    /// Weighted reciprocal ranks are added.
    ReciprocalRank(RankFusion),
}

/// An arm: what is as it says is so for its units, everything else as it is for everybody.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmPlan {
    /// The name of the arm.
    pub name: String,
    /// The share of all units that belong to it, above 0 and at most 1.
    pub share: f64,
    /// How much each factor of a recommendation counts.
    pub weights: Option<FactorWeights>,
    /// How searches fuse scores.
    pub fusion: Option<FusionRule>,
    /// When lists change.
    pub policy: Option<ListPolicyName>,
    /// What the next tools of a session are predicted with.
    pub predictors: Option<PredictorSet>,
}

impl ArmPlan {
    /// Returns whether the arm says something of this.
    #[must_use]
    pub fn has(&self, lever: Lever) -> bool {
        match lever {
            Lever::Weights => self.weights.is_some(),
            Lever::Fusion => self.fusion.is_some(),
            Lever::Policy => self.policy.is_some(),
            Lever::Predictors => self.predictors.is_some(),
        }
    }
}

/// An experiment as an operator wants it.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentPlan {
    /// The name of the experiment.
    pub name: String,
    /// Whether units are assigned to arms.
    pub is_running: bool,
    /// What is assigned.
    pub unit: Unit,
    /// What is counted.
    pub metric: Metric,
    /// How likely it may be that any arm is ever called better or worse although none is.
    pub alpha: f64,
    /// How long after its beginning it is counted what a unit does.
    pub window: Duration,
    /// The name of the arm that the others are compared with.
    pub control: String,
    /// The arms.
    pub arms: Vec<ArmPlan>,
}

impl ExperimentPlan {
    /// Returns what its arms change.
    pub fn levers(&self) -> impl Iterator<Item = Lever> {
        let is_used = |lever: &Lever| self.arms.iter().any(|arm| arm.has(*lever));
        Lever::ALL.into_iter().filter(is_used)
    }

    /// Returns whether one of its arms says something of this.
    #[must_use]
    pub fn changes(&self, lever: Lever) -> bool {
        self.levers().any(|changed| changed == lever)
    }

    /// Returns the arm with this name.
    #[must_use]
    pub fn arm(&self, name: &str) -> Option<&ArmPlan> {
        self.arms.iter().find(|arm| arm.name == name)
    }

    fn check(&self) -> Result<(), PlanError> {
        let refuse = |key: &str, fault: PlanFault| Err(self.error(key, fault));
        if !is_name(&self.name) {
            return refuse("", PlanFault::Name);
        }
        if self.arms.len() < 2 {
            return refuse("arms", PlanFault::TooFewArms(self.arms.len()));
        }
        for arm in &self.arms {
            let name = &arm.name;
            if !is_name(name) {
                return refuse(&format!("arms.{name}"), PlanFault::Name);
            }
            // Written so that it holds for what is no number, too.
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
        if self.levers().next().is_none() {
            return refuse("arms", PlanFault::NothingChanged);
        }
        let has_policy = self.changes(Lever::Policy);
        if has_policy && self.unit != Unit::Principal {
            return refuse("unit", PlanFault::PolicyUnit);
        }
        if has_policy && self.metric.is_of_recommendations() {
            return refuse("metric", PlanFault::PolicyMetric);
        }
        if self.changes(Lever::Predictors) && self.metric.is_of_recommendations() {
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

/// Why an experiment cannot be.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[error("{key}: {fault}")]
pub struct PlanError {
    /// The key that is wrong, from the name of the experiment on.
    pub key: String,
    /// What is wrong with it.
    pub fault: PlanFault,
}

/// What is wrong with an experiment.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PlanFault {
    /// A name is not plain.
    #[error(
        "a name must be 1 to 64 characters of letters, digits, '-', '_' and '.', begin with a \
        letter or digit, and have no '__'"
    )]
    Name,
    /// There is nothing to compare.
    #[error("expected at least 2 arms, got {0}")]
    TooFewArms(usize),
    /// A share is none.
    #[error("expected a number above 0 and at most 1, got {0}")]
    Share(f64),
    /// Arms overlap.
    #[error("the shares of the arms sum to {0}, which is more than 1")]
    Shares(f64),
    /// The arm to compare with is missing.
    #[error("there is no arm {0:?}")]
    NoControl(String),
    /// An error rate is none that makes sense.
    #[error("expected a number above 0 and at most 0.5, got {0}")]
    Alpha(f64),
    /// Too short, or too long.
    #[error("expected a duration from 1 minute to 365 days")]
    Window,
    /// All arms are the same.
    #[error("no arm has weights, a fusion, a policy or predictors: there is nothing to compare")]
    NothingChanged,
    /// A list may be shared by the work sessions of a principal.
    #[error("arms with a policy need unit = \"principal\"")]
    PolicyUnit,
    /// A recommendation does not tell what came of a list.
    #[error("arms with a policy need metric = \"call_success\" or \"coverage\"")]
    PolicyMetric,
    /// Recommendations are not made of predictions.
    #[error("arms with predictors need metric = \"call_success\" or \"coverage\"")]
    PredictorsMetric,
    /// Two experiments would decide the same.
    #[error("experiment {other} is running and has arms with {lever}, too", lever = .lever.as_str())]
    Overlap {
        /// The other experiment.
        other: String,
        /// What both decide.
        lever: Lever,
    },
    /// Two experiments would change the same answers.
    #[error(
        "experiment {0} is running and changes what is recommended, too: a recommendation belongs \
        to one experiment"
    )]
    SameAnswers(String),
}

/// Checks experiments, each by itself and those that run against each other.
///
/// # Errors
///
/// Returns the first [`PlanError`] in the order of the experiments.
pub fn check_plans(plans: &[ExperimentPlan]) -> Result<(), PlanError> {
    for (at, plan) in plans.iter().enumerate() {
        plan.check()?;
        let mut others = plans[..at].iter().filter(|other| other.is_running);
        let faults = |other: &ExperimentPlan| {
            let both = plan.levers().find(|lever| other.changes(*lever));
            let name = other.name.clone();
            if let Some(lever) = both {
                return Some(PlanFault::Overlap { other: name, lever });
            }
            let recommends =
                |plan: &ExperimentPlan| plan.levers().any(Lever::is_of_recommendations);
            (recommends(plan) && recommends(other)).then_some(PlanFault::SameAnswers(name))
        };
        let fault = others.find_map(faults);
        if let Some(fault) = fault.filter(|_| plan.is_running) {
            return Err(plan.error("arms", fault));
        }
    }
    Ok(())
}

/// Returns whether a text can be the name of an experiment or of an arm: one that can stand in a
/// configuration key, an address, an option and the name of a variable.
#[must_use]
pub fn is_name(name: &str) -> bool {
    let begins_well = name.starts_with(|first: char| first.is_ascii_alphanumeric());
    is_plain_name(name) && begins_well && !name.contains("__")
}

#[cfg(test)]
pub(super) mod tests;
