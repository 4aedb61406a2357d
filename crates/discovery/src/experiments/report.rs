//! Reports on experiments.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::experiment::{
    ArmOutcome, Assignment, Comparison, ExperimentPlan, ExperimentStop, UnitTrial, arm_outcomes,
    compare,
};
use strum::IntoStaticStr;

/// State of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum ExperimentState {
    /// Units are assigned to arms.
    Running,
    /// The configuration disables the experiment.
    Disabled,
    /// An operator stopped the experiment.
    Stopped,
}

impl ExperimentState {
    /// Returns the state of an experiment.
    #[must_use]
    pub fn of(plan: &ExperimentPlan, stop: Option<&ExperimentStop>) -> Self {
        match (stop, plan.is_running) {
            (Some(_), _) => Self::Stopped,
            (None, true) => Self::Running,
            (None, false) => Self::Disabled,
        }
    }

    /// Returns the published name of the state.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// Results of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentReport {
    /// The experiment as configured.
    pub plan: ExperimentPlan,
    /// The state.
    pub state: ExperimentState,
    /// The stop, if an operator stopped the experiment.
    pub stop: Option<ExperimentStop>,
    /// Whether all trials were counted. Otherwise only the oldest were.
    pub is_complete: bool,
    /// The arms, in the order of the plan.
    pub arms: Vec<ArmReport>,
}

/// Results of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmReport {
    /// Name of the arm.
    pub name: String,
    /// Fraction of all units.
    pub share: f64,
    /// The number of assigned units.
    pub n_assigned: usize,
    /// Values of the units.
    pub settled: ArmOutcome,
    /// Comparison with the control, or `None` for the control itself.
    pub comparison: Option<Comparison>,
}

/// The inputs of a report.
#[derive(Debug)]
pub(super) struct ReportInputs {
    pub(super) stop: Option<ExperimentStop>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) trials: Vec<UnitTrial>,
    /// The time up to which the trials are complete, or `None` if all are there.
    pub(super) up_to: Option<Timestamp>,
}

impl ExperimentReport {
    /// Returns the report on an experiment at a time. Trials after the end of the experiment do not
    /// count. Units whose window is not over at the end have no value. The time up to which trials
    /// are complete also counts as an end.
    pub(super) fn new(plan: ExperimentPlan, evidence: ReportInputs, now: Timestamp) -> Self {
        let ReportInputs {
            stop,
            assignments,
            trials,
            up_to,
        } = evidence;
        let stopped_at = stop.as_ref().map(|stop| stop.stopped_at);
        let ends = [stopped_at, up_to].into_iter().flatten();
        let end = ends.fold(now, Timestamp::min);
        let counted: Vec<UnitTrial> = trials.into_iter().filter(|trial| trial.at <= end).collect();
        let mut settled: BTreeMap<String, ArmOutcome> = arm_outcomes(&counted, plan.window, end);
        let control = settled.get(&plan.control).cloned().unwrap_or_default();
        let n_compared = plan.arms.len().saturating_sub(1);
        let arms = plan.arms.iter().map(|arm| {
            let of_arm = settled.remove(&arm.name).unwrap_or_default();
            let is_control = arm.name == plan.control;
            let against = || compare(&of_arm.values, &control.values, plan.alpha, n_compared);
            let assigned = assignments.iter();
            ArmReport {
                name: arm.name.clone(),
                share: arm.share,
                n_assigned: assigned.filter(|one| one.arm.arm == arm.name).count(),
                comparison: (!is_control).then(against),
                settled: of_arm,
            }
        });
        let arms = arms.collect();
        Self {
            state: ExperimentState::of(&plan, stop.as_ref()),
            plan,
            stop,
            is_complete: up_to.is_none(),
            arms,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_states_are_stable() {
        let states = [
            ExperimentState::Running,
            ExperimentState::Disabled,
            ExperimentState::Stopped,
        ];
        assert_eq!(
            states.map(ExperimentState::as_str),
            ["running", "disabled", "stopped"]
        );
    }
}
