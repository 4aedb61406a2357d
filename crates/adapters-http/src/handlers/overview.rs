//! `GET /overview`: the state of the proxy, what its lists did, and the open sessions, in one answer.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_app::control::overview::PeriodReport;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use super::sessions::ListedSessionView;
use super::upstreams::{self, UpstreamView};
use crate::problem::{ParameterErrors, Problem, ProblemBody, TokenErrors};
use crate::query::Params;
use crate::state::ControlParts;

/// Choice of the period.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct OverviewQuery {
    /// Number of days, up to now, that `totals` covers.
    #[serde(default = "usual_days")]
    #[validate(range(min = 1, max = 90, message = "days must be a number from 1 to 90"))]
    #[param(minimum = 1, maximum = 90, default = 1)]
    days: u32,
}

fn usual_days() -> u32 {
    1
}

/// The state of the proxy, what its lists did in a period, and the open sessions.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Overview)]
pub(crate) struct OverviewView {
    /// Time of the answer.
    at: Timestamp,
    /// Time of the start of the process.
    started_at: Timestamp,
    /// Version of the program.
    version: &'static str,
    /// Whether the proxy is paused.
    #[serde(flatten)]
    pause: PauseView,
    /// Strategy for the selection of lists: `none`, `allowlist`, `denylist` or `prediction`. `none`
    /// if filtering is disabled.
    strategy: &'static str,
    /// Whether calls and lists are recorded. If not, everything below `upstreams` except `since` is
    /// `null`, 0 or `false`.
    recording: bool,
    /// Upstreams, in the order of presentation.
    upstreams: Vec<UpstreamView>,
    /// Number of tools that upstreams ever listed.
    tools: Option<u64>,
    /// The period and its sums.
    #[serde(flatten)]
    period: PeriodView,
    /// Newest open sessions, at most 20, the newest first.
    open_sessions: Option<Vec<ListedSessionView>>,
    /// Whether more sessions are open.
    more_open_sessions: bool,
}

/// The pause of the proxy.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct PauseView {
    /// Whether the proxy is paused, so that lists are whole and safeguards are off.
    paused: bool,
    /// Time at which the pause ends by itself; `null` if it does not.
    paused_until: Option<Timestamp>,
}

/// A period and its sums.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = OverviewPeriod)]
pub(crate) struct PeriodView {
    /// Start of the period of `totals`.
    since: Timestamp,
    /// Sums over the period. They may be 5 seconds old, and older if their computation takes long.
    totals: Option<TotalsView>,
    /// Number of connections that were open in the period, with and without recorded lists.
    counted_sessions: u64,
    /// Whether older sessions of the period were left out of `totals`: the newest 1,000 are read.
    is_cut: bool,
}

/// Sums over the sessions with recorded lists of a period, and over all its calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Totals)]
pub(crate) struct TotalsView {
    /// Number of sessions with recorded lists: work sessions, and connections without any.
    sessions: u64,
    /// Number of sessions whose newest list hides tools.
    sessions_hiding: u64,
    /// Number of these sessions whose client searched or called a hidden tool.
    sessions_looking: u64,
    /// Number of sessions in which the shorter lists cost more than they saved.
    sessions_at_a_loss: u64,
    /// Number of calls of all sessions, from the beginning of the first hour of the period.
    calls: u64,
    /// Number of these calls that ended with an error or a timeout.
    failed_calls: u64,
    /// Number of searches.
    searches: u64,
    /// Number of tools that the list did not have at their first call.
    misses: u64,
    /// Number of called tools; a tool counts once for each session.
    tools_used: u64,
    /// Number of called tools that the list had at their first call: `tools_used` minus `misses`.
    first_uses_covered: u64,
    /// Number of changes of lists within sessions.
    list_changes: u64,
    /// Number of tools in the newest list of each session.
    shown_tools: u64,
    /// Number of tools that were available for these lists.
    available_tools: u64,
    /// Number of tokens of the newest list of each session.
    shown_tokens: u64,
    /// Number of tokens of all tools that were available for these lists.
    available_tokens: u64,
    /// Number of tokens that the lists left out of the prompts of all calls; below 0 if the lists
    /// were longer than those of the upstreams.
    tokens_saved: i64,
    /// Cost of showing all tools minus the actual cost, in tokens at the price of one that is in no
    /// cache. Below 0 if the shorter lists cost more.
    cost_avoided: f64,
}

impl From<&PeriodReport> for TotalsView {
    fn from(period: &PeriodReport) -> Self {
        let lists = &period.lists;
        let total = &lists.total;
        Self {
            sessions: lists.sessions,
            sessions_hiding: lists.sessions_hiding,
            sessions_looking: lists.sessions_looking,
            sessions_at_a_loss: lists.sessions_at_a_loss,
            calls: period.usage.n_calls,
            failed_calls: period.usage.n_failed,
            searches: total.searches,
            misses: total.tool_misses,
            tools_used: total.tools_used,
            first_uses_covered: total.tools_used.saturating_sub(total.tool_misses),
            list_changes: total.list_changes,
            shown_tools: total.shown_tools,
            available_tools: total.available_tools,
            shown_tokens: total.shown_tokens,
            available_tokens: total.available_tokens,
            tokens_saved: total.tokens_saved,
            cost_avoided: total.cost_avoided,
        }
    }
}

/// Show the state of the proxy, what its lists did in a period, and the open sessions.
///
/// It also answers if nothing is recorded; then only the state of the proxy is known.
#[utoipa::path(
    get, path = "/overview", operation_id = "getOverview", tag = "observing", security(("token" = ["read"])),
    params(OverviewQuery),
    responses(
        (status = OK, description = "The overview.", body = OverviewView),
        (status = SERVICE_UNAVAILABLE, description = "The database is unavailable.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, ParameterErrors,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Params(query): Params<OverviewQuery>,
) -> Result<Json<OverviewView>, Problem> {
    let overview = parts.overview.overview(query.days).await?;
    let activity = overview.activity.as_ref();
    let period = activity.map(|activity| &*activity.period);
    let open_sessions = activity.map(|activity| {
        let open = activity.open_sessions.iter();
        open.map(ListedSessionView::from).collect()
    });
    Ok(Json(OverviewView {
        at: overview.at,
        started_at: overview.started_at,
        version: parts.health.version,
        pause: PauseView {
            paused: overview.is_paused,
            paused_until: overview.paused_until,
        },
        strategy: overview.strategy.as_str(),
        recording: activity.is_some(),
        tools: period.map(|period| period.usage.n_tools),
        period: PeriodView {
            since: overview.since,
            totals: period.map(TotalsView::from),
            counted_sessions: period.map_or(0, |period| period.n_connections),
            is_cut: period.is_some_and(|period| period.is_cut),
        },
        more_open_sessions: activity.is_some_and(|activity| activity.has_more_open_sessions),
        open_sessions,
        upstreams: upstreams::views(&parts.proxy),
    }))
}
