//! What came of an experiment.

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::experiment::{
    Assignment, Comparison, ExperimentPlan, ExperimentStop, Settled, Trial, compare, settled,
};

/// Whether units are assigned to the arms of an experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExperimentState {
    /// They are.
    Running,
    /// The configuration says that they are not.
    Disabled,
    /// Somebody stopped it.
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

    /// Returns the name under which the state is shown.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Disabled => "disabled",
            Self::Stopped => "stopped",
        }
    }
}

/// What came of an experiment.
#[derive(Clone, Debug, PartialEq)]
pub struct ExperimentReport {
    /// The experiment as it is configured.
    pub plan: ExperimentPlan,
    /// Whether it runs.
    pub state: ExperimentState,
    /// Its end, where somebody stopped it.
    pub stop: Option<ExperimentStop>,
    /// Whether all was counted that happened; otherwise the oldest part of it.
    pub is_complete: bool,
    /// The arms, in their order in the plan.
    pub arms: Vec<ArmReport>,
}

/// What came of an arm.
#[derive(Clone, Debug, PartialEq)]
pub struct ArmReport {
    /// The name of the arm.
    pub name: String,
    /// Its share of all units.
    pub share: f64,
    /// How many units were assigned to it.
    pub n_assigned: usize,
    /// What they did.
    pub settled: Settled,
    /// The arm against the control; `None` of the control itself.
    pub comparison: Option<Comparison>,
}

/// What a report is made of.
#[derive(Debug)]
pub(super) struct Evidence {
    pub(super) stop: Option<ExperimentStop>,
    pub(super) assignments: Vec<Assignment>,
    pub(super) trials: Vec<Trial>,
    /// The moment up to which all that happened is there, where that is not now.
    pub(super) up_to: Option<Timestamp>,
}

impl ExperimentReport {
    /// Returns the report on an experiment at a moment. After its end nothing counts, and units whose
    /// window was not over by then stay without a value; so it is after the moment up to which all is
    /// there.
    pub(super) fn new(plan: ExperimentPlan, evidence: Evidence, now: Timestamp) -> Self {
        let Evidence {
            stop,
            assignments,
            trials,
            up_to,
        } = evidence;
        let stopped_at = stop.as_ref().map(|stop| stop.stopped_at);
        let ends = [stopped_at, up_to].into_iter().flatten();
        let end = ends.fold(now, Timestamp::min);
        let counted: Vec<Trial> = trials.into_iter().filter(|trial| trial.at <= end).collect();
        let mut settled: BTreeMap<String, Settled> = settled(&counted, plan.window, end);
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
