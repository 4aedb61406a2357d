//! `GET /tools` and `GET /tools/{tool_name}/stats`: known tools and their statistics.

use std::borrow::Cow;
use std::collections::BTreeMap;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_app::control::name_lookup::quote;
use riglm_app::control::queries::{KnownTool, Queries, ToolLookup, ToolUsage, UsedTool};
use riglm_domain::catalog::naming::tool_aliases;
use riglm_domain::id::UpstreamName;
use riglm_domain::usage::ToolStatistics;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::path::Segment;
use crate::problem::{
    NotFoundError, ParameterErrors, Problem, StoreErrors, TokenErrors, require_store,
};
use crate::query::{Params, invalid_cursor};
use crate::state::ControlParts;
use crate::views::ToolView;

/// The default number of days for which calls are counted.
const USUAL_DAYS: u32 = 30;

/// The longest description in a list of tools, in characters.
const MAX_DESCRIPTION_CHARS: usize = 300;

/// Filter and page parameters.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct ToolsQuery {
    /// Only tools of this upstream.
    upstream: Option<String>,
    /// Number of days, up to now, for which calls are counted.
    #[serde(default = "usual_days")]
    #[validate(range(min = 1, max = 3_650, message = "days must be a number from 1 to 3650"))]
    #[param(minimum = 1, maximum = 3_650, default = 30)]
    days: u32,
    /// Maximum number of tools.
    #[serde(default = "usual_tools")]
    #[validate(range(
        min = 1,
        max = 1_000,
        message = "limit must be a number from 1 to 1000"
    ))]
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: u32,
    /// The `next_cursor` of the previous page.
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
    /// Tools, by upstream and name.
    tools: Vec<UsedToolView>,
    /// Cursor of the next page; `null` on the last page.
    next_cursor: Option<String>,
}

/// A tool that an upstream listed.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = KnownTool)]
pub(crate) struct KnownToolView {
    /// The tool.
    #[serde(flatten)]
    tool: ToolView,
    /// Number of calls within `days`.
    calls: u64,
    /// Hash of the definition.
    definition_hash: String,
    /// Number of different definitions so far.
    definitions: u64,
    /// Time when this definition was first seen.
    first_seen: Timestamp,
    /// Time when this definition was last seen. Each run of riglm records only its first sighting.
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

/// A tool that an upstream listed, with its use.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = UsedTool)]
pub(crate) struct UsedToolView {
    /// The tool with its definition.
    #[serde(flatten)]
    known: KnownToolView,
    /// Number of calls within `days` that failed: with an error or a timeout.
    errors: u64,
    /// Number of calls within `days` without a recorded end.
    open: u64,
    /// Latency of the calls within `days`.
    latency_us: LatencyView,
    /// Tokens of the definition; `null` if its text is not stored.
    definition_tokens: Option<u64>,
    /// Mean number of tokens of the results of its newest calls: at most 20, of the newest 5,000
    /// calls of all tools. `null` if no result of them was counted.
    result_tokens: Option<u64>,
    /// Time of the newest recorded call; `null` if there is none.
    last_call: Option<Timestamp>,
    /// The first 300 characters of the description; `null` if there is none, or if the text of the
    /// definition is not stored.
    description: Option<String>,
}

impl From<&UsedTool> for UsedToolView {
    fn from(used: &UsedTool) -> Self {
        let statistics = used.statistics.as_ref();
        Self {
            known: (&used.known).into(),
            errors: statistics.map_or(0, ToolStatistics::n_failed),
            open: statistics.map_or(0, |statistics| statistics.n_open),
            latency_us: LatencyView::new(statistics),
            definition_tokens: used.definition_tokens,
            result_tokens: used.result_tokens,
            last_call: used.last_call,
            description: description(&used.known.definition.sighting.definition),
        }
    }
}

/// Returns the beginning of the description in a definition.
fn description(definition: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Definition<'a> {
        #[serde(borrow)]
        description: Option<Cow<'a, str>>,
    }
    let read: Definition<'_> = serde_json::from_str(definition).ok()?;
    let text = read.description?;
    Some(text.chars().take(MAX_DESCRIPTION_CHARS).collect())
}

/// List all known tools.
#[utoipa::path(
    get, path = "/tools", operation_id = "listTools", tag = "observing", security(("token" = ["read"])), params(ToolsQuery),
    responses(
        (status = OK, description = "A page of tools.", body = ToolList),
        TokenErrors, StoreErrors, ParameterErrors, NotFoundError,
    )
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Params(query): Params<ToolsQuery>,
) -> Result<Json<ToolList>, Problem> {
    let queries = require_store(parts.queries)?;
    let mut tools = queries.tools(query.days).await?;
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
            let detail = format!("unknown upstream {}", quote(upstream));
            return Err(Problem::not_found(detail));
        }
    }
    // The cursor is the last tool of the previous page, so that added and removed tools do not
    // shift the following pages.
    if let Some(cursor) = &query.cursor {
        let (upstream, tool): (String, String) =
            serde_json::from_str(cursor).map_err(|_| invalid_cursor())?;
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
    // Only the page gets its figures: those of thousands of tools would take long.
    let used = queries.with_usage(tools, query.days).await?;
    Ok(Json(ToolList {
        tools: used.iter().map(Into::into).collect(),
        next_cursor,
    }))
}

/// Choice of the upstream and the period.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct StatsQuery {
    /// The upstream, if several have a tool of this name.
    upstream: Option<String>,
    /// Number of days, up to now, for which calls are counted.
    #[serde(default = "usual_days")]
    #[validate(range(min = 1, max = 3_650, message = "days must be a number from 1 to 3650"))]
    #[param(minimum = 1, maximum = 3_650, default = 30)]
    days: u32,
}

/// Statistics of a tool.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ToolStats)]
pub(crate) struct StatsView {
    /// The tool with its use.
    #[serde(flatten)]
    used: UsedToolView,
    /// Names by which overrides may refer to it: the name at the upstream, and those with the
    /// name of the upstream.
    aliases: Vec<String>,
    /// Number of calls by outcome.
    outcomes: BTreeMap<&'static str, u64>,
    /// Share of ended calls that succeeded; `null` if none ended.
    ok_rate: Option<f64>,
    /// Number of sessions with a call of the tool, at any time.
    sessions: u64,
    /// Tools that were called next, at any time, the most frequent first.
    followed_by: Vec<FollowedBy>,
    /// Tools that were called in the same sessions, at any time, the most frequent first.
    used_with: Vec<UsedWith>,
}

/// Latency of calls in microseconds, accurate to 10 %; `null` without calls.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Latency)]
pub(crate) struct LatencyView {
    /// Median.
    p50: Option<u64>,
    /// 95th percentile.
    p95: Option<u64>,
    /// 99th percentile.
    p99: Option<u64>,
}

impl LatencyView {
    fn new(statistics: Option<&ToolStatistics>) -> Self {
        let quantile = |share| statistics.and_then(|it| it.latency.quantile_us(share));
        Self {
            p50: quantile(0.5),
            p95: quantile(0.95),
            p99: quantile(0.99),
        }
    }
}

/// A tool that was called after another tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct FollowedBy {
    #[serde(flatten)]
    tool: ToolView,
    /// Number of times.
    count: u64,
}

/// A tool that was called in the same sessions as another tool.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct UsedWith {
    #[serde(flatten)]
    tool: ToolView,
    /// Number of sessions.
    sessions: u64,
    /// Mean number of calls between the first uses of the two tools.
    mean_distance: f64,
}

impl From<ToolUsage> for StatsView {
    fn from(usage: ToolUsage) -> Self {
        let statistics = usage.used.statistics.as_ref();
        let outcomes = statistics.map(|statistics| &statistics.outcomes);
        let tool = &usage.used.known.tool;
        let aliases = tool_aliases(&tool.upstream, &tool.tool);
        Self {
            aliases: aliases.iter().map(|name| name.as_str().into()).collect(),
            outcomes: (outcomes.into_iter().flatten())
                .map(|(outcome, n_calls)| (outcome.as_str(), *n_calls))
                .collect(),
            ok_rate: statistics.and_then(ToolStatistics::ok_rate),
            sessions: usage.n_sessions,
            followed_by: (usage.next.iter())
                .map(|next| FollowedBy {
                    tool: (&next.to).into(),
                    count: next.count,
                })
                .collect(),
            used_with: (usage.session_key.iter())
                .map(|pair| UsedWith {
                    tool: if pair.tool_a == usage.used.known.tool {
                        (&pair.tool_b).into()
                    } else {
                        (&pair.tool_a).into()
                    },
                    sessions: pair.count,
                    mean_distance: pair.mean_distance,
                })
                .collect(),
            used: (&usage.used).into(),
        }
    }
}

/// Show the statistics of a tool.
///
/// The tool is named as at its upstream, or as clients see it.
#[utoipa::path(
    get, path = "/tools/{tool_name}/stats", operation_id = "getToolStats", tag = "observing", security(("token" = ["read"])),
    params(
        ("tool_name" = String, Path, description = "Name of the tool, percent-encoded."),
        StatsQuery,
    ),
    responses(
        (status = OK, description = "The statistics of the tool.", body = StatsView),
        TokenErrors, StoreErrors, ParameterErrors, NotFoundError,
    )
)]
pub(crate) async fn stats(
    State(parts): State<ControlParts>,
    Segment(name): Segment,
    Params(query): Params<StatsQuery>,
) -> Result<Json<StatsView>, Problem> {
    let queries = require_store(parts.queries)?;
    let tools = queries.tools(query.days).await?;
    let tool = match Queries::resolve_name(&tools, &name, query.upstream.as_deref()) {
        ToolLookup::One(tool) => tool,
        ToolLookup::None => {
            let name = quote(&name);
            let detail = match &query.upstream {
                Some(upstream) => {
                    format!(
                        "unknown tool {name}: upstream {} has not listed it",
                        quote(upstream)
                    )
                }
                None => format!("unknown tool {name}: no upstream has listed it"),
            };
            return Err(Problem::not_found(detail));
        }
        ToolLookup::Several(upstreams) => {
            let names: Vec<&str> = upstreams.iter().map(UpstreamName::as_str).collect();
            let detail = format!(
                "several upstreams have a tool {}; choose one with upstream={}",
                quote(&name),
                names.join(" or ")
            );
            return Err(Problem::conflict(detail));
        }
    };
    let usage = queries.tool(tools, &tool, query.days).await?;
    let usage = usage.ok_or_else(|| {
        // Unreachable: the tool was found in this list above.
        let detail = format!("unknown tool {}: no upstream has listed it", quote(&name));
        Problem::not_found(detail)
    })?;
    Ok(Json(usage.into()))
}
