//! `GET /learning`: how the lists of sessions did, day by day.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_app::control::learning_report::{LearningDay, LearningReport};
use riglm_domain::selection::account::{ASSUMPTIONS, Calibration, CalibrationBin, PolicySummary};
use riglm_domain::selection::economics::CostModel;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::problem::{ParameterErrors, Problem, StoreErrors, TokenErrors, require_store};
use crate::query::Params;
use crate::state::ControlParts;

/// Choice of the period.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct LearningQuery {
    /// Number of days, up to now.
    #[serde(default = "usual_days")]
    #[validate(range(min = 1, max = 365, message = "days must be a number from 1 to 365"))]
    #[param(minimum = 1, maximum = 365, default = 30)]
    days: u32,
}

fn usual_days() -> u32 {
    30
}

/// Results of the lists of sessions, day by day. Only sessions with recorded lists count.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Learning)]
pub(crate) struct LearningView {
    /// Start of the period.
    since: Timestamp,
    /// Days with sessions, the oldest first.
    days: Vec<DayView>,
    /// Sums over all sessions.
    total: DaySumsView,
    /// Whether as many calls were of listed tools as predictions said, over all sessions.
    calibration: CalibrationView,
    /// Prices of the costs.
    prices: PricesView,
    /// Assumptions of the savings, one sentence each.
    assumptions: Vec<&'static str>,
    /// Whether older sessions of the period were left out: the newest 2,000 are read.
    is_cut: bool,
}

/// The sessions of one day.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LearningDay)]
pub(crate) struct DayView {
    /// Day in UTC, such as `2026-11-27`. A session counts on the day of its first call or search, or
    /// of its first list if it made neither.
    day: String,
    /// Sums over the sessions of the day.
    #[serde(flatten)]
    sums: DaySumsView,
}

/// Sums over sessions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = LearningSums)]
pub(crate) struct DaySumsView {
    /// Number of sessions with lists.
    sessions: u64,
    /// Number of tools that they called; a tool counts once for each session.
    tools_used: u64,
    /// Number of these tools that the list did not have at the first call.
    misses: u64,
    /// Number of searches.
    searches: u64,
    /// Number of tools in the newest list of each session.
    shown_tools: u64,
    /// Number of tools that were available for these lists.
    available_tools: u64,
    /// Number of tokens that the lists left out of the prompts of all calls; below 0 if the lists
    /// were longer than those of the upstreams.
    tokens_saved: i64,
    /// Cost of showing all tools minus the actual cost, in tokens at the price of one that is in no
    /// cache. Below 0 if the shorter lists cost more.
    cost_avoided: f64,
}

/// The expected and the actual coverage of lists. Only lists whose tools a prediction selected have
/// an expected coverage. A call counts under the newest list of its session; calls of the tools of
/// riglm itself, and of names that no upstream listed, do not count.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Calibration)]
pub(crate) struct CalibrationView {
    /// All lists and calls.
    #[serde(flatten)]
    total: CoverageView,
    /// Ten ranges of expected coverages, ascending.
    bins: Vec<CalibrationBinView>,
}

/// The lists with an expected coverage in a range, and the calls under them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = CalibrationBin)]
pub(crate) struct CalibrationBinView {
    /// Start of the range.
    from: f64,
    /// End of the range. It belongs to the next one, unless it is 1.
    to: f64,
    /// The lists and calls.
    #[serde(flatten)]
    coverage: CoverageView,
}

/// Lists with an expected coverage, and the calls under them.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Coverage)]
pub(crate) struct CoverageView {
    /// Number of lists. A list counts once for each session that was shown it.
    lists: u64,
    /// Number of calls under these lists.
    calls: u64,
    /// Mean over the calls: the probability, as predicted when the list was selected, that a call is
    /// of a listed tool. `null` without calls.
    expected: Option<f64>,
    /// Share of the calls whose tool was listed. `null` without calls. Agents use what they are
    /// shown, so it is higher than it would be with another list.
    actual: Option<f64>,
}

impl From<&Calibration> for CalibrationView {
    fn from(calibration: &Calibration) -> Self {
        Self {
            total: (&calibration.total()).into(),
            bins: calibration.bins().iter().map(Into::into).collect(),
        }
    }
}

impl From<&CalibrationBin> for CalibrationBinView {
    fn from(bin: &CalibrationBin) -> Self {
        Self {
            from: bin.from,
            to: bin.to,
            coverage: bin.into(),
        }
    }
}

impl From<&CalibrationBin> for CoverageView {
    fn from(bin: &CalibrationBin) -> Self {
        Self {
            lists: bin.lists,
            calls: bin.calls,
            expected: bin.expected_share(),
            actual: bin.actual_share(),
        }
    }
}

impl From<&PolicySummary> for DaySumsView {
    fn from(summary: &PolicySummary) -> Self {
        let total = &summary.total;
        Self {
            sessions: summary.sessions,
            tools_used: total.tools_used,
            misses: total.tool_misses,
            searches: total.searches,
            shown_tools: total.shown_tools,
            available_tools: total.available_tools,
            tokens_saved: total.tokens_saved,
            cost_avoided: total.cost_avoided,
        }
    }
}

impl From<&LearningDay> for DayView {
    fn from(day: &LearningDay) -> Self {
        Self {
            day: day.day.to_string(),
            sums: (&day.summary).into(),
        }
    }
}

/// The assumed prices. 1 is the price of a prompt token that is in no cache.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Prices)]
pub(crate) struct PricesView {
    /// Price of a token that is read from the prompt cache.
    cached_read: f64,
    /// Price of a token that is written to the prompt cache.
    cache_write: f64,
    /// Assumed number of tokens in a definition.
    tokens_per_tool: f64,
    /// Mean number of tokens after the tools in a prompt.
    context_tokens: f64,
    /// Price of a search with a short answer.
    search: f64,
    /// Price of a search with definitions in its answer, without the definitions.
    inline_search: f64,
}

impl From<&CostModel> for PricesView {
    fn from(prices: &CostModel) -> Self {
        Self {
            cached_read: prices.cached_read,
            cache_write: prices.cache_write,
            tokens_per_tool: prices.tokens_per_tool,
            context_tokens: prices.context_tokens,
            search: prices.search,
            inline_search: prices.inline_search,
        }
    }
}

impl From<&LearningReport> for LearningView {
    fn from(report: &LearningReport) -> Self {
        Self {
            since: report.since,
            days: report.days.iter().map(Into::into).collect(),
            total: (&report.total).into(),
            calibration: (&report.calibration).into(),
            prices: (&report.prices).into(),
            assumptions: ASSUMPTIONS.to_vec(),
            is_cut: report.is_cut,
        }
    }
}

/// Show how the lists of sessions did, day by day.
///
/// The answer may be half a minute old, and older if its computation takes long.
#[utoipa::path(
    get, path = "/learning", operation_id = "getLearning", tag = "observing", security(("token" = ["read"])),
    params(LearningQuery),
    responses(
        (status = OK, description = "The days, and the sums over all.", body = LearningView),
        TokenErrors, StoreErrors, ParameterErrors,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Params(query): Params<LearningQuery>,
) -> Result<Json<LearningView>, Problem> {
    let reports = require_store(parts.learning)?;
    let report = reports.report(query.days).await?;
    Ok(Json((&*report).into()))
}
