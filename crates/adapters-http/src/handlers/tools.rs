//! `GET /tools` and `GET /tools/{tool_name}/stats`: which tools are known, and how they were used.

use std::collections::{BTreeMap, HashSet};

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use riglm_app::insight::{Insight, KnownTool, ToolInsight, Which};
use riglm_app::names::quoted;
use riglm_domain::id::UpstreamName;
use riglm_domain::tool::ToolRef;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::path::Segment;
use crate::problem::{Guarded, Named, Parametrised, Problem, Stored};
use crate::query::{Params, foreign_cursor};
use crate::router::ControlParts;
use crate::views::ToolView;

/// How many days back calls are counted where a request does not say.
const USUAL_DAYS: u32 = 30;

/// Which tools are wanted.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ToolsQuery {
    /// Only those of this upstream.
    upstream: Option<String>,
    /// How many days back calls are counted.
    #[serde(default = "usual_days")]
    #[validate(range(min = 1, max = 3_650, message = "days must be a number from 1 to 3650"))]
    #[param(minimum = 1, maximum = 3_650, default = 30)]
    days: u32,
    /// The most tools.
    #[serde(default = "usual_tools")]
    #[validate(range(
        min = 1,
        max = 1_000,
        message = "limit must be a number from 1 to 1000"
    ))]
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: u32,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

fn usual_tools() -> u32 {
    100
}

fn usual_days() -> u32 {
    USUAL_DAYS
}

/// A page of tools.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ToolList {
    /// By upstream and name.
    tools: Vec<KnownToolView>,
    /// Where the next page begins; `null` of the last one.
    next_cursor: Option<String>,
}

/// A tool that was listed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KnownTool)]
pub(crate) struct KnownToolView {
    /// The tool.
    #[serde(flatten)]
    tool: ToolView,
    /// Calls within the days asked for.
    calls: u64,
    /// Hash of its definition.
    definition_hash: String,
    /// How many different definitions it had.
    definitions: u64,
    /// When it was first seen with this definition.
    first_seen: Timestamp,
    /// When it was last seen so for the first time in a run.
    last_seen: Timestamp,
}

impl From<&KnownTool> for KnownToolView {
    fn from(known: &KnownTool) -> Self {
        let definition = &known.definition;
        Self {
            tool: (&known.tool).into(),
            calls: known.n_calls,
            definition_hash: definition.sighting.content_hash.clone(),
            definitions: known.n_versions,
            first_seen: definition.first_seen,
            last_seen: definition.last_seen,
        }
    }
}

/// All tools that are known.
#[utoipa::path(
    get, path = "/tools", operation_id = "listTools", tag = "observing", security(("token" = ["read"])), params(ToolsQuery),
    responses(
        (status = OK, description = "A page.", body = ToolList),
        Guarded, Stored, Parametrised, Named,
    )
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Params(query): Params<ToolsQuery>,
) -> Response {
    let Some(insight) = &parts.insight else {
        return Problem::nothing_stored().into_response();
    };
    let mut tools = match insight.tools(query.days).await {
        Ok(tools) => tools,
        Err(error) => return Problem::store_failed(&error).into_response(),
    };
    if let Some(upstream) = &query.upstream {
        let is_configured = |upstream: &str| {
            parts
                .proxy
                .upstream_states()
                .iter()
                .any(|it| it.name.as_str() == upstream)
        };
        tools.retain(|known| known.tool.upstream.as_str() == upstream);
        if tools.is_empty() && !is_configured(upstream) {
            let detail = format!("there is no upstream {}", quoted(upstream));
            return Problem::new(StatusCode::NOT_FOUND, detail).into_response();
        }
    }
    // The cursor is the last tool of the page before, so that tools that come and go move no other.
    if let Some(cursor) = &query.cursor {
        let Ok((upstream, tool)) = serde_json::from_str::<(String, String)>(cursor) else {
            return foreign_cursor().into_response();
        };
        let last = (upstream.as_str(), tool.as_str());
        tools.retain(|known| (known.tool.upstream.as_str(), known.tool.tool.as_str()) > last);
    }
    let limit = query.limit as usize;
    let is_last = tools.len() <= limit;
    tools.truncate(limit);
    let next = tools.last().filter(|_| !is_last);
    let next_cursor = next.map(|known| {
        serde_json::json!([known.tool.upstream.as_str(), known.tool.tool.as_str()]).to_string()
    });
    Json(ToolList {
        tools: tools.iter().map(Into::into).collect(),
        next_cursor,
    })
    .into_response()
}

/// Whose tool it is, and how far back is looked.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatsQuery {
    /// The upstream, where several have a tool of this name.
    upstream: Option<String>,
    /// How many days back calls are counted.
    #[serde(default = "usual_days")]
    #[validate(range(min = 1, max = 3_650, message = "days must be a number from 1 to 3650"))]
    #[param(minimum = 1, maximum = 3_650, default = 30)]
    days: u32,
}

/// How a tool was used.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolStats)]
pub(crate) struct StatsView {
    /// The tool.
    #[serde(flatten)]
    known: KnownToolView,
    /// Calls by how they ended.
    outcomes: BTreeMap<&'static str, u64>,
    /// Calls whose end is not recorded.
    open: u64,
    /// The share of the calls that ended well; `null` without any that ended.
    ok_rate: Option<f64>,
    /// How long calls took.
    latency_us: LatencyView,
    /// In how many sessions it was called, ever.
    sessions: u64,
    /// What was called after it, ever, the most frequent first.
    followed_by: Vec<FollowedBy>,
    /// What was called in the same sessions, ever, the most frequent first.
    used_with: Vec<UsedWith>,
}

/// How long calls took, in microseconds, within 10 %; `null` without calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Latency)]
pub(crate) struct LatencyView {
    /// The median.
    p50: Option<u64>,
    /// What 95 of 100 stayed below.
    p95: Option<u64>,
    /// What 99 of 100 stayed below.
    p99: Option<u64>,
}

/// A tool that was called after another one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FollowedBy {
    #[serde(flatten)]
    tool: ToolView,
    /// How often.
    count: u64,
}

/// A tool that was called in the same sessions as another one.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsedWith {
    #[serde(flatten)]
    tool: ToolView,
    /// In how many sessions.
    sessions: u64,
    /// How many calls lay between the first uses of the two, on average.
    mean_distance: f64,
}

impl From<ToolInsight> for StatsView {
    fn from(insight: ToolInsight) -> Self {
        let statistics = insight.statistics.as_ref();
        let quantile =
            |share: f64| statistics.and_then(|statistics| statistics.latency.quantile_us(share));
        let outcomes = statistics.map(|statistics| &statistics.outcomes);
        Self {
            outcomes: (outcomes.into_iter().flatten())
                .map(|(outcome, n_calls)| (outcome.as_str(), *n_calls))
                .collect(),
            open: statistics.map_or(0, |statistics| statistics.n_open),
            ok_rate: statistics.and_then(riglm_domain::usage::ToolStatistics::ok_rate),
            latency_us: LatencyView {
                p50: quantile(0.5),
                p95: quantile(0.95),
                p99: quantile(0.99),
            },
            sessions: insight.n_sessions,
            followed_by: (insight.next.iter())
                .map(|next| FollowedBy {
                    tool: (&next.to).into(),
                    count: next.count,
                })
                .collect(),
            used_with: (insight.together.iter())
                .map(|pair| UsedWith {
                    tool: if pair.tool_a == insight.known.tool {
                        (&pair.tool_b).into()
                    } else {
                        (&pair.tool_a).into()
                    },
                    sessions: pair.count,
                    mean_distance: pair.mean_distance,
                })
                .collect(),
            known: (&insight.known).into(),
        }
    }
}

/// How a tool was used. It is named as its upstream names it, or as clients see it.
#[utoipa::path(
    get, path = "/tools/{tool_name}/stats", operation_id = "getToolStats", tag = "observing", security(("token" = ["read"])),
    params(
        ("tool_name" = String, Path, description = "The tool, percent-encoded."),
        StatsQuery,
    ),
    responses(
        (status = OK, description = "The tool.", body = StatsView),
        Guarded, Stored, Parametrised, Named,
    )
)]
pub(crate) async fn stats(
    State(parts): State<ControlParts>,
    Segment(name): Segment,
    Params(query): Params<StatsQuery>,
) -> Response {
    let Some(insight) = &parts.insight else {
        return Problem::nothing_stored().into_response();
    };
    let mut tools = match insight.tools(query.days).await {
        Ok(tools) => tools,
        Err(error) => return Problem::store_failed(&error).into_response(),
    };
    let tool = match Insight::which(&tools, &name, query.upstream.as_deref()) {
        Which::One(tool) => tool,
        Which::None => {
            let name = quoted(&name);
            let detail = match &query.upstream {
                Some(upstream) => {
                    format!("no tool {name} of upstream {} was listed", quoted(upstream))
                }
                None => format!("no tool {name} was listed"),
            };
            return Problem::new(StatusCode::NOT_FOUND, detail).into_response();
        }
        Which::Several(upstreams) => {
            let names: Vec<&str> = upstreams.iter().map(UpstreamName::as_str).collect();
            let detail = format!(
                "several upstreams have a tool {}: say which with upstream={}",
                quoted(&name),
                names.join(" or ")
            );
            return Problem::new(StatusCode::CONFLICT, detail).into_response();
        }
    };
    let listed: HashSet<ToolRef> = tools.iter().map(|known| known.tool.clone()).collect();
    tools.retain(|known| known.tool == tool);
    let Some(known) = tools.pop() else {
        // It was found among them.
        let detail = format!("no tool {} was listed", quoted(&name));
        return Problem::new(StatusCode::NOT_FOUND, detail).into_response();
    };
    match insight.tool(known, &listed, query.days).await {
        Ok(insight) => Json(StatsView::from(insight)).into_response(),
        Err(error) => Problem::store_failed(&error).into_response(),
    }
}
