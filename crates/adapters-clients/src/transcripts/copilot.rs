//! The transcripts of Copilot CLI, as version 1.0 writes them (to November 2026).
//!
//! `session-state/SESSION/events.jsonl`. Each line is an event with its data. The start of a call names
//! the server and the tool exactly, if it is one of a server, and the end has the same identifier.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::line_format::{LineContent, LineFormat};
use super::session_log::{CallEnd, CallStart, SessionLog, identity};
use super::tool_names::QualifiedTool;

/// The kinds of events: what stands before the dot of their type.
const KINDS: [&str; 23] = [
    "abort",
    "agent",
    "assistant",
    "auto_mode_switch",
    "capabilities",
    "command",
    "commands",
    "elicitation",
    "exit_plan_mode",
    "external_tool",
    "hook",
    "mcp",
    "model",
    "pending_messages",
    "permission",
    "sampling",
    "session",
    "skill",
    "subagent",
    "system",
    "tool",
    "user",
    "user_input",
];

/// The reader of a file.
#[derive(Debug, Default)]
pub(super) struct CopilotFormat;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    r#type: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    timestamp: Option<Cow<'a, str>>,
    agent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Data<'a> {
    session_id: Option<Cow<'a, str>>,
    context: Option<Context<'a>>,
    content: Option<Cow<'a, str>>,
    source: Option<Cow<'a, str>>,
    tool_call_id: Option<Cow<'a, str>>,
    parent_tool_call_id: Option<Cow<'a, str>>,
    tool_name: Option<Cow<'a, str>>,
    mcp_server_name: Option<Cow<'a, str>>,
    mcp_tool_name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    success: Option<bool>,
    error: Option<CallError<'a>>,
}

#[derive(Deserialize)]
struct Context<'a> {
    cwd: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct CallError<'a> {
    code: Option<Cow<'a, str>>,
    message: Option<Cow<'a, str>>,
}

impl LineFormat for CopilotFormat {
    fn read_line(&mut self, text: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return LineContent::Malformed;
        };
        let kind = line.r#type.as_deref().unwrap_or_default();
        let is_read = matches!(
            kind,
            "session.start"
                | "session.resume"
                | "user.message"
                | "tool.execution_start"
                | "tool.execution_complete"
        );
        if !is_read {
            let before_dot = kind.split('.').next().unwrap_or_default();
            return if KINDS.contains(&before_dot) {
                LineContent::Understood
            } else {
                LineContent::Unknown
            };
        }
        let data = line.data.map_or("null", RawValue::get);
        let Ok(data) = serde_json::from_str::<Data<'_>>(data) else {
            return LineContent::Malformed;
        };
        read_event(kind, &line, &data, log)
    }
}

fn read_event(
    kind: &str,
    line: &Line<'_>,
    data: &Data<'_>,
    log: &mut SessionLog<'_, '_>,
) -> LineContent {
    let at = log.time_of(line.timestamp.as_deref());
    let is_of_subagent = line.agent_id.is_some() || data.parent_tool_call_id.is_some();
    match (kind, &data.tool_call_id) {
        ("user.message", _) => {
            let is_of_user = matches!(data.source.as_deref(), None | Some("user"));
            let text = data.content.as_deref().unwrap_or_default();
            if is_of_user && !is_of_subagent {
                log.message(text, at, line.id.as_deref().unwrap_or(text));
            }
        }
        ("tool.execution_start", Some(id)) => {
            let time = line.timestamp.as_deref().unwrap_or_default();
            log.start(CallStart {
                call_id: id,
                tool: tool_of(data),
                at,
                arguments: data.arguments.map(RawValue::get),
                agent: if is_of_subagent {
                    CallingAgent::Subagent
                } else {
                    CallingAgent::Main
                },
                identity: identity(&["copilot", id, time]),
            });
        }
        ("tool.execution_complete", Some(id)) => match outcome(data) {
            Some(outcome) => {
                let end = CallEnd {
                    outcome,
                    at: Some(at),
                    duration: None,
                };
                log.finish(id, &end);
            }
            None => log.refuse(id),
        },
        ("session.start" | "session.resume", _) => {
            if let Some(session) = &data.session_id {
                log.set_session(session);
            }
            if let Some(cwd) = data
                .context
                .as_ref()
                .and_then(|context| context.cwd.as_ref())
            {
                log.set_project(cwd);
            }
        }
        _ => return LineContent::Malformed,
    }
    LineContent::Understood
}

fn tool_of(data: &Data<'_>) -> QualifiedTool {
    let name = data.tool_name.as_deref().unwrap_or_default();
    let exact = data.mcp_tool_name.as_deref();
    QualifiedTool {
        server: data.mcp_server_name.as_deref().map(str::to_owned),
        tool: exact.unwrap_or(name).to_owned(),
    }
}

/// Returns the outcome of a call; `None` if the client refused it.
fn outcome(data: &Data<'_>) -> Option<CallOutcome> {
    if data.success == Some(true) {
        return Some(CallOutcome::Success);
    }
    let error = data.error.as_ref();
    let code = error.and_then(|error| error.code.as_deref());
    let message = error.and_then(|error| error.message.as_deref());
    let is_unknown =
        message.is_some_and(|it| it.starts_with("Tool '") && it.ends_with("' does not exist."));
    match code {
        Some("denied") => None,
        _ if is_unknown => None,
        Some("rejected") => Some(CallOutcome::Cancelled),
        _ => Some(CallOutcome::Error),
    }
}
