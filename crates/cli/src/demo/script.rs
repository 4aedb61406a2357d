//! The calls that the clients of the demonstration make, and the expected results.

use serde_json::{Value, json};

use super::{DemoClient, DemoServer};

/// The expected result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ExpectedResult {
    /// A result with this text.
    Text(&'static str),
    /// A result that the tool marks as failed, with this text.
    Failure(&'static str),
}

/// A call of a script.
#[derive(Clone, Debug)]
pub struct ScriptedCall {
    /// The server of the tool.
    pub server: DemoServer,
    /// The name of the tool at the server.
    pub tool: &'static str,
    /// The name that the client calls.
    pub name: String,
    /// The arguments, a JSON object.
    pub arguments: Value,
    /// The expected result.
    pub expected: ExpectedResult,
}

/// Returns a call through the proxy, which adds the name of the server as a namespace.
fn call(
    server: DemoServer,
    tool: &'static str,
    arguments: Value,
    expected: ExpectedResult,
) -> ScriptedCall {
    ScriptedCall {
        server,
        tool,
        name: format!("{}__{tool}", server.name()),
        arguments,
        expected,
    }
}

/// Returns the calls of a client, in order. Each client reaches every server, and one call fails.
#[must_use]
pub fn script(client: DemoClient) -> Vec<ScriptedCall> {
    match client {
        DemoClient::Earlier => [notes(), text(), calc()].concat(),
        DemoClient::Modern => vec![
            call(
                DemoServer::Notes,
                "add_note",
                json!({"text": "Nobody else sees this"}),
                ExpectedResult::Text("kept note 1"),
            ),
            call(
                DemoServer::Text,
                "slugify",
                json!({"text": "No Handshake, No Session"}),
                ExpectedResult::Text("no-handshake-no-session"),
            ),
            call(
                DemoServer::Calc,
                "evaluate",
                json!({"expression": "2 ^ 10"}),
                ExpectedResult::Text("1024"),
            ),
        ],
    }
}

fn notes() -> Vec<ScriptedCall> {
    vec![
        call(
            DemoServer::Notes,
            "add_note",
            json!({"text": "Water the plants on Friday"}),
            ExpectedResult::Text("kept note 1"),
        ),
        call(
            DemoServer::Notes,
            "add_note",
            json!({"text": "Friday is also bin day"}),
            ExpectedResult::Text("kept note 2"),
        ),
        call(
            DemoServer::Notes,
            "search_notes",
            json!({"query": "friday plants"}),
            ExpectedResult::Text("1. Water the plants on Friday"),
        ),
    ]
}

fn text() -> Vec<ScriptedCall> {
    vec![
        call(
            DemoServer::Text,
            "word_count",
            json!({"text": "Tools are listed,\nthen they are called."}),
            ExpectedResult::Text("2 lines, 7 words, 39 characters"),
        ),
        call(
            DemoServer::Text,
            "compare",
            json!({"before": "tea\nmilk", "after": "tea\nhoney"}),
            ExpectedResult::Text(" tea\n-milk\n+honey"),
        ),
        call(
            DemoServer::Text,
            "slugify",
            json!({"text": "What a Proxy Sees"}),
            ExpectedResult::Text("what-a-proxy-sees"),
        ),
    ]
}

fn calc() -> Vec<ScriptedCall> {
    vec![
        call(
            DemoServer::Calc,
            "evaluate",
            json!({"expression": "(2 + 3) * 4 ^ 2"}),
            ExpectedResult::Text("80"),
        ),
        call(
            DemoServer::Calc,
            "days_between",
            json!({"from": "2026-01-01", "to": "2026-12-24"}),
            ExpectedResult::Text("357 days"),
        ),
        call(
            DemoServer::Calc,
            "convert",
            json!({"value": 26.2, "from": "mi", "to": "km"}),
            ExpectedResult::Text("26.2 mi = 42.1648 km"),
        ),
        call(
            DemoServer::Calc,
            "evaluate",
            json!({"expression": "1 / 0"}),
            ExpectedResult::Failure("division by zero"),
        ),
    ]
}
