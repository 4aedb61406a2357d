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
use riglm_domain::id::UpstreamName;
use riglm_domain::usage::ToolStatistics;
use riglm_ports::token_counter::TokenCounter as _;
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
    let queries = Queries::new(Arc::new(store.clone()), Arc::new(SystemClock));
    let mut tools = queries.used_tools(arguments.days).await?;
    store.close().await;
    if let Some(wanted) = &arguments.upstream {
        check_upstream(config, wanted, &tools)?;
        tools.retain(|tool| tool.known.tool.upstream == *wanted);
    }
    if tools.is_empty() {
        note("no tools are recorded yet: start `riglm serve`, and connect a client");
    }
    // Counting the tokens of many definitions takes long.
    let tools = tokio::task::spawn_blocking(|| tools.into_iter().map(ToolRow::of).collect())
        .await
        .context("failed to count tokens")?;
    let tools = sort_tools(tools, arguments.sort);
    let text = if arguments.store.format.is_json() {
        let json: Value = tools.iter().map(ToolRow::as_json).collect();
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

/// A row of the output.
#[derive(Debug)]
struct ToolRow {
    used: UsedTool,
    /// Tokens of the definition; `None` if its text is not stored.
    n_tokens: Option<u64>,
}

impl ToolRow {
    fn of(used: UsedTool) -> Self {
        let definition = &used.known.definition.sighting.definition;
        let n_tokens = (!definition.is_empty()).then(|| O200kTokenCounter.count(definition));
        Self { used, n_tokens }
    }

    fn n_failed(&self) -> u64 {
        let statistics = self.used.statistics.as_ref();
        statistics.map_or(0, ToolStatistics::n_failed)
    }

    /// Returns a quantile of the latency, in microseconds.
    fn quantile_us(&self, share: f64) -> Option<u64> {
        let statistics = self.used.statistics.as_ref()?;
        statistics.latency.quantile_us(share)
    }

    fn as_json(&self) -> Value {
        let known = &self.used.known;
        let quantile = |share| self.quantile_us(share).map(milliseconds);
        json!({
            "upstream": known.tool.upstream,
            "tool": known.tool.tool,
            "calls": known.n_calls,
            "errors": self.n_failed(),
            "p50_ms": quantile(0.5),
            "p95_ms": quantile(0.95),
            "last_used": self.used.last_call,
            "tokens": self.n_tokens,
            "definitions": known.n_versions,
            "first_seen": known.definition.first_seen,
            "last_seen": known.definition.last_seen,
        })
    }
}

/// Sorts tools, which come in the order of upstream and name. Tools with an unknown key are last.
fn sort_tools(mut tools: Vec<ToolRow>, by: Sorting) -> Vec<ToolRow> {
    let last_used = |line: &ToolRow| line.used.last_call.unwrap_or(Timestamp::MIN);
    match by {
        Sorting::Name => {}
        Sorting::Calls => tools.sort_by_key(|line| Reverse(line.used.known.n_calls)),
        Sorting::Errors => tools.sort_by_key(|line| Reverse(line.n_failed())),
        Sorting::P50 => tools.sort_by_key(|line| Reverse(line.quantile_us(0.5))),
        Sorting::P95 => tools.sort_by_key(|line| Reverse(line.quantile_us(0.95))),
        Sorting::LastUsed => tools.sort_by_key(|line| Reverse(last_used(line))),
        Sorting::Tokens => tools.sort_by_key(|line| Reverse(line.n_tokens)),
    }
    tools
}

fn as_table(tools: &[ToolRow]) -> String {
    let columns = [
        Column::Text("UPSTREAM"),
        Column::Text("TOOL"),
        Column::Number("CALLS"),
        Column::Number("ERRORS"),
        Column::Number("P50 MS"),
        Column::Number("P95 MS"),
        Column::Text("LAST USED (UTC)"),
        Column::Number("TOKENS"),
    ];
    let unknown = || "-".to_owned();
    let rows = tools.iter().map(|line| {
        let known = &line.used.known;
        let quantile = |share| {
            let quantile = line.quantile_us(share);
            quantile.map_or_else(unknown, |us| format!("{:.1}", milliseconds(us)))
        };
        vec![
            known.tool.upstream.to_string(),
            foreign_cell(known.tool.tool.as_str()),
            known.n_calls.to_string(),
            line.n_failed().to_string(),
            quantile(0.5),
            quantile(0.95),
            line.used
                .last_call
                .map_or_else(|| "never".into(), time_cell),
            line.n_tokens.map_or_else(unknown, |n| n.to_string()),
        ]
    });
    table(&columns, rows.collect())
}
