//! Tool definitions of realistic length.

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_ports::token_counter::TokenCounter as _;
use serde_json::{Map, Value, json};

use super::stream::Tool;

/// Generic arguments that fit tools of all kinds, and so say nothing about the purpose of a tool.
const GENERIC_ARGUMENTS: [(&str, &str, &str); 12] = [
    (
        "limit",
        "integer",
        "The maximum number of entries to return, between 1 and 100. Defaults to 20.",
    ),
    (
        "cursor",
        "string",
        "The cursor from the previous response, to continue where it ended.",
    ),
    (
        "fields",
        "array",
        "The names of the fields to include; all of them when this is left out.",
    ),
    (
        "sort_by",
        "string",
        "The field by which the entries are ordered, ascending unless stated otherwise.",
    ),
    (
        "dry_run",
        "boolean",
        "Only report what would be done, without doing it. Defaults to false.",
    ),
    (
        "timeout_ms",
        "integer",
        "How long to wait before giving up, in milliseconds. Defaults to 30000.",
    ),
    (
        "format",
        "string",
        "The format of the response, either json or markdown.",
    ),
    (
        "since",
        "string",
        "Only consider what is newer than this moment, in the form of RFC 3339.",
    ),
    (
        "labels",
        "array",
        "Labels that have to be present; an entry needs all of them.",
    ),
    (
        "verbose",
        "boolean",
        "Include additional details in the response.",
    ),
    (
        "locale",
        "string",
        "The language of texts in the response, as a tag such as en-GB.",
    ),
    (
        "request_id",
        "string",
        "An identifier that makes repeating the request harmless.",
    ),
];

#[derive(Debug)]
pub(crate) struct Definitions {
    /// The JSON texts, in the order of the catalog.
    pub(crate) texts: Vec<String>,
}

impl Definitions {
    /// Returns a definition for each tool, with as many arguments as are needed for `least` tokens.
    pub(crate) fn of(tools: &[Tool], least: u64) -> Self {
        let texts: Vec<String> = tools
            .iter()
            .enumerate()
            .map(|(at, tool)| definition(at, tool, least))
            .collect();
        Self { texts }
    }
}

/// The arguments of every call.
pub(super) const CALL_ARGUMENTS: &str = r#"{"target":"a"}"#;

fn definition(at: usize, tool: &Tool, least: u64) -> String {
    let mut properties = Map::new();
    let target = json!({"type": "string", "description": "What the request is about."});
    properties.insert("target".into(), target);
    for n in 0.. {
        let text = json!({
            "name": tool.name,
            "description": tool.description,
            "inputSchema": {"type": "object", "properties": properties, "required": ["target"]},
        })
        .to_string();
        if O200kTokenCounter.count(&text) >= least {
            return text;
        }
        // Each tool starts at another argument, so that definitions differ.
        let (name, kind, description) = GENERIC_ARGUMENTS[(at * 5 + n) % GENERIC_ARGUMENTS.len()];
        let round = n / GENERIC_ARGUMENTS.len();
        let name = match round {
            0 => name.to_owned(),
            round => format!("{name}_{round}"),
        };
        let mut property = json!({"type": kind, "description": description});
        if kind == "array" {
            property["items"] = json!({"type": "string"});
        }
        properties.insert(name, Value::clone(&property));
    }
    unreachable!("there is always another argument")
}
