//! `riglm upstreams`: configured, recorded and running upstreams, and their state.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_app::control::queries::{Queries, UpstreamUsage};
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::protocol::Transport;
use serde_json::{Value, json};

use super::control_port::{ControlAnswer, ask};
use super::empty_store::empty_store_note;
use super::table::{Column, foreign_cell, table};
use crate::args::UpstreamsArgs;
use crate::config::Config;
use crate::output::{note, print, printable};

/// The state of an upstream that the running proxy does not have.
const NOT_SERVED: &str = "not_served";
/// The state of an upstream while no proxy runs.
const NOT_RUNNING: &str = "not_running";
/// The state of an upstream if no proxy could be asked.
const UNKNOWN: &str = "unknown";

/// Prints all upstreams that are configured, recorded, or in use by a running proxy.
pub(super) async fn run(config: &Config, arguments: &UpstreamsArgs) -> anyhow::Result<()> {
    // Not fatal: the state of upstreams is useful without the records.
    let recorded = match recorded_uses(config, arguments.days).await {
        Ok(recorded) => Some(recorded),
        Err(error) => {
            note(&printable(&format!(
                "failed to read recorded upstreams: {error:#}"
            )));
            None
        }
    };
    let answer = ask(config, arguments.control, "/upstreams").await;
    let configured = config.upstreams().unwrap_or_default().iter();
    let configured: Vec<(UpstreamName, Transport)> = configured
        .map(|upstream| (upstream.name.clone(), upstream.config.transport()))
        .collect();
    let upstreams = merge_upstreams(&configured, recorded.as_ref(), &answer);
    match answer {
        ControlAnswer::Said(_) => {}
        ControlAnswer::NotRunning(why) => note(&printable(&format!("no proxy is running: {why}"))),
        ControlAnswer::Unknown(why) => note(&printable(&format!(
            "the state of upstreams is unknown: {why}"
        ))),
    }
    if upstreams.is_empty() {
        note("no upstream is configured");
    }
    let text = if arguments.store.format.is_json() {
        let json: Value = upstreams.iter().map(UpstreamRow::as_json).collect();
        serde_json::to_string(&json).context("failed to write upstreams as JSON")?
    } else {
        as_table(&upstreams)
    };
    Ok(print(&text)?)
}

/// Returns the recorded use of upstreams; empty before the first start.
async fn recorded_uses(
    config: &Config,
    days: u32,
) -> anyhow::Result<BTreeMap<UpstreamName, UpstreamUsage>> {
    if let Some(text) = empty_store_note(config).await? {
        note(&text);
        return Ok(BTreeMap::new());
    }
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let queries = Queries::new(Arc::new(store.clone()), Arc::new(SystemClock));
    let uses = queries.upstream_uses(days).await;
    store.close().await;
    Ok(uses?)
}

/// A row of the output.
#[derive(Debug)]
struct UpstreamRow {
    name: UpstreamName,
    /// The transport, if the upstream is configured.
    transport: Option<Transport>,
    /// The recorded use; `None` if it cannot be read.
    recorded: Option<UpstreamUsage>,
    state: String,
    /// The upstream in the answer of the running proxy.
    live: Option<Value>,
}

/// Returns all upstreams: configured ones in their order, then the others by name.
fn merge_upstreams(
    configured: &[(UpstreamName, Transport)],
    recorded: Option<&BTreeMap<UpstreamName, UpstreamUsage>>,
    answer: &ControlAnswer,
) -> Vec<UpstreamRow> {
    let absent = match answer {
        ControlAnswer::Said(_) => NOT_SERVED,
        ControlAnswer::NotRunning(_) => NOT_RUNNING,
        ControlAnswer::Unknown(_) => UNKNOWN,
    };
    let mut live: BTreeMap<UpstreamName, Value> = BTreeMap::new();
    if let ControlAnswer::Said(said) = answer {
        let all = said.iter().filter_map(|said| said["upstreams"].as_array());
        for one in all.flatten() {
            let Some(Ok(name)) = one["name"].as_str().map(UpstreamName::parse) else {
                continue;
            };
            // Of several proxies, one may have used it and another may not.
            if live.get(&name).is_none_or(|known| rank(one) > rank(known)) {
                live.insert(name, one.clone());
            }
        }
    }
    let is_configured = |name: &UpstreamName| configured.iter().any(|(known, _)| known == name);
    let mut others: Vec<UpstreamName> = (recorded.into_iter().flat_map(BTreeMap::keys))
        .chain(live.keys())
        .filter(|name| !is_configured(name))
        .cloned()
        .collect();
    others.sort_unstable();
    others.dedup();
    let configured = (configured.iter()).map(|(name, transport)| (name.clone(), Some(*transport)));
    let all: Vec<_> = configured
        .chain(others.into_iter().map(|name| (name, None)))
        .collect();
    let lines = all.into_iter().map(|(name, transport)| {
        let live = live.remove(&name);
        let state = (live.as_ref()).and_then(|live| live["state"].as_str());
        UpstreamRow {
            state: state.unwrap_or(absent).to_owned(),
            recorded: recorded.map(|all| all.get(&name).cloned().unwrap_or_default()),
            transport,
            live,
            name,
        }
    });
    lines.collect()
}

/// Returns the rank of a state: the higher, the more it says.
fn rank(live: &Value) -> u8 {
    match live["state"].as_str() {
        Some("available") => 3,
        Some("unavailable") => 2,
        Some("starting") => 1,
        _ => 0,
    }
}

impl UpstreamRow {
    fn as_json(&self) -> Value {
        let recorded = self.recorded.as_ref();
        json!({
            "upstream": self.name,
            "configured": self.transport.is_some(),
            "transport": self.transport.map(Transport::as_str),
            "state": self.state,
            "tools": recorded.map(|all| all.n_tools),
            "calls": recorded.map(|all| all.n_calls),
            "errors": recorded.map(|all| all.n_failed),
            "live": self.live,
        })
    }

    /// Returns the reason of the state, if the running proxy gives one.
    fn reason(&self) -> String {
        let reason = (self.live.as_ref()).and_then(|live| live["reason"].as_str());
        reason.map(printable).unwrap_or_default()
    }
}

fn as_table(upstreams: &[UpstreamRow]) -> String {
    let columns = [
        Column::Text("UPSTREAM"),
        Column::Text("TRANSPORT"),
        Column::Text("STATE"),
        Column::Number("TOOLS"),
        Column::Number("CALLS"),
        Column::Number("ERRORS"),
        Column::Text("REASON"),
    ];
    let rows = upstreams.iter().map(|line| {
        let number = |of: fn(&UpstreamUsage) -> u64| {
            let recorded = line.recorded.as_ref();
            recorded.map_or_else(|| "-".to_owned(), |recorded| of(recorded).to_string())
        };
        vec![
            line.name.to_string(),
            (line.transport)
                .map_or("not configured", Transport::as_str)
                .to_owned(),
            foreign_cell(&line.state.replace('_', " ")),
            number(|recorded| recorded.n_tools),
            number(|recorded| recorded.n_calls),
            number(|recorded| recorded.n_failed),
            line.reason(),
        ]
    });
    table(&columns, rows.collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(name: &str) -> UpstreamName {
        UpstreamName::parse(name).unwrap()
    }

    fn states(answer: &ControlAnswer) -> Vec<(String, bool, String, u64)> {
        let configured = [
            (name("web"), Transport::StreamableHttp),
            (name("files"), Transport::Stdio),
        ];
        let used = UpstreamUsage {
            n_tools: 3,
            ..UpstreamUsage::default()
        };
        let recorded = BTreeMap::from([(name("files"), used.clone()), (name("gone"), used)]);
        let lines = merge_upstreams(&configured, Some(&recorded), answer).into_iter();
        lines
            .map(|line| {
                let is_configured = line.transport.is_some();
                let n_tools = line.recorded.map_or(0, |recorded| recorded.n_tools);
                (line.name.to_string(), is_configured, line.state, n_tools)
            })
            .collect()
    }

    #[test]
    fn upstreams_have_the_state_reported_by_the_running_proxy() {
        let said = json!({"upstreams": [
            {"name": "web", "state": "unavailable", "reason": "refused"},
            {"name": "ad-hoc", "state": "available"},
        ]});
        let other = json!({"upstreams": [
            {"name": "web", "state": "unused"},
            {"name": "ad-hoc", "state": "unavailable"},
        ]});
        let expected = [
            ("web", true, "unavailable", 0),
            ("files", true, "not_served", 3),
            ("ad-hoc", false, "available", 0),
            ("gone", false, "not_served", 3),
        ];
        let expected = expected
            .map(|(name, configured, state, n)| (name.to_owned(), configured, state.to_owned(), n));
        assert_eq!(states(&ControlAnswer::Said(vec![said, other])), expected);
    }

    #[test]
    fn without_a_running_proxy_no_upstream_has_a_state() {
        for (answer, state) in [
            (ControlAnswer::NotRunning(String::new()), "not_running"),
            (ControlAnswer::Unknown(String::new()), "unknown"),
            (ControlAnswer::Said(vec![json!("else")]), "not_served"),
        ] {
            let states = states(&answer);
            assert_eq!(states.len(), 3);
            assert!(states.iter().all(|(.., of, _)| of == state), "{states:?}");
        }
    }
}
