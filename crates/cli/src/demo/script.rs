//! What the client of the demonstration does with each server, and what must come of it.

use serde_json::{Value, json};

use super::DemoServer;

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
    /// The tool to call.
    pub tool: &'static str,
    /// Its arguments, a JSON object.
    pub arguments: Value,
    /// What must come of it.
    pub expected: Expected,
}

fn call(tool: &'static str, arguments: Value, expected: Expected) -> ScriptedCall {
    ScriptedCall {
        tool,
        arguments,
        expected,
    }
}

/// Returns the calls that the client makes to a server, in their order. Those to `calc` end with
/// one that fails.
#[must_use]
pub fn script(server: DemoServer) -> Vec<ScriptedCall> {
    match server {
        DemoServer::Notes => vec![
            call(
                "add_note",
                json!({"text": "Water the plants on Friday"}),
                Expected::Text("kept note 1"),
            ),
            call(
                "add_note",
                json!({"text": "Friday is also bin day"}),
                Expected::Text("kept note 2"),
            ),
            call(
                "search_notes",
                json!({"query": "friday plants"}),
                Expected::Text("1. Water the plants on Friday"),
            ),
        ],
        DemoServer::Text => vec![
            call(
                "word_count",
                json!({"text": "Tools are listed,\nthen they are called."}),
                Expected::Text("2 lines, 7 words, 39 characters"),
            ),
            call(
                "compare",
                json!({"before": "tea\nmilk", "after": "tea\nhoney"}),
                Expected::Text(" tea\n-milk\n+honey"),
            ),
            call(
                "slugify",
                json!({"text": "What a Proxy Sees"}),
                Expected::Text("what-a-proxy-sees"),
            ),
        ],
        DemoServer::Calc => vec![
            call(
                "evaluate",
                json!({"expression": "(2 + 3) * 4 ^ 2"}),
                Expected::Text("80"),
            ),
            call(
                "days_between",
                json!({"from": "2026-01-01", "to": "2026-12-24"}),
                Expected::Text("357 days"),
            ),
            call(
                "convert",
                json!({"value": 26.2, "from": "mi", "to": "km"}),
                Expected::Text("26.2 mi = 42.1648 km"),
            ),
            call(
                "evaluate",
                json!({"expression": "1 / 0"}),
                Expected::Failure("division by zero"),
            ),
        ],
    }
}
