//! Test data: the rows that the clauses use.

mod decisions;
mod other_records;
mod stream;

use std::collections::BTreeMap;

use jiff::Timestamp;
use riglm_domain::catalog::tool::{ToolListing, ToolRef, ToolSighting};
use riglm_domain::id::{
    ContextId, ExchangeId, InvocationId, RunId, SessionId, ToolName, UpstreamName, WorkSessionId,
};
use riglm_domain::mcp::exchange::Exchange;
use riglm_domain::mcp::protocol::{Revision, Transport};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{
    CallTokens, Invocation, InvocationEnd, InvocationSummary, Outcome, ToolSource,
};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};

pub use self::decisions::{
    assignment, audit, exclusion, expected_coverage, experiment_stop, list_epoch, size_choice,
    snapshot, weights, work_session,
};
pub use self::other_records::{
    context, embedding, feedback, hash, list_shown, recommendation, recommended_tools,
    scored_tools, search,
};
pub use self::stream::{RandomNumbers, stream, stream_client, stream_hour, stream_principals};
use super::UsageStore;
use crate::analytics::InvocationFilter;

/// Returns the moment `millis` milliseconds and 7 microseconds after the start of the scene. The
/// microseconds show whether a store keeps them.
pub fn moment(millis: i64) -> Timestamp {
    Timestamp::from_microsecond(1_800_000_000_000_000 + millis * 1_000 + 7).unwrap()
}

/// Returns different texts that a faulty store would truncate, escape wrongly or confuse with each
/// other.
pub fn odd_texts() -> Vec<String> {
    let texts = [
        "a\u{0}b",
        "a",
        "a ",
        "A",
        "\u{0}",
        "🦀 'x' \"y\" \\ ]]",
        "\u{1}\n\u{7f}\u{fffe}",
        "\u{241b}",
        "\u{241b}0",
        "\u{241b}\u{241b}0",
        "a\u{241b}",
        "\\u0000",
        "%",
        "ä",
        "a\u{308}",
    ];
    let long = "long".repeat(2_500);
    texts.into_iter().map(String::from).chain([long]).collect()
}

/// Returns a tool of the upstream that [`call`] names.
pub fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("up-1.x").unwrap(),
        tool: ToolName::from(name),
    }
}

/// Returns the identifier of a run.
pub fn run(n: u8) -> RunId {
    RunId::new(moment(0), [n; 10])
}

/// Returns a session of the run that started `n` milliseconds into the scene.
pub fn session(run: RunId, n: u8) -> Session {
    Session {
        id: SessionId::new(moment(n.into()), [n; 10]),
        run,
        principal: Principal::from_name("alice"),
        client: hash("alice/client/1.0"),
        client_info: ClientInfo::new("client \"ünïcode\"", "1.0"),
        protocol: Revision::new(Revision::V2025_11_25),
        transport: Transport::StreamableHttp,
        started_at: moment(n.into()),
        profile: Some("o'brien \u{0}\"p\"".into()),
        metadata: BTreeMap::from([
            ("capabilities".into(), r#"{"a'b":"\u0000"}"#.into()),
            ("ti\u{0}tle\"".into(), "it's \u{0} \u{241b}0".into()),
        ]),
    }
}

/// Returns a call of the session, received `n` milliseconds into the scene.
pub fn call(session: SessionId, n: u8) -> Invocation {
    Invocation {
        id: InvocationId::new(moment(n.into()), [n; 10]),
        session,
        principal: Principal::from_name("alice"),
        upstream: UpstreamName::parse("up-1.x").unwrap(),
        tool: ToolName::from("echo"),
        arguments_hash: hash("{}"),
        arguments: Some(r#"{"text":"it's \"quoted\" \u0000"}"#.into()),
        started_at: moment(n.into()),
        sequence: n.into(),
        source: ToolSource::Hidden,
        request_bytes: 101,
        continues: None,
        work_session: Some(WorkSessionId::new(moment(n.into()), [n; 10])),
        list_epoch: Some(3),
        context: Some(ContextId::new(moment(n.into()), [n; 10])),
    }
}

/// Returns a call like [`call`] of the tool with this name.
pub fn call_of(session: SessionId, n: u8, name: &str) -> Invocation {
    Invocation {
        tool: ToolName::from(name),
        ..call(session, n)
    }
}

/// Returns the tokens of the call.
pub fn tokens(call: &Invocation, request: Option<u64>, response: Option<u64>) -> Record {
    Record::CallMeasured(CallTokens {
        id: call.id,
        request,
        response,
    })
}

/// Returns the end of the session.
pub fn session_closed(session: &Session, millis: i64) -> Record {
    Record::SessionClosed {
        session: session.id,
        ended_at: moment(millis),
    }
}

/// Returns the record of a lost run.
pub fn run_lost(n: u8, millis: i64) -> Record {
    Record::RunLost {
        run: run(n),
        noticed_at: moment(millis),
    }
}

/// Returns an end of the call.
pub fn end(call: &Invocation, outcome: Outcome) -> InvocationEnd {
    InvocationEnd {
        id: call.id,
        outcome,
        duration_us: 1_234,
        wait_us: 567,
        response_bytes: 202,
        result: Some(r#"{"content":[]}"#.into()),
    }
}

/// Returns a call without token counts, as a store returns it.
pub fn summary(invocation: Invocation, end: Option<InvocationEnd>) -> InvocationSummary {
    InvocationSummary {
        invocation,
        end,
        request_tokens: None,
        response_tokens: None,
    }
}

/// Returns a request of the session, received `n` milliseconds into the scene.
pub fn exchange(session: SessionId, n: u8) -> Exchange {
    Exchange {
        id: ExchangeId::new(moment(n.into()), [n; 10]),
        session,
        principal: Principal::from_name("alice"),
        upstream: UpstreamName::parse("up-1.x").unwrap(),
        method: "resources/read".into(),
        target: Some("file:///a b".into()),
        started_at: moment(n.into()),
        duration_us: 77,
        outcome: Outcome::Error,
    }
}

/// Returns a page with these tools, identified by `id`.
pub fn page(id: &str, tools: &[&str]) -> ToolListing {
    ToolListing {
        id: id.into(),
        upstream: UpstreamName::parse("up-1.x").unwrap(),
        tools: tools
            .iter()
            .map(|name| ToolSighting {
                name: ToolName::from(*name),
                content_hash: format!("hash of {name}"),
                definition: format!("{{\"name\":\"{name}\"}}"),
            })
            .collect(),
    }
}

/// Applies records, and panics if the store rejects them.
pub async fn apply(store: &impl UsageStore, records: &[Record]) {
    store.apply(records).await.unwrap();
}

/// Returns all calls in the store.
pub async fn calls(store: &impl UsageStore) -> Vec<InvocationSummary> {
    let all = InvocationFilter::default();
    store.invocations(&all, u32::MAX).await.unwrap()
}

/// Returns the outcome of the only call in the store.
pub async fn only_outcome(store: &impl UsageStore) -> Option<Outcome> {
    let calls = calls(store).await;
    assert_eq!(calls.len(), 1);
    calls[0].end.as_ref().map(|end| end.outcome)
}
