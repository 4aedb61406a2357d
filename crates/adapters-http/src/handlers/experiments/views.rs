//! Response types of the experiment routes.

use jiff::Timestamp;
use riglm_discovery::experiments::{ArmReport, ExperimentReport, ExperimentState};
use riglm_domain::experiment::{
    AssignmentUnit, Comparison, ComparisonVerdict, ExperimentMetric, ExperimentPlan,
    ExperimentStop, Treatment,
};
use serde::Serialize;
use utoipa::ToSchema;

/// All experiments of the configuration.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct ExperimentList {
    /// Experiments, by name.
    pub(super) experiments: Vec<ExperimentView>,
}

/// State of an experiment.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ExperimentState)]
pub(crate) enum StateName {
    /// Units are assigned to arms.
    Running,
    /// Switched off in the configuration.
    Disabled,
    /// Stopped by an operator.
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

/// Unit of assignment to the arms.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes values, which the domain has")]
enum UnitName {
    Principal,
    WorkSession,
}

/// Metric that is compared between the arms.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes values, which the domain has")]
enum MetricName {
    ClickThrough,
    Success,
    CallSuccess,
    Coverage,
}

/// An experiment of the configuration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Experiment)]
pub(crate) struct ExperimentView {
    /// Name of the experiment.
    name: String,
    /// Whether the experiment runs.
    state: StateName,
    /// Unit of assignment to the arms.
    #[schema(value_type = UnitName)]
    unit: AssignmentUnit,
    /// Metric that is compared between the arms.
    #[schema(value_type = MetricName)]
    metric: ExperimentMetric,
    /// Treatments that differ between the arms: `weights`, `fusion`, `policy` or `predictors`.
    changes: Vec<&'static str>,
    /// The control arm, which the others are compared with.
    control: String,
    /// Names of all arms.
    arms: Vec<String>,
    /// The stop of the experiment; `null` if it was not stopped.
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
            changes: plan.treatments().map(Treatment::as_str).collect(),
            control: plan.control.clone(),
            arms: plan.arms.iter().map(|arm| arm.name.clone()).collect(),
            stop,
        }
    }
}

/// The stop of an experiment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentStop)]
pub(crate) struct StopView {
    /// Time of the stop.
    stopped_at: Timestamp,
    /// Principal that stopped the experiment.
    stopped_by: String,
    /// Reason of the stop.
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

/// Results of an experiment.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentReport)]
pub(crate) struct ExperimentReportView {
    /// The experiment.
    experiment: ExperimentView,
    /// Significance level: probability of a verdict `better` or `worse` although the arms do not
    /// differ.
    alpha: f64,
    /// Observation window of a unit, in seconds.
    window_seconds: u64,
    /// Whether all data was counted. If `false`, only the oldest part was.
    is_complete: bool,
    /// Results of each arm.
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

/// Results of an arm.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentArmReport)]
pub(crate) struct ArmView {
    /// Name of the arm.
    name: String,
    /// Share of all units.
    share: f64,
    /// Number of units assigned to the arm.
    assigned: usize,
    /// Number of counted recommendations or calls, at any time.
    trials: usize,
    /// Number of successful ones among `trials`.
    succeeded: usize,
    /// Number of units whose window is over, and which therefore have a value.
    units: usize,
    /// Number of units whose window is still open.
    open_units: usize,
    /// Mean of the values, from 0 to 1; `null` without values.
    mean: Option<f64>,
    /// Comparison with the control; `null` for the control itself.
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

/// Verdict on an arm, compared with the control.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = ExperimentVerdict)]
pub(crate) enum VerdictName {
    /// The mean of the arm is greater.
    Better,
    /// The mean of the arm is smaller.
    Worse,
    /// No significant difference so far.
    Undecided,
}

/// Comparison of an arm with the control.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ExperimentComparison)]
pub(crate) struct ComparisonView {
    /// Number of compared pairs of units.
    pairs: usize,
    /// Mean of the arm minus mean of the control, over the pairs; `null` without pairs.
    difference: Option<f64>,
    /// Lower bound of the difference; `null` if the difference changed over time.
    lower: Option<f64>,
    /// Upper bound of the difference; `null` if the difference changed over time.
    upper: Option<f64>,
    /// Capital won by betting against the hypothesis of no difference.
    e_value: f64,
    /// Probability of ever winning that much if the arms do not differ.
    p_value: f64,
    /// Verdict.
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
