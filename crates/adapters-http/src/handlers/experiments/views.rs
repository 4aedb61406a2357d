//! Experiments as they are answered.

use jiff::Timestamp;
use riglm_app::experiments::{ArmReport, ExperimentReport, ExperimentState};
use riglm_domain::experiment::{
    Comparison, ComparisonVerdict, ExperimentPlan, ExperimentStop, Lever, Metric, Unit,
};
use serde::Serialize;
use utoipa::ToSchema;

/// All experiments.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ExperimentList {
    /// By their names.
    pub(super) experiments: Vec<ExperimentView>,
}

/// Whether units are assigned to the arms of an experiment.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ExperimentState)]
pub(crate) enum StateName {
    /// They are.
    Running,
    /// The configuration says that they are not.
    Disabled,
    /// Somebody stopped it.
    Stopped,
}

impl From<ExperimentState> for StateName {
    fn from(state: ExperimentState) -> Self {
        match state {
            ExperimentState::Running => Self::Running,
            ExperimentState::Disabled => Self::Disabled,
            ExperimentState::Stopped => Self::Stopped,
        }
    }
}

/// What is assigned to an arm as a whole.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes values, which the domain has")]
enum UnitName {
    Principal,
    WorkSession,
}

/// What is counted for the units.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes values, which the domain has")]
enum MetricName {
    ClickThrough,
    Success,
    CallSuccess,
    Coverage,
}

/// An experiment as it is configured.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Experiment)]
pub(crate) struct ExperimentView {
    /// Its name.
    name: String,
    /// Whether it runs.
    state: StateName,
    /// What is assigned.
    #[schema(value_type = UnitName)]
    unit: Unit,
    /// What is counted.
    #[schema(value_type = MetricName)]
    metric: Metric,
    /// What its arms change: `weights`, `fusion`, `policy` or `predictors`.
    changes: Vec<&'static str>,
    /// The arm that the others are compared with.
    control: String,
    /// The names of all arms.
    arms: Vec<String>,
    /// Its end; `null` unless somebody stopped it.
    stop: Option<StopView>,
}

impl ExperimentView {
    pub(super) fn new(
        plan: &ExperimentPlan,
        state: ExperimentState,
        stop: Option<StopView>,
    ) -> Self {
        Self {
            name: plan.name.clone(),
            state: state.into(),
            unit: plan.unit,
            metric: plan.metric,
            changes: plan.levers().map(Lever::as_str).collect(),
            control: plan.control.clone(),
            arms: plan.arms.iter().map(|arm| arm.name.clone()).collect(),
            stop,
        }
    }
}

/// The end of an experiment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentStop)]
pub(crate) struct StopView {
    /// When it was stopped.
    stopped_at: Timestamp,
    /// Who stopped it.
    stopped_by: String,
    /// Why.
    reason: Option<String>,
}

impl From<ExperimentStop> for StopView {
    fn from(stop: ExperimentStop) -> Self {
        Self {
            stopped_at: stop.stopped_at,
            stopped_by: stop.stopped_by.to_string(),
            reason: stop.reason,
        }
    }
}

/// What came of an experiment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentReport)]
pub(crate) struct ExperimentReportView {
    /// The experiment.
    experiment: ExperimentView,
    /// How likely it may be that an arm is called better or worse although none is.
    alpha: f64,
    /// How long it is counted what a unit does, in seconds.
    window_seconds: u64,
    /// Whether all was counted that happened; otherwise the oldest part of it.
    is_complete: bool,
    /// The arms.
    arms: Vec<ArmView>,
}

impl From<ExperimentReport> for ExperimentReportView {
    fn from(report: ExperimentReport) -> Self {
        let stop = report.stop.map(StopView::from);
        Self {
            experiment: ExperimentView::new(&report.plan, report.state, stop),
            alpha: report.plan.alpha,
            window_seconds: report.plan.window.as_secs(),
            is_complete: report.is_complete,
            arms: report.arms.into_iter().map(Into::into).collect(),
        }
    }
}

/// What came of an arm.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentArmReport)]
pub(crate) struct ArmView {
    /// The name of the arm.
    name: String,
    /// Its share of all units.
    share: f64,
    /// How many units were assigned to it.
    assigned: usize,
    /// How many recommendations or calls were counted, whenever they were.
    trials: usize,
    /// How many of them went well.
    succeeded: usize,
    /// How many units have a value, because their window is over.
    units: usize,
    /// How many are still in their window.
    open_units: usize,
    /// The mean of the values, from 0 to 1; `null` where there is none.
    mean: Option<f64>,
    /// The arm against the control; `null` of the control itself.
    comparison: Option<ComparisonView>,
}

impl From<ArmReport> for ArmView {
    fn from(arm: ArmReport) -> Self {
        Self {
            share: arm.share,
            assigned: arm.n_assigned,
            trials: arm.settled.n_trials,
            succeeded: arm.settled.n_succeeded,
            units: arm.settled.values.len(),
            open_units: arm.settled.n_open,
            mean: arm.settled.mean(),
            comparison: arm.comparison.map(Into::into),
            name: arm.name,
        }
    }
}

/// What is known of an arm against the control.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ExperimentVerdict)]
pub(crate) enum VerdictName {
    /// The mean of the arm is greater.
    Better,
    /// The mean of the arm is smaller.
    Worse,
    /// Neither is known.
    Undecided,
}

/// An arm against the control.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentComparison)]
pub(crate) struct ComparisonView {
    /// How many pairs of units were compared.
    pairs: usize,
    /// The mean of the arm less that of the control, over the pairs; `null` without any.
    difference: Option<f64>,
    /// The least that the difference is; `null` where it changed over time.
    lower: Option<f64>,
    /// The most that it is; `null` where it changed over time.
    upper: Option<f64>,
    /// The capital won by betting against that there is no difference.
    e_value: f64,
    /// How likely it is that so much is ever won if no arm differs.
    p_value: f64,
    /// What is known.
    verdict: VerdictName,
}

impl From<Comparison> for ComparisonView {
    fn from(compared: Comparison) -> Self {
        Self {
            pairs: compared.n_pairs,
            difference: compared.difference,
            lower: compared.interval.map(|(lower, _)| lower),
            upper: compared.interval.map(|(_, upper)| upper),
            e_value: compared.e_value,
            p_value: compared.p_value,
            verdict: match compared.verdict {
                ComparisonVerdict::Better => VerdictName::Better,
                ComparisonVerdict::Worse => VerdictName::Worse,
                ComparisonVerdict::Undecided => VerdictName::Undecided,
            },
        }
    }
}
