//! The transcripts of Gemini CLI, as versions 0.8 to 0.45 write them (to August 2026).
//!
//! `tmp/PROJECT/chats/session-TIME-ID.json`, one document, and in newer versions `.jsonl`: first
//! the session, then its messages, and updates with `$set` and `$rewindTo`. Subagents have files in
//! a folder of their parent. A message of type `gemini` has `toolCalls` with a final status; it is
//! written again when calls are added. MCP tools are called `mcp_SERVER_TOOL`, and were called
//! `SERVER__TOOL` or only `TOOL` before; the display name `TOOL (SERVER MCP Server)` is exact in
//! all versions. The only time of a call is that of its record, and durations are not recorded.
//!
//! `logs.json` has only texts of the user, which are in the chats too, so it is not read.

use std::borrow::Cow;
use std::path::Path;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::folders::UnreadableReason;
use super::reader::{ClientSummary, LineContent, LineFormat, MAX_DOCUMENT_BYTES, read_whole};
use super::session_log::{CallEnd, CallStart, SessionLog, identity};
use super::tool_names::QualifiedTool;

/// The reader of a file with lines.
#[derive(Debug)]
pub(super) struct GeminiFormat {
    project: Option<String>,
    agent: CallingAgent,
}

/// A session, a message or an update: the three forms of a line.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    session_id: Option<Cow<'a, str>>,
    kind: Option<Cow<'a, str>>,
    directories: Option<Vec<String>>,
    #[serde(borrow)]
    messages: Option<Vec<&'a RawValue>>,
    id: Option<Cow<'a, str>>,
    #[serde(rename = "$set", borrow)]
    update: Option<&'a RawValue>,
    #[serde(rename = "$rewindTo", borrow)]
    rewind: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Message<'a> {
    id: Option<Cow<'a, str>>,
    timestamp: Option<Cow<'a, str>>,
    r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    display_content: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_calls: Option<Vec<&'a RawValue>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct ToolCall<'a> {
    id: Cow<'a, str>,
    name: Cow<'a, str>,
    status: Option<Cow<'a, str>>,
    timestamp: Option<Cow<'a, str>>,
    display_name: Option<Cow<'a, str>>,
    agent_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    args: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part<'a> {
    text: Option<Cow<'a, str>>,
}

impl GeminiFormat {
    /// Returns the reader of a file. The project is the folder of its chats, until the session
    /// names a directory.
    pub(super) fn of(path: &Path) -> Self {
        let chats = path.ancestors().find(|folder| folder.ends_with("chats"));
        let project = chats.and_then(Path::parent).and_then(Path::file_name);
        Self {
            project: project.map(|name| name.to_string_lossy().into_owned()),
            agent: CallingAgent::Main,
        }
    }

    fn read_head(&mut self, line: &Line<'_>, log: &mut SessionLog<'_, '_>) {
        if let Some(session) = &line.session_id {
            log.set_session(session);
        }
        if line.kind.as_deref() == Some("subagent") {
            self.agent = CallingAgent::Subagent;
        }
        let directory = line.directories.iter().flatten().next().cloned();
        if let Some(project) = directory.or_else(|| self.project.take()) {
            log.set_project(&project);
        }
    }

    fn read_message(&self, message: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(message) = serde_json::from_str::<Message<'_>>(message) else {
            return LineContent::Malformed;
        };
        let at = log.time_of(message.timestamp.as_deref());
        match message.r#type.as_deref() {
            Some("user") if self.agent == CallingAgent::Main => {
                let content = message.display_content.or(message.content);
                let text = content.and_then(plain_text).unwrap_or_default();
                // Commands of the client, and its description of the workspace.
                if !text.starts_with(['/', '?']) && !text.starts_with("<session_context") {
                    let id = message.id.as_deref().unwrap_or(&text);
                    let key = [log.session(), id].join("\n");
                    log.message(&text, at, &key);
                }
            }
            Some("user" | "info" | "error" | "warning" | "gemini") => {}
            _ => return LineContent::Unknown,
        }
        let mut content = LineContent::Understood;
        for call in message.tool_calls.iter().flatten() {
            match serde_json::from_str::<ToolCall<'_>>(call.get()) {
                Ok(call) => self.read_call(&call, log),
                Err(_) => content = LineContent::Malformed,
            }
        }
        content
    }

    fn read_call(&self, call: &ToolCall<'_>, log: &mut SessionLog<'_, '_>) {
        if !log.has_call(&call.id) {
            let at = log.time_of(call.timestamp.as_deref());
            let exact = call.display_name.as_deref().and_then(displayed_tool);
            let is_of_subagent = call.agent_id.as_deref().is_some_and(|id| !id.is_empty());
            // A document and the lines that replace it have the same session.
            let identity = identity(&["gemini", log.session(), &call.id]);
            log.start(CallStart {
                call_id: &call.id,
                tool: exact.unwrap_or_else(|| log.split(&call.name)),
                at,
                arguments: call.args.map(RawValue::get),
                agent: if is_of_subagent {
                    CallingAgent::Subagent
                } else {
                    self.agent
                },
                identity,
            });
        }
        let outcome = match call.status.as_deref() {
            Some("success") => CallOutcome::Success,
            Some("error") => CallOutcome::Error,
            Some("cancelled") => CallOutcome::Cancelled,
            _ => return,
        };
        let end = CallEnd {
            outcome,
            at: None,
            duration: None,
        };
        log.finish(&call.id, &end);
    }
}

impl LineFormat for GeminiFormat {
    fn read_line(&mut self, text: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return LineContent::Malformed;
        };
        if line.rewind.is_some() {
            // The user took messages back, but their calls were made.
            LineContent::Understood
        } else if line.id.is_some() {
            self.read_message(text, log)
        } else if let Some(update) = line.update {
            let Ok(update) = serde_json::from_str::<Line<'_>>(update.get()) else {
                return LineContent::Malformed;
            };
            // A session that is resumed keeps its first identifier, so that its calls have one.
            let mut content = LineContent::Understood;
            for message in update.messages.iter().flatten() {
                if self.read_message(message.get(), log) == LineContent::Malformed {
                    content = LineContent::Malformed;
                }
            }
            content
        } else if line.session_id.is_some() {
            self.read_head(&line, log);
            LineContent::Understood
        } else {
            LineContent::Unknown
        }
    }
}

/// Reads a session that is one document.
pub(super) fn read_document(
    path: &Path,
    mut log: SessionLog<'_, '_>,
    counts: &mut ClientSummary,
) -> Result<(), UnreadableReason> {
    let text = read_whole(path, MAX_DOCUMENT_BYTES)?;
    let document: Line<'_> =
        serde_json::from_str(&text).map_err(|_| UnreadableReason::NotTranscript)?;
    let (Some(messages), Some(_)) = (&document.messages, &document.session_id) else {
        return Err(UnreadableReason::NotTranscript);
    };
    let mut format = GeminiFormat::of(path);
    format.read_head(&document, &mut log);
    for message in messages {
        format.read_message(message.get(), &mut log).count(counts);
    }
    log.end(counts);
    Ok(())
}

/// Splits the display name of a tool of an MCP server.
fn displayed_tool(name: &str) -> Option<QualifiedTool> {
    let (tool, rest) = name.split_once(" (")?;
    let server = rest.strip_suffix(" MCP Server)")?;
    Some(QualifiedTool {
        server: Some(server.to_owned()),
        tool: tool.to_owned(),
    })
}

/// Returns the text of a message: a string, a part, or parts.
fn plain_text(content: &RawValue) -> Option<String> {
    let content = content.get();
    let parts: Vec<Part<'_>> = match content.as_bytes().first()? {
        b'"' => return serde_json::from_str(content).ok(),
        b'{' => vec![serde_json::from_str(content).ok()?],
        _ => serde_json::from_str(content).ok()?,
    };
    let texts = parts.into_iter().filter_map(|part| part.text);
    Some(texts.collect::<Vec<_>>().join("\n"))
}
