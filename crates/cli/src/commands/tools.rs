//! `riglm tools`: recorded tools with statistics of their calls.

use std::cmp::Reverse;
use std::collections::BTreeSet;
use std::sync::Arc;

use anyhow::Context;
use jiff::Timestamp;
use riglm_adapters_prediction::O200kTokenCounter;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_app::control::queries::{Queries, UsedTool};
use riglm_app::tracking::CachedTokenCounter;
use riglm_domain::id::UpstreamName;
use riglm_domain::usage::ToolStatistics;
use serde_json::{Value, json};

use super::calls::milliseconds;
use super::table::{Column, foreign_cell, table, time_cell};
use crate::args::{Sorting, ToolsArgs};
use crate::config::Config;
use crate::exit::WrongUsage;
use crate::output::{note, print};

/// Prints the tools that match the arguments.
pub(super) async fn run(config: &Config, arguments: &ToolsArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let counter = CachedTokenCounter::new(Arc::new(O200kTokenCounter));
    let queries = Queries::new(Arc::new(store.clone()), Arc::new(SystemClock))
        .with_token_counter(Arc::new(counter));
    let mut tools = queries.used_tools(arguments.days).await?;
    store.close().await;
    if let Some(wanted) = &arguments.upstream {
        check_upstream(config, wanted, &tools)?;
        tools.retain(|tool| tool.known.tool.upstream == *wanted);
    }
    if tools.is_empty() {
        note("no tools are recorded yet: start `riglm serve`, and connect a client");
    }
    let tools = sort_tools(tools, arguments.sort);
    let text = if arguments.store.format.is_json() {
        let json: Value = tools.iter().map(as_json).collect();
        serde_json::to_string(&json).context("failed to write tools as JSON")?
    } else {
        as_table(&tools)
    };
    Ok(print(&text)?)
}

/// Refuses the name of an upstream that is neither configured nor recorded.
fn check_upstream(
    config: &Config,
    wanted: &UpstreamName,
    tools: &[UsedTool],
) -> Result<(), WrongUsage> {
    let configured = config.upstreams().unwrap_or_default().iter();
    let known: BTreeSet<&UpstreamName> = (configured.map(|upstream| &upstream.name))
        .chain(tools.iter().map(|tool| &tool.known.tool.upstream))
        .collect();
    if known.contains(wanted) {
        return Ok(());
    }
    let known: Vec<&str> = known.into_iter().map(UpstreamName::as_str).collect();
    let known = if known.is_empty() {
        "no upstream is known".to_owned()
    } else {
        format!("known are {}", known.join(", "))
    };
    Err(WrongUsage(format!(
        "upstream {wanted} is not configured or recorded: {known}"
    )))
}

fn n_failed(tool: &UsedTool) -> u64 {
    let statistics = tool.statistics.as_ref();
    statistics.map_or(0, ToolStatistics::n_failed)
}

/// Returns a quantile of the latency, in microseconds.
fn quantile_us(tool: &UsedTool, share: f64) -> Option<u64> {
    let statistics = tool.statistics.as_ref()?;
    statistics.latency.quantile_us(share)
}

/// Returns a tool as JSON. Scripts rely on this format.
fn as_json(tool: &UsedTool) -> Value {
    let known = &tool.known;
    let quantile = |share| quantile_us(tool, share).map(milliseconds);
    json!({
        "upstream": known.tool.upstream,
        "tool": known.tool.tool,
        "calls": known.n_calls,
        "errors": n_failed(tool),
        "p50_ms": quantile(0.5),
        "p95_ms": quantile(0.95),
        "last_used": tool.last_call,
        "tokens": tool.definition_tokens,
        "result_tokens": tool.result_tokens,
        "definitions": known.n_versions,
        "first_seen": known.definition.first_seen,
        "last_seen": known.definition.last_seen,
    })
}

/// Sorts tools, which come in the order of upstream and name. Tools with an unknown key are last.
fn sort_tools(mut tools: Vec<UsedTool>, by: Sorting) -> Vec<UsedTool> {
    let last_used = |tool: &UsedTool| tool.last_call.unwrap_or(Timestamp::MIN);
    match by {
        Sorting::Name => {}
        Sorting::Calls => tools.sort_by_key(|tool| Reverse(tool.known.n_calls)),
        Sorting::Errors => tools.sort_by_key(|tool| Reverse(n_failed(tool))),
        Sorting::P50 => tools.sort_by_key(|tool| Reverse(quantile_us(tool, 0.5))),
        Sorting::P95 => tools.sort_by_key(|tool| Reverse(quantile_us(tool, 0.95))),
        Sorting::LastUsed => tools.sort_by_key(|tool| Reverse(last_used(tool))),
        Sorting::Tokens => tools.sort_by_key(|tool| Reverse(tool.definition_tokens)),
    }
    tools
}

fn as_table(tools: &[UsedTool]) -> String {
    let columns = [
        Column::Text("UPSTREAM"),
        Column::Text("TOOL"),
        Column::Number("CALLS"),
        Column::Number("ERRORS"),
        Column::Number("P50 MS"),
        Column::Number("P95 MS"),
        Column::Text("LAST USED (UTC)"),
        Column::Number("TOKENS"),
        Column::Number("RESULT TOKENS"),
    ];
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let rows = tools.iter().map(|tool| {
        let known = &tool.known;
        let quantile = |share| {
            let quantile = quantile_us(tool, share);
            quantile.map_or_else(|| "-".to_owned(), |us| format!("{:.1}", milliseconds(us)))
        };
        vec![
            known.tool.upstream.to_string(),
            foreign_cell(known.tool.tool.as_str()),
            known.n_calls.to_string(),
            n_failed(tool).to_string(),
            quantile(0.5),
            quantile(0.95),
            (tool.last_call).map_or_else(|| "never".into(), time_cell),
            number(tool.definition_tokens),
            number(tool.result_tokens),
        ]
    });
    table(&columns, rows.collect())
}
