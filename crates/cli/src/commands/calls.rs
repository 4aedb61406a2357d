//! `riglm calls`: recorded tool calls.

mod follow;

use anyhow::Context;
use riglm_adapters_storage::{Store, open_reader};
use riglm_app::clock::SystemClock;
use riglm_app::control::name_lookup::quote;
use riglm_domain::catalog::naming::{may_be_hashed, prefixed_name, split_namespace};
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::num::to_f64;
use riglm_domain::retrieval::nearest_names;
use riglm_domain::usage::invocation::{InvocationSummary, TokenSize, ToolSource};
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, ToolDefinitionRepository as _,
};
use riglm_ports::clock::Clock as _;
use serde_json::{Value, json};

pub(super) use self::follow::follow;
use super::table::{Column, foreign_cell, table, time_cell};
use crate::args::CallsArgs;
use crate::config::Config;
use crate::output::{note, print, printable};

/// Prints the calls that match the arguments.
pub(super) async fn run(config: &Config, arguments: &CallsArgs) -> anyhow::Result<()> {
    let store = open_reader(&config.storage, &config.data_dir, &SystemClock).await?;
    let filter = filter(&store, arguments).await?;
    let n_calls = store.count(&filter).await?;
    if let (0, Some(name)) = (n_calls, &arguments.tool)
        && let Some(remark) = unknown_tool(&store, name).await?
    {
        note(&printable(&remark));
    }
    if arguments.count {
        return Ok(print(&n_calls.to_string())?);
    }
    let calls = store.invocations(&filter, arguments.limit()).await?;
    if n_calls > u64::from(arguments.limit()) {
        note(&format!(
            "showing the newest {} of {n_calls} calls; see --limit",
            calls.len()
        ));
    }
    let text = if arguments.format.is_json() {
        serde_json::to_string(&as_json(&calls)).context("failed to write calls as JSON")?
    } else {
        as_table(&calls)
    };
    Ok(print(&text)?)
}

/// Returns the filter for the arguments. A tool name is first taken as the tool's own name. If no
/// call matches, it is taken as the name that clients see.
async fn filter(store: &Store, arguments: &CallsArgs) -> anyhow::Result<InvocationFilter> {
    let filter = InvocationFilter {
        session: arguments.session,
        tool: arguments.tool.as_deref().map(ToolName::from),
        upstream: arguments.upstream.clone(),
        since: (arguments.since).map(|since| since.ago(SystemClock.now())),
        state: arguments.state(),
    };
    let Some(name) = &arguments.tool else {
        return Ok(filter);
    };
    if store.count(&filter).await? > 0 {
        return Ok(filter);
    }
    Ok(match tool_shown_as(store, name).await? {
        Some((upstream, tool)) if filter.upstream.as_ref().is_none_or(|one| *one == upstream) => {
            InvocationFilter {
                upstream: Some(upstream),
                tool: Some(tool),
                ..filter
            }
        }
        _ => filter,
    })
}

/// Returns the tool that clients see under this name if there are several upstreams. The name has
/// the namespace of its upstream, or is shortened with a hash; only the definitions tell the tool
/// of a hash.
async fn tool_shown_as(
    store: &Store,
    name: &str,
) -> anyhow::Result<Option<(UpstreamName, ToolName)>> {
    if may_be_hashed(name) {
        let mut seen = store.tools_seen().await?.into_iter();
        if let Some(tool) = seen.find(|tool| tool.is_shown_as(name)) {
            return Ok(Some((tool.upstream, tool.tool)));
        }
    }
    let parts = split_namespace(name).and_then(|(upstream, own)| {
        let upstream = UpstreamName::parse(upstream).ok()?;
        Some((upstream, ToolName::from(own)))
    });
    Ok(parts)
}

/// Returns a remark about a tool that no upstream has listed and nobody has called, with the nearest
/// name; `None` if the tool is known.
async fn unknown_tool(store: &Store, name: &str) -> anyhow::Result<Option<String>> {
    let mut known = Vec::new();
    for tool in store.tools_seen().await? {
        if tool.is_named(name) {
            return Ok(None);
        }
        known.push(prefixed_name(&tool.upstream, tool.tool.as_str()));
        known.push(tool.tool.as_str().to_owned());
    }
    let by_own_name = (None, ToolName::from(name));
    let by_shown_name = tool_shown_as(store, name).await?;
    let by_shown_name = by_shown_name.map(|(upstream, tool)| (Some(upstream), tool));
    for (upstream, tool) in std::iter::once(by_own_name).chain(by_shown_name) {
        let calls = InvocationFilter {
            upstream,
            tool: Some(tool),
            ..InvocationFilter::default()
        };
        if store.count(&calls).await? > 0 {
            return Ok(None);
        }
    }
    let names: Vec<&str> = known.iter().map(String::as_str).collect();
    let nearest = nearest_names(name, &names, 1);
    let nearest = nearest
        .first()
        .map(|at| format!("; the nearest name is {}", names[*at]));
    Ok(Some(format!(
        "no upstream has listed a tool {}, and no call of it is recorded{}",
        quote(name),
        nearest.unwrap_or_default()
    )))
}

/// Returns the calls as JSON. Scripts rely on this format.
pub(super) fn as_json(calls: &[InvocationSummary]) -> Value {
    calls.iter().map(call_as_json).collect()
}

fn call_as_json(call: &InvocationSummary) -> Value {
    let InvocationSummary {
        invocation, end, ..
    } = call;
    let (request, response) = (call.request_size(), call.response_size());
    let is_estimated = |size| matches!(size, TokenSize::Estimated(_));
    json!({
        "id": invocation.id,
        "session": invocation.session,
        "upstream": invocation.upstream,
        "tool": invocation.tool,
        "started_at": invocation.started_at,
        "duration_ms": end.as_ref().map(|end| milliseconds(end.duration_us)),
        "wait_ms": end.as_ref().map(|end| milliseconds(end.wait_us)),
        "outcome": end.as_ref().map(|end| end.outcome),
        "sequence": invocation.sequence,
        // `null` for a name that is in no list.
        "source": Some(invocation.source).filter(|source| *source != ToolSource::Unlisted),
        "request_bytes": invocation.request_bytes,
        "response_bytes": end.as_ref().map_or(0, |end| end.response_bytes),
        "request_tokens": request.tokens(),
        "response_tokens": response.tokens(),
        "tokens_estimated": is_estimated(request) || is_estimated(response),
        "continues": invocation.continues,
        "work_session": invocation.work_session,
    })
}

const COLUMNS: [Column; 7] = [
    Column::Text("STARTED (UTC)"),
    Column::Text("SESSION"),
    Column::Number("#"),
    Column::Text("UPSTREAM"),
    Column::Text("TOOL"),
    Column::Text("OUTCOME"),
    Column::Number("MS"),
];

/// Returns the calls as a table.
pub(super) fn as_table(calls: &[InvocationSummary]) -> String {
    table(
        &COLUMNS,
        calls.iter().map(|call| row(call).into()).collect(),
    )
}

fn row(call: &InvocationSummary) -> [String; 7] {
    let InvocationSummary {
        invocation, end, ..
    } = call;
    [
        time_cell(invocation.started_at),
        invocation.session.to_string(),
        invocation.sequence.to_string(),
        invocation.upstream.to_string(),
        foreign_cell(invocation.tool.as_str()),
        end.as_ref()
            .map_or("in flight", |end| end.outcome.as_str())
            .to_owned(),
        end.as_ref()
            .map(|end| format!("{:.1}", milliseconds(end.duration_us)))
            .unwrap_or_default(),
    ]
}

pub(super) fn milliseconds(microseconds: u64) -> f64 {
    to_f64(microseconds) / 1_000.0
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_domain::id::{InvocationId, SessionId, UpstreamName};
    use riglm_domain::privacy::canonical::KeyedHasher;
    use riglm_domain::privacy::principal::Principal;
    use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome, ToolSource};

    use super::*;

    fn call(sequence: u64, outcome: Option<Outcome>) -> InvocationSummary {
        let started_at: Timestamp = "2026-01-02T03:04:05.678Z".parse().unwrap();
        let id = InvocationId::new(started_at, [u8::try_from(sequence).unwrap(); 10]);
        InvocationSummary {
            invocation: Invocation {
                id,
                session: SessionId::new(started_at, [9; 10]),
                principal: Principal::local(),
                upstream: UpstreamName::parse("notes").unwrap(),
                tool: "add_note".into(),
                arguments_hash: KeyedHasher::new(&[0; 32]).hash_text("x"),
                arguments: None,
                started_at,
                sequence,
                source: ToolSource::Shown,
                request_bytes: 100,
                continues: None,
                work_session: None,
                list_epoch: None,
                context: None,
            },
            end: outcome.map(|outcome| InvocationEnd {
                id,
                outcome,
                duration_us: 1_500,
                wait_us: 2_000_250,
                response_bytes: 10,
                result: None,
            }),
            request_tokens: None,
            response_tokens: None,
        }
    }

    #[test]
    fn json_has_the_agreed_keys_and_nulls_while_in_flight() {
        let mut calls = [call(1, Some(Outcome::Error)), call(2, None)];
        calls[1].invocation.continues = Some(calls[0].invocation.id);
        assert_eq!(
            as_json(&calls).to_string(),
            concat!(
                r#"[{"id":"019b7ca9-8f2e-7101-8101-010101010101","#,
                r#""session":"019b7ca9-8f2e-7909-8909-090909090909","upstream":"notes","#,
                r#""tool":"add_note","started_at":"2026-01-02T03:04:05.678Z","duration_ms":1.5,"wait_ms":2000.25,"#,
                r#""outcome":"error","sequence":1,"source":"shown","request_bytes":100,"#,
                r#""response_bytes":10,"request_tokens":25,"response_tokens":3,"#,
                r#""tokens_estimated":true,"continues":null,"work_session":null},"#,
                r#"{"id":"019b7ca9-8f2e-7202-8202-020202020202","#,
                r#""session":"019b7ca9-8f2e-7909-8909-090909090909","upstream":"notes","#,
                r#""tool":"add_note","started_at":"2026-01-02T03:04:05.678Z","duration_ms":null,"wait_ms":null,"#,
                r#""outcome":null,"sequence":2,"source":"shown","request_bytes":100,"#,
                r#""response_bytes":0,"request_tokens":25,"response_tokens":0,"#,
                r#""tokens_estimated":true,"#,
                r#""continues":"019b7ca9-8f2e-7101-8101-010101010101","work_session":null}]"#
            )
        );
        assert_eq!(as_json(&[]).to_string(), "[]");
    }

    #[test]
    fn tokens_are_estimated_unless_both_texts_were_counted() {
        let with_counts = |request_tokens, response_tokens| {
            let call = InvocationSummary {
                request_tokens,
                response_tokens,
                ..call(1, Some(Outcome::Ok))
            };
            let json = call_as_json(&call);
            let number = |key: &str| json[key].as_u64().unwrap();
            let is_estimated = json["tokens_estimated"].as_bool().unwrap();
            let tokens = (number("request_tokens"), number("response_tokens"));
            (tokens, is_estimated)
        };
        assert_eq!(with_counts(Some(7), Some(2)), ((7, 2), false));
        assert_eq!(with_counts(Some(7), None), ((7, 3), true));
        assert_eq!(with_counts(None, Some(2)), ((25, 2), true));
    }

    #[test]
    fn times_have_three_decimals_at_most() {
        for microseconds in [1, 999, 2_003, 34_567, 1_234_567, 86_400_000_001] {
            let text = json!(milliseconds(microseconds)).to_string();
            let (_, decimals) = text.split_once('.').unwrap();
            assert!(decimals.len() <= 3, "{text}");
        }
    }

    #[test]
    fn the_table_shows_one_call_a_line() {
        let shown = as_table(&[call(1, Some(Outcome::Ok)), call(2, None)]);
        let lines: Vec<Vec<&str>> = shown
            .lines()
            .map(|line| line.split_whitespace().collect())
            .collect();
        assert_eq!(lines.len(), 3);
        assert_eq!(lines[1][4..], ["notes", "add_note", "ok", "1.5"]);
        assert_eq!(lines[2][4..], ["notes", "add_note", "in", "flight"]);
    }
}
