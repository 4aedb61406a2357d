//! The transcripts of Qwen Code, as version 0.24 writes them (to November 2026).
//!
//! `projects/PROJECT/chats/SESSION.jsonl`, and for subagents
//! `projects/PROJECT/subagents/SESSION/agent-ID.jsonl`. An `assistant` line has the call as a part
//! `functionCall`, and a `tool_result` line has its end. In the session of the user, a `system` line of
//! the kind `ui_telemetry` comes before the end and names the server and the duration. A tool that was
//! loaded on demand may be called by `tool_call`, with its name among the arguments. MCP tools are
//! called `mcp__SERVER__TOOL`.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::line_format::{LineContent, LineFormat};
use super::session_log::{CallEnd, CallStart, SessionLog, identity};
use super::tool_names::QualifiedTool;

/// The tool that calls another one, which was loaded on demand.
const BRIDGE_TOOL: &str = "tool_call";

/// The reader of a file.
#[derive(Debug, Default)]
pub(super) struct QwenFormat;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    r#type: Option<Cow<'a, str>>,
    subtype: Option<Cow<'a, str>>,
    uuid: Option<Cow<'a, str>>,
    session_id: Option<Cow<'a, str>>,
    timestamp: Option<Cow<'a, str>>,
    cwd: Option<Cow<'a, str>>,
    is_sidechain: Option<bool>,
    #[serde(borrow)]
    message: Option<Message<'a>>,
    #[serde(borrow)]
    tool_call_result: Option<ToolResult<'a>>,
    #[serde(borrow)]
    system_payload: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow, default)]
    parts: Vec<Part<'a>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part<'a> {
    text: Option<Cow<'a, str>>,
    #[serde(borrow)]
    function_call: Option<FunctionCall<'a>>,
    #[serde(borrow)]
    function_response: Option<FunctionResponse<'a>>,
}

#[derive(Deserialize)]
struct FunctionCall<'a> {
    id: Option<Cow<'a, str>>,
    name: Cow<'a, str>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct FunctionResponse<'a> {
    #[serde(borrow)]
    response: Option<ResponseObject<'a>>,
}

#[derive(Deserialize)]
struct ResponseObject<'a> {
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The arguments of a call by [`BRIDGE_TOOL`].
#[derive(Deserialize)]
struct BridgedCall<'a> {
    name: Cow<'a, str>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolResult<'a> {
    call_id: Cow<'a, str>,
    status: Option<Cow<'a, str>>,
    execution_status: Option<Cow<'a, str>>,
    duration_ms: Option<f64>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(rename = "uiEvent", borrow)]
    event: ToolEvent<'a>,
}

#[derive(Deserialize)]
struct ToolEvent<'a> {
    #[serde(rename = "event.name")]
    name: Cow<'a, str>,
    call_id: Cow<'a, str>,
    function_name: Cow<'a, str>,
    status: Option<Cow<'a, str>>,
    execution_status: Option<Cow<'a, str>>,
    duration_ms: Option<f64>,
    mcp_server_name: Option<Cow<'a, str>>,
}

impl LineFormat for QwenFormat {
    fn read_line(&mut self, text: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return LineContent::Malformed;
        };
        let kind = line.r#type.as_deref().unwrap_or_default();
        if !matches!(kind, "user" | "assistant" | "tool_result" | "system") {
            return LineContent::Unknown;
        }
        if let Some(session) = &line.session_id {
            log.set_session(session);
        }
        if let Some(cwd) = &line.cwd {
            log.set_project(cwd);
        }
        if let Some(uuid) = &line.uuid
            && log.is_repeated_line(uuid)
        {
            return LineContent::Understood;
        }
        let at = log.time_of(line.timestamp.as_deref());
        match kind {
            "user" => read_text(&line, at, log),
            "assistant" => read_calls(&line, at, log),
            "tool_result" => return read_result(&line, at, log),
            _ => read_telemetry(&line, at, log),
        }
        LineContent::Understood
    }
}

fn read_text(line: &Line<'_>, at: Timestamp, log: &mut SessionLog<'_, '_>) {
    // Other kinds are texts of the client in the name of the user.
    let is_of_user = matches!(
        line.subtype.as_deref(),
        None | Some("mid_turn_user_message")
    );
    if line.is_sidechain != Some(true) && is_of_user {
        let parts = line.message.iter().flat_map(|message| &message.parts);
        let texts: Vec<&str> = parts.filter_map(|part| part.text.as_deref()).collect();
        let text = texts.join("\n");
        log.message(&text, at, line.uuid.as_deref().unwrap_or(&text));
    }
}

fn read_calls(line: &Line<'_>, at: Timestamp, log: &mut SessionLog<'_, '_>) {
    let parts = line.message.iter().flat_map(|message| &message.parts);
    for call in parts.filter_map(|part| part.function_call.as_ref()) {
        let bridged: Option<BridgedCall<'_>> = (call.args)
            .filter(|_| call.name == BRIDGE_TOOL)
            .and_then(|arguments| serde_json::from_str(arguments.get()).ok());
        let (name, arguments) = match &bridged {
            Some(bridged) => (&bridged.name, bridged.arguments),
            None => (&call.name, call.args),
        };
        let id = call.id.as_deref().unwrap_or_default();
        let time = line.timestamp.as_deref().unwrap_or_default();
        log.start(CallStart {
            call_id: id,
            tool: log.split(name),
            at,
            arguments: arguments.map(RawValue::get),
            agent: if line.is_sidechain == Some(true) {
                CallingAgent::Subagent
            } else {
                CallingAgent::Main
            },
            identity: identity(&["qwen", log.session(), id, time]),
        });
    }
}

fn read_result(line: &Line<'_>, at: Timestamp, log: &mut SessionLog<'_, '_>) -> LineContent {
    let Some(result) = &line.tool_call_result else {
        return LineContent::Malformed;
    };
    // Lines of subagents have no status.
    let mut parts = line.message.iter().flat_map(|message| &message.parts);
    let has_error = parts.any(|part| {
        let response = part.function_response.as_ref();
        response.is_some_and(|it| it.response.as_ref().is_some_and(|it| it.error.is_some()))
    });
    let otherwise = if has_error { "error" } else { "success" };
    let status = result.status.as_deref().unwrap_or(otherwise);
    let execution = result.execution_status.as_deref();
    end_call(
        &result.call_id,
        status,
        execution,
        at,
        result.duration_ms,
        log,
    );
    LineContent::Understood
}

fn read_telemetry(line: &Line<'_>, at: Timestamp, log: &mut SessionLog<'_, '_>) {
    let payload = line.system_payload.map_or("null", RawValue::get);
    let Ok(Payload { event }) = serde_json::from_str::<Payload<'_>>(payload) else {
        return;
    };
    if event.name != "qwen-code.tool_call" {
        return;
    }
    if let Some(server) = event.mcp_server_name {
        let tool = QualifiedTool {
            server: Some(server.into_owned()),
            tool: log.split(&event.function_name).tool,
        };
        log.set_tool(&event.call_id, tool);
    }
    let status = event.status.as_deref().unwrap_or_default();
    let execution = event.execution_status.as_deref();
    end_call(
        &event.call_id,
        status,
        execution,
        at,
        event.duration_ms,
        log,
    );
}

fn end_call(
    call_id: &str,
    status: &str,
    execution: Option<&str>,
    at: Timestamp,
    milliseconds: Option<f64>,
    log: &mut SessionLog<'_, '_>,
) {
    let outcome = match status {
        "success" => CallOutcome::Success,
        // An unknown tool, arguments that do not fit, or a rule.
        "error" if execution == Some("not_started") => return log.refuse(call_id),
        "error" => CallOutcome::Error,
        "cancelled" => CallOutcome::Cancelled,
        _ => return,
    };
    let duration = milliseconds.and_then(|it| Duration::try_from_secs_f64(it / 1000.0).ok());
    let end = CallEnd {
        outcome,
        at: Some(at),
        duration,
    };
    log.finish(call_id, &end);
}
