//! The definitions of the own tools in lists.

use std::borrow::Cow;

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::edit::with_member;
use riglm_domain::mcp::protocol::Revision;
use serde_json::{Value, json};

use super::arguments::{MAX_LIMIT, MAX_QUERY_CHARS};
use super::own_tool::OwnTool;
use crate::proxy::session_app::SESSION_APP;

/// The description of the search tool.
const SEARCH: &str = "Finds tools of this server by what they do, also those that your list does \
    not show: say in a few words what has to be done. The answer names the tools that fit best, and \
    says how to call those that are not in your list. Search before you conclude that there is no \
    tool for something.";
/// The maximum length in bytes of the sentence about the servers.
const MAX_SERVERS_BYTES: usize = 1_200;
/// The description of `call_tool`.
const CALL_TOOL: &str = "Calls a tool of this server that is not in your list: give its name, as a \
    search or an error named it, and its arguments.";
/// The description of the tool that sets the context.
const SET_CONTEXT: &str = "Say what you are going to do, once at the beginning of a task: the answer \
    names the tools for it, and those that you need are known later on.";

/// The description of the recommendation tool.
const RECOMMEND: &str = "Recommends tools of this server for what you want to do, with the reasons: \
    how well they fit, how often their calls succeed, how quickly they answer, how they are rated, \
    and which tools usually come before and after them.";
/// The description of the rating tool.
const RATE_TOOL: &str = "Say what a tool of this server was worth after you used it, with 1 (useless) \
    to 5 stars (just right), so that better ones are recommended next time.";

/// The description of the tool for paging through results.
const READ_MORE: &str = "Returns the next part of a result that was cut because of its length. Take \
    handle and offset from the end of the part that you have.";

/// The description of the tool that shows the session.
const SHOW_SESSION: &str = "Shows the user this session of the tool proxy: which tools are listed, \
    which are hidden and why, the recent calls, and which tools are likely next. Use it when the user \
    asks about the tools of this session.";

/// The texts of a definition, which never change.
#[derive(Debug)]
pub(super) struct Definitions {
    /// For revisions that support only name, description and `inputSchema`.
    basic: String,
    /// With `annotations`.
    annotated: String,
    /// With `title`, with `outputSchema` if the output has a fixed form, and with the app that shows
    /// it, if there is one.
    full: String,
}

impl Definitions {
    pub(super) fn new(tool: OwnTool, name: &str) -> Self {
        let Texts {
            title,
            description,
            input_schema,
            output_schema,
            effect,
            app,
        } = Texts::of(tool);
        let basic = json!({
            "name": name,
            "description": description,
            "inputSchema": input_schema,
        })
        .to_string();
        let annotations = json!({
            "readOnlyHint": effect == Effect::None,
            "destructiveHint": effect == Effect::Any,
            "idempotentHint": effect == Effect::None,
            "openWorldHint": effect == Effect::Any,
        })
        .to_string();
        let annotated = with_member(&basic, "annotations", &annotations);
        let mut full = with_member(&annotated, "title", &Value::from(title).to_string());
        if let Some(schema) = output_schema {
            full = with_member(&full, "outputSchema", &schema.to_string());
        }
        if let Some(uri) = app {
            let meta = json!({"ui": {"resourceUri": uri}});
            full = with_member(&full, "_meta", &meta.to_string());
        }
        Self {
            basic,
            annotated,
            full,
        }
    }

    /// Returns the definition in the form that a revision supports.
    pub(super) fn of(&self, revision: Option<&Revision>) -> &str {
        match revision {
            Some(revision) if revision.has_structured_results() => &self.full,
            Some(revision) if revision.has_annotations() => &self.annotated,
            _ => &self.basic,
        }
    }
}

/// Returns the definition of the search tool with the servers that it searches, each with its number
/// of tools. Their order is kept; those that find no room are only counted.
pub(in crate::proxy) fn with_servers<'a>(
    definition: &'a str,
    servers: &[(UpstreamName, usize)],
) -> Cow<'a, str> {
    if servers.is_empty() {
        return Cow::Borrowed(definition);
    }
    let mut left: usize = servers.iter().map(|(_, n)| n).sum();
    let mut parts = Vec::new();
    let mut n_bytes = 100; // The sentence around the names.
    for (server, n) in servers {
        let part = format!("{server} ({n})");
        n_bytes += part.len() + 2;
        if n_bytes > MAX_SERVERS_BYTES {
            let n_more = servers.len() - parts.len();
            parts.push(format!("and {n_more} more with {left}"));
            break;
        }
        left -= n;
        parts.push(part);
    }
    let text = format!(
        "{SEARCH} Its servers, with their numbers of tools: {}.",
        parts.join(", ")
    );
    with_member(definition, "description", &Value::from(text).to_string()).into()
}

/// The texts and schemas of one tool.
struct Texts {
    title: &'static str,
    description: &'static str,
    input_schema: Value,
    output_schema: Option<Value>,
    effect: Effect,
    /// The URI of the app that shows results.
    app: Option<&'static str>,
}

/// The effect of calls of a tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// No effect, and no contact with other systems.
    None,
    /// Each call adds something to the store of the proxy.
    Adds,
    /// The effect of the called tool.
    Any,
}

impl Texts {
    fn of(tool: OwnTool) -> Self {
        match tool {
            OwnTool::Search => Self {
                title: "Search available tools",
                description: SEARCH,
                input_schema: search_schema(),
                output_schema: Some(output_schema()),
                effect: Effect::None,
                app: None,
            },
            OwnTool::CallTool => Self {
                title: "Call a tool",
                description: CALL_TOOL,
                input_schema: call_schema(),
                output_schema: None,
                effect: Effect::Any,
                app: None,
            },
            OwnTool::Recommend => Self {
                title: "Recommend tools",
                description: RECOMMEND,
                input_schema: super::recommending::input_schema(),
                output_schema: Some(super::recommending::output_schema()),
                effect: Effect::None,
                app: None,
            },
            OwnTool::RateTool => Self {
                title: "Rate a tool",
                description: RATE_TOOL,
                input_schema: super::rating::input_schema(),
                output_schema: None,
                effect: Effect::Adds,
                app: None,
            },
            OwnTool::ReadMore => Self {
                title: "Read more",
                description: READ_MORE,
                input_schema: super::paging::input_schema(),
                output_schema: None,
                effect: Effect::None,
                app: None,
            },
            OwnTool::SetContext => Self {
                title: "Set context",
                description: SET_CONTEXT,
                input_schema: context_schema(),
                output_schema: Some(output_schema()),
                effect: Effect::None,
                app: None,
            },
            OwnTool::ShowSession => Self {
                title: "Show session",
                description: SHOW_SESSION,
                input_schema: json!({"type": "object", "properties": {}}),
                output_schema: Some(super::session_view::output_schema()),
                effect: Effect::None,
                app: Some(SESSION_APP),
            },
        }
    }
}

fn search_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "query": {
                "type": "string",
                "minLength": 1,
                "maxLength": MAX_QUERY_CHARS,
                "description": "What has to be done, in a few words, for example: create a calendar event",
            },
            "limit": {
                "type": "integer",
                "minimum": 1,
                "maximum": MAX_LIMIT,
                "description": "The most tools to name",
            },
        },
        "required": ["query"],
    })
}

fn call_schema() -> Value {
    json!({
        "type": "object",
        "properties": {
            "name": {"type": "string", "description": "The name of the tool"},
            // Some clients close an object that does not say that it is open.
            "arguments": {
                "type": "object",
                "additionalProperties": true,
                "description": "Its arguments, as its schema has them",
            },
        },
        "required": ["name"],
    })
}

fn context_schema() -> Value {
    let text = |description: &str| {
        json!({
            "type": "string",
            "maxLength": MAX_QUERY_CHARS,
            "description": description,
        })
    };
    json!({
        "type": "object",
        "properties": {
            "query": text("What has to be done, in a few words"),
            "intent": text("What it is for"),
        },
        "required": ["query"],
    })
}

fn output_schema() -> Value {
    let named = |key: &str, schema: Value, description: &str| {
        let mut schema = json!({
            "type": "array",
            "description": description,
            "items": {
                "type": "object",
                "properties": {
                    "name": {"type": "string"},
                    "description": {"type": "string"},
                    key: schema,
                    "input_schema": {"type": "object"},
                },
            },
        });
        schema["items"]["required"] = json!(["name", "description", key]);
        schema
    };
    let mut matches = named(
        "score",
        json!({"type": "number"}),
        "The tools that fit, best first",
    );
    matches["items"]["properties"]["same_as"] = json!({
        "type": "array",
        "description": "Tools of other servers that are the same",
        "items": {"type": "string"},
    });
    json!({
        "type": "object",
        "properties": {
            "matches": matches,
            "predicted_next": named(
                "reason",
                json!({"type": "string"}),
                "Tools that are often called next",
            ),
            "quality": {"type": "string", "enum": ["high", "medium", "low"]},
            "notes": {"type": "array", "items": {"type": "string"}},
            "skills": {
                "type": "array",
                "description": "Instructions for this task, to be read as resources",
                "items": {
                    "type": "object",
                    "properties": {
                        "uri": {"type": "string"},
                        "name": {"type": "string"},
                        "description": {"type": "string"},
                    },
                    "required": ["uri", "name", "description"],
                },
            },
        },
        "required": ["matches", "predicted_next", "quality", "notes"],
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(tool: OwnTool, revision: &str) -> Vec<String> {
        let definitions = Definitions::new(tool, "n");
        let text = definitions.of(Some(&Revision::new(revision)));
        let definition: serde_json::Map<String, Value> = serde_json::from_str(text).unwrap();
        definition.keys().cloned().collect()
    }

    #[test]
    fn the_search_names_its_servers_within_a_bound() {
        let definition = r#"{"name":"s","description":"d","inputSchema":{}}"#;
        let text = |sizes: &[(&str, usize)]| {
            let named = sizes.iter();
            let servers: Vec<_> = named
                .map(|(name, n)| (UpstreamName::parse(name).unwrap(), *n))
                .collect();
            let definition = with_servers(definition, &servers).into_owned();
            let definition: Value = serde_json::from_str(&definition).unwrap();
            definition["description"].as_str().unwrap().to_owned()
        };
        assert_eq!(text(&[]), "d");
        let few = text(&[("github", 143), ("files", 14)]);
        let expected = " Its servers, with their numbers of tools: github (143), files (14).";
        assert_eq!(few, format!("{SEARCH}{expected}"));
        let names: Vec<String> = (0..200).map(|n| format!("a-server-{n:03}")).collect();
        let many: Vec<(&str, usize)> = names.iter().map(|name| (name.as_str(), 7)).collect();
        let many = text(&many);
        assert!(many.len() - SEARCH.len() <= MAX_SERVERS_BYTES, "{many}");
        let n_named = many.matches("a-server-").count();
        let end = format!("and {} more with {}.", 200 - n_named, (200 - n_named) * 7);
        assert!(n_named > 50 && many.ends_with(&end), "{many}");
    }

    #[test]
    fn same_as_is_optional_in_the_output_schema() {
        let item = &output_schema()["properties"]["matches"]["items"];
        assert_eq!(item["properties"]["same_as"]["items"]["type"], "string");
        assert_eq!(item["required"], json!(["name", "description", "score"]));
    }

    #[test]
    fn definitions_have_only_the_fields_of_their_revision() {
        let basic = ["name", "description", "inputSchema"];
        let annotated = [&basic[..], &["annotations"]].concat();
        let titled = [&annotated[..], &["title"]].concat();
        let full = [&titled[..], &["outputSchema"]].concat();
        let with_app = [&full[..], &["_meta"]].concat();
        for tool in OwnTool::ALL {
            assert_eq!(keys(tool, "2024-11-05"), basic);
            assert_eq!(keys(tool, "2025-03-26"), annotated);
            let is_text = matches!(
                tool,
                OwnTool::CallTool | OwnTool::RateTool | OwnTool::ReadMore
            );
            let all = match tool {
                OwnTool::ShowSession => &with_app,
                _ if is_text => &titled,
                _ => &full,
            };
            assert_eq!(keys(tool, "2025-06-18"), *all);
            assert_eq!(keys(tool, "2026-07-28"), *all);
        }
    }

    #[test]
    fn annotations_describe_the_effects_of_calls() {
        for tool in OwnTool::ALL {
            let definitions = Definitions::new(tool, "n");
            let definition: Value = serde_json::from_str(&definitions.full).unwrap();
            let says = |hint: &str| definition["annotations"][hint] == true;
            let is_reading = !matches!(tool, OwnTool::CallTool | OwnTool::RateTool);
            assert_eq!(says("readOnlyHint"), is_reading, "{tool:?}");
            assert_eq!(says("idempotentHint"), is_reading, "{tool:?}");
            // Only `call_tool` may destroy data or contact other systems.
            let is_any = tool == OwnTool::CallTool;
            assert_eq!(says("destructiveHint"), is_any, "{tool:?}");
            assert_eq!(says("openWorldHint"), is_any, "{tool:?}");
        }
    }
}
