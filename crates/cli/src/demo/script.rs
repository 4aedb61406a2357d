//! What the clients of the demonstration do, and what must come of it.

use serde_json::{Value, json};

use super::{DemoClient, DemoServer};

/// What must come of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// A result with this text.
    Text(&'static str),
    /// A result that the tool marks as failed, with this text.
    Failure(&'static str),
}

/// One call.
#[derive(Clone, Debug)]
pub struct ScriptedCall {
    /// The server that it reaches.
    pub server: DemoServer,
    /// The tool to call, as that server names it.
    pub tool: &'static str,
    /// The name by which the client calls it.
    pub name: String,
    /// Its arguments, a JSON object.
    pub arguments: Value,
    /// What must come of it.
    pub expected: Expected,
}

/// Returns a call through the proxy, where the name of the server stands in front of that of the
/// tool.
fn call(
    server: DemoServer,
    tool: &'static str,
    arguments: Value,
    expected: Expected,
) -> ScriptedCall {
    ScriptedCall {
        server,
        tool,
        name: format!("{}__{tool}", server.name()),
        arguments,
        expected,
    }
}

/// Returns the calls that a client makes, in their order. Each client reaches every server, and one
/// call fails.
#[must_use]
pub fn script(client: DemoClient) -> Vec<ScriptedCall> {
    match client {
        DemoClient::Earlier => [notes(), text(), calc()].concat(),
        DemoClient::Modern => vec![
            call(
                DemoServer::Notes,
                "add_note",
                json!({"text": "Nobody else sees this"}),
                Expected::Text("kept note 1"),
            ),
            call(
                DemoServer::Text,
                "slugify",
                json!({"text": "No Handshake, No Session"}),
                Expected::Text("no-handshake-no-session"),
            ),
            call(
                DemoServer::Calc,
                "evaluate",
                json!({"expression": "2 ^ 10"}),
                Expected::Text("1024"),
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
            Expected::Text("kept note 1"),
        ),
        call(
            DemoServer::Notes,
            "add_note",
            json!({"text": "Friday is also bin day"}),
            Expected::Text("kept note 2"),
        ),
        call(
            DemoServer::Notes,
            "search_notes",
            json!({"query": "friday plants"}),
            Expected::Text("1. Water the plants on Friday"),
        ),
    ]
}

fn text() -> Vec<ScriptedCall> {
    vec![
        call(
            DemoServer::Text,
            "word_count",
            json!({"text": "Tools are listed,\nthen they are called."}),
            Expected::Text("2 lines, 7 words, 39 characters"),
        ),
        call(
            DemoServer::Text,
            "compare",
            json!({"before": "tea\nmilk", "after": "tea\nhoney"}),
            Expected::Text(" tea\n-milk\n+honey"),
        ),
        call(
            DemoServer::Text,
            "slugify",
            json!({"text": "What a Proxy Sees"}),
            Expected::Text("what-a-proxy-sees"),
        ),
    ]
}

fn calc() -> Vec<ScriptedCall> {
    vec![
        call(
            DemoServer::Calc,
            "evaluate",
            json!({"expression": "(2 + 3) * 4 ^ 2"}),
            Expected::Text("80"),
        ),
        call(
            DemoServer::Calc,
            "days_between",
            json!({"from": "2026-01-01", "to": "2026-12-24"}),
            Expected::Text("357 days"),
        ),
        call(
            DemoServer::Calc,
            "convert",
            json!({"value": 26.2, "from": "mi", "to": "km"}),
            Expected::Text("26.2 mi = 42.1648 km"),
        ),
        call(
            DemoServer::Calc,
            "evaluate",
            json!({"expression": "1 / 0"}),
            Expected::Failure("division by zero"),
        ),
    ]
}
