//! The transcripts of Continue, as version 1.5 of its program writes them (to November 2026).
//!
//! `sessions/SESSION.json`, one document with the history. An item has the states of its calls. It has
//! no times, so all calls have the time of the file. The extension for editors writes the server of a
//! tool; the program writes only the name of the tool, without a server. A result with `isError` is a
//! success here, because the state has `done` for it, too.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::folders::UnreadableReason;
use super::line_format::{LineContent, MAX_DOCUMENT_BYTES, read_whole};
use super::session_log::{CallEnd, CallStart, SessionLog, identity};
use super::summary::ClientSummary;
use super::tool_names::QualifiedTool;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Document<'a> {
    session_id: Cow<'a, str>,
    workspace_directory: Option<Cow<'a, str>>,
    #[serde(borrow)]
    history: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Item<'a> {
    #[serde(borrow)]
    message: Message<'a>,
    #[serde(borrow)]
    tool_call_states: Option<Vec<State<'a>>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct State<'a> {
    tool_call_id: Cow<'a, str>,
    #[serde(borrow)]
    tool_call: ToolCall<'a>,
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool: Option<Tool<'a>>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ToolCall<'a> {
    #[serde(borrow)]
    function: Function<'a>,
}

#[derive(Deserialize)]
struct Function<'a> {
    name: Cow<'a, str>,
    arguments: Option<Cow<'a, str>>,
}

/// The tool, as the extension for editors writes it.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Tool<'a> {
    uri: Option<Cow<'a, str>>,
    /// The server.
    group: Option<Cow<'a, str>>,
    original_function_name: Option<Cow<'a, str>>,
}

/// Reads a session that is one document.
pub(super) fn read_document(
    path: &Path,
    mut log: SessionLog<'_, '_>,
    counts: &mut ClientSummary,
) -> Result<(), UnreadableReason> {
    let text = read_whole(path, MAX_DOCUMENT_BYTES)?;
    let document: Document<'_> =
        serde_json::from_str(&text).map_err(|_| UnreadableReason::NotTranscript)?;
    log.set_session(&document.session_id);
    if let Some(folder) = document.workspace_directory.filter(|it| !it.is_empty()) {
        log.set_project(folder.strip_prefix("file://").unwrap_or(&folder));
    }
    for (number, item) in document.history.iter().enumerate() {
        read_item(item.get(), number, &mut log).count(counts);
    }
    log.end(counts);
    Ok(())
}

fn read_item(text: &str, number: usize, log: &mut SessionLog<'_, '_>) -> LineContent {
    let Ok(item) = serde_json::from_str::<Item<'_>>(text) else {
        return LineContent::Malformed;
    };
    let at = log.time_or_last(None);
    match item.message.role.as_deref() {
        Some("user") => {
            let text = item
                .message
                .content
                .and_then(plain_text)
                .unwrap_or_default();
            let key = [log.session(), &number.to_string()].join("\n");
            log.message(&text, at, &key);
        }
        Some("assistant" | "system" | "thinking" | "tool") => {}
        _ => return LineContent::Unknown,
    }
    for state in item.tool_call_states.iter().flatten() {
        let id = &*state.tool_call_id;
        log.start(CallStart {
            call_id: id,
            tool: tool_of(state),
            at,
            arguments: state.tool_call.function.arguments.as_deref(),
            agent: CallingAgent::Main,
            identity: identity(&["continue", log.session(), id]),
        });
        let outcome = match state.status.as_deref() {
            Some("done") => CallOutcome::Success,
            Some("errored") if is_refused(state) => {
                log.refuse(id);
                continue;
            }
            Some("errored") => CallOutcome::Error,
            Some("canceled") => CallOutcome::Cancelled,
            _ => continue,
        };
        let end = CallEnd {
            outcome,
            at: None,
            duration: None,
        };
        log.finish(id, &end);
    }
    LineContent::Understood
}

fn tool_of(state: &State<'_>) -> QualifiedTool {
    let name = &*state.tool_call.function.name;
    let of_server = (state.tool.as_ref()).filter(|tool| {
        let uri = tool.uri.as_deref();
        uri.is_some_and(|uri| uri.starts_with("mcp://"))
    });
    let exact = of_server.and_then(|tool| tool.original_function_name.as_deref());
    QualifiedTool {
        server: of_server.and_then(|tool| tool.group.as_deref().map(str::to_owned)),
        tool: exact.unwrap_or(name).to_owned(),
    }
}

/// Returns whether the client did not know the tool.
fn is_refused(state: &State<'_>) -> bool {
    let name = &state.tool_call.function.name;
    let output = state.output.map_or("", RawValue::get);
    output.contains(&format!("\"Tool {name} not found\""))
}

/// Returns the text of a message: a string, or parts.
fn plain_text(content: &RawValue) -> Option<String> {
    if content.get().starts_with('"') {
        return serde_json::from_str(content.get()).ok();
    }
    let parts: Vec<Part<'_>> = serde_json::from_str(content.get()).ok()?;
    let texts = parts.into_iter().filter_map(|part| part.text);
    Some(texts.collect::<Vec<_>>().join("\n"))
}
