//! The rounds of multi-round calls, as `riglm calls` counts them.

use riglm_tests::fixture::{Server, Transport};
use riglm_tests::messages::{call, initialize};
use riglm_tests::modern::{Meta, MultiRoundClient};
use riglm_tests::riglm::{Options, ProxiedClient, rows};
use serde_json::Value;

use crate::{answers, modern_odd, odd};

const CALLS: [&str; 2] = ["calls", "--json"];
/// The response of a modern client to any input request.
const ANSWER: &str =
    r#"{"action":"accept","content":{},"role":"assistant","model":"m","roots":[]}"#;

/// Returns the tool and the sequence number of each call, in order.
async fn sequences(line: &ProxiedClient) -> Vec<(String, u64)> {
    let rows = rows(line.data_dir.path(), &CALLS).await;
    let tool = |row: &Value| row["tool"].as_str().unwrap_or_default().to_owned();
    let number = |row: &Value| row["sequence"].as_u64().unwrap_or_default();
    rows.iter().map(|row| (tool(row), number(row))).collect()
}

/// Makes calls with one, two and three rounds over each pair of transports, and compares the
/// sequence numbers of their rows.
async fn assert_rounds_have_one_number(server: &Server, tools: &[(&str, usize)]) {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        for upstream in [Transport::Stdio, Transport::Streamable] {
            let upstream = server.start(upstream).await;
            let line = ProxiedClient::modern(downstream, &upstream, &Options::default()).await;
            let rounds = MultiRoundClient::new(&line.client, &Meta::default());
            let mut expected = Vec::new();
            for (number, (tool, n_rounds)) in (1..).zip(tools) {
                let params = format!(r#""name":"{tool}","arguments":{{}}"#);
                let received = rounds
                    .resolve("tools/call", &params, |_| ANSWER.into())
                    .await;
                assert_eq!(received.len(), *n_rounds, "{tool}");
                expected.extend(vec![((*tool).to_owned(), number); *n_rounds]);
            }
            assert_eq!(sequences(&line).await, expected, "{downstream:?}");
        }
    }
}

#[tokio::test]
async fn rounds_with_a_modern_server_share_one_sequence_number() {
    let tools = [
        ("elicit", 2),
        ("two_rounds", 3),
        ("elicit", 2),
        ("sample", 2),
        ("roots", 2),
        ("state_only", 2),
        ("empty", 1),
    ];
    assert_rounds_have_one_number(&modern_odd(), &tools).await;
}

#[tokio::test]
async fn rounds_with_a_legacy_server_share_one_sequence_number() {
    let tools = [
        ("elicit", 2),
        ("two_rounds", 3),
        ("elicit", 2),
        ("empty", 1),
    ];
    assert_rounds_have_one_number(&odd(), &tools).await;
}

#[tokio::test]
async fn multi_round_calls_of_legacy_clients_are_recorded_once() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstream,
        &Options::default(),
        answers(),
    )
    .await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    let tools = ["elicit", "two_rounds", "empty"];
    let mut expected = Vec::new();
    for (number, tool) in (1..).zip(tools) {
        line.client
            .request(&call(&number.to_string(), tool, "{}"))
            .await;
        expected.push((tool.to_owned(), number));
    }
    assert_eq!(sequences(&line).await, expected);
}
