//! `riglm upstreams`: the upstreams, what is recorded of them, and whether a running proxy reaches them.

use std::collections::BTreeMap;
use std::sync::Arc;

use anyhow::Context;
use riglm_adapters_storage::open_reader;
use riglm_app::clock::SystemClock;
use riglm_app::insight::{Insight, UpstreamUse};
use riglm_domain::id::UpstreamName;
use riglm_domain::protocol::Transport;
use serde_json::{Value, json};

use super::control_port::{Answer, ask};
use super::table::{Column, foreign, table};
use super::unused::why_unused;
use crate::args::UpstreamsArgs;
use crate::config::Config;
use crate::output::{note, print, printable};

/// The state of an upstream that the running proxy does not have.
const NOT_SERVED: &str = "not_served";
/// The state of an upstream while no proxy runs.
const NOT_RUNNING: &str = "not_running";
/// The state of an upstream where the proxy could not be asked.
const UNKNOWN: &str = "unknown";

/// Prints the upstreams that are configured, that a running proxy has, or of which something is recorded.
pub(super) async fn run(config: &Config, arguments: &UpstreamsArgs) -> anyhow::Result<()> {
    let recorded = match recorded(config, arguments.days).await {
        Ok(recorded) => Some(recorded),
        Err(error) => {
            note(&printable(&format!(
                "what is recorded cannot be read: {error:#}"
            )));
            None
        }
    };
    let answer = ask(config, arguments.control, "/upstreams").await;
    let configured = config.upstreams().unwrap_or_default().iter();
    let configured: Vec<(UpstreamName, Transport)> = configured
        .map(|upstream| (upstream.name.clone(), upstream.config.transport()))
        .collect();
    let upstreams = joined(&configured, recorded.as_ref(), &answer);
    match answer {
        Answer::Said(_) => {}
        Answer::NotRunning(why) => note(&printable(&format!("no proxy is running: {why}"))),
        Answer::Unknown(why) => note(&printable(&format!(
            "whether upstreams are reached is not known: {why}"
        ))),
    }
    if upstreams.is_empty() {
        note("no upstream is configured");
    }
    let text = if arguments.store.json {
        let json: Value = upstreams.iter().map(Line::as_json).collect();
        serde_json::to_string(&json).context("failed to write upstreams as JSON")?
    } else {
        as_table(&upstreams)
    };
    Ok(print(&text)?)
}

/// Returns what is recorded of upstreams; nothing before the first start.
async fn recorded(
    config: &Config,
    days: u32,
) -> anyhow::Result<BTreeMap<UpstreamName, UpstreamUse>> {
    if let Some(text) = why_unused(config).await? {
        note(&text);
        return Ok(BTreeMap::new());
    }
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let insight = Insight::new(Arc::new(store.clone()), Arc::new(SystemClock));
    let uses = insight.upstream_uses(days).await;
    store.close().await;
    Ok(uses?)
}

/// An upstream as it is shown.
#[derive(Debug)]
struct Line {
    name: UpstreamName,
    /// How it is reached, where it is configured.
    transport: Option<Transport>,
    /// What is recorded of it; `None` where that cannot be read.
    recorded: Option<UpstreamUse>,
    state: String,
    /// What the running proxy says of it.
    live: Option<Value>,
}

/// Returns all upstreams: those of the configuration in its order, then the others by name.
fn joined(
    configured: &[(UpstreamName, Transport)],
    recorded: Option<&BTreeMap<UpstreamName, UpstreamUse>>,
    answer: &Answer,
) -> Vec<Line> {
    let absent = match answer {
        Answer::Said(_) => NOT_SERVED,
        Answer::NotRunning(_) => NOT_RUNNING,
        Answer::Unknown(_) => UNKNOWN,
    };
    let mut live: BTreeMap<UpstreamName, Value> = BTreeMap::new();
    if let Answer::Said(said) = answer {
        let all = said.iter().filter_map(|said| said["upstreams"].as_array());
        for one in all.flatten() {
            let Some(Ok(name)) = one["name"].as_str().map(UpstreamName::parse) else {
                continue;
            };
            // Of several proxies one may have used it, and others not yet.
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
        Line {
            state: state.unwrap_or(absent).to_owned(),
            recorded: recorded.map(|all| all.get(&name).cloned().unwrap_or_default()),
            transport,
            live,
            name,
        }
    });
    lines.collect()
}

/// Returns how much the state of an upstream says, as a running proxy tells it.
fn rank(live: &Value) -> u8 {
    match live["state"].as_str() {
        Some("available") => 2,
        Some("unavailable") => 1,
        _ => 0,
    }
}

impl Line {
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

    /// Returns why the upstream is in its state, where the running proxy says so.
    fn reason(&self) -> String {
        let reason = (self.live.as_ref()).and_then(|live| live["reason"].as_str());
        reason.map(printable).unwrap_or_default()
    }
}

fn as_table(upstreams: &[Line]) -> String {
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
        let number = |of: fn(&UpstreamUse) -> u64| {
            let recorded = line.recorded.as_ref();
            recorded.map_or_else(|| "-".to_owned(), |recorded| of(recorded).to_string())
        };
        vec![
            line.name.to_string(),
            (line.transport)
                .map_or("not configured", Transport::as_str)
                .to_owned(),
            foreign(&line.state.replace('_', " ")),
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

    fn states(answer: &Answer) -> Vec<(String, bool, String, u64)> {
        let configured = [
            (name("web"), Transport::StreamableHttp),
            (name("files"), Transport::Stdio),
        ];
        let used = UpstreamUse {
            n_tools: 3,
            ..UpstreamUse::default()
        };
        let recorded = BTreeMap::from([(name("files"), used.clone()), (name("gone"), used)]);
        let lines = joined(&configured, Some(&recorded), answer).into_iter();
        lines
            .map(|line| {
                let is_configured = line.transport.is_some();
                let n_tools = line.recorded.map_or(0, |recorded| recorded.n_tools);
                (line.name.to_string(), is_configured, line.state, n_tools)
            })
            .collect()
    }

    #[test]
    fn upstreams_have_the_state_that_the_running_proxy_tells() {
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
        assert_eq!(states(&Answer::Said(vec![said, other])), expected);
    }

    #[test]
    fn without_a_running_proxy_no_upstream_has_a_state() {
        for (answer, state) in [
            (Answer::NotRunning(String::new()), "not_running"),
            (Answer::Unknown(String::new()), "unknown"),
            (Answer::Said(vec![json!("else")]), "not_served"),
        ] {
            let states = states(&answer);
            assert_eq!(states.len(), 3);
            assert!(states.iter().all(|(.., of, _)| of == state), "{states:?}");
        }
    }
}
