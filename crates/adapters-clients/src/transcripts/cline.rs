//! The transcripts of Cline, as version 3.0 of its program writes them (to November 2026).
//!
//! `sessions/SESSION/SESSION.messages.json`, one document, and beside it `SESSION.json` with the working
//! directory. Subagents and teammates have messages of their own in the same folder. A message has
//! blocks of type `tool_use` and `tool_result`. MCP tools are called `SERVER__TOOL`. The result of a
//! server is its answer as JSON text, so an error of a server is known only by `isError` in it.

use std::borrow::Cow;
use std::path::Path;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::folders::UnreadableReason;
use super::line_format::{LineContent, MAX_DOCUMENT_BYTES, read_whole};
use super::opencode::moment;
use super::session_log::{CallEnd, CallStart, SessionLog, identity};
use super::summary::ClientSummary;

/// A part of the result of a call that the client refused.
const REFUSAL: &str = "was rejected before execution";

#[derive(Deserialize)]
struct Document<'a> {
    #[serde(rename = "sessionId")]
    session: Cow<'a, str>,
    agent: Option<Cow<'a, str>>,
    #[serde(borrow)]
    messages: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Manifest<'a> {
    cwd: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct Message<'a> {
    id: Option<Cow<'a, str>>,
    role: Option<Cow<'a, str>>,
    ts: Option<f64>,
    #[serde(borrow)]
    content: &'a RawValue,
}

#[derive(Deserialize)]
struct Block<'a> {
    r#type: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    tool_use_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    is_error: Option<bool>,
}

/// The answer of a server.
#[derive(Default, Deserialize)]
struct Answer {
    #[serde(rename = "isError")]
    is_error: Option<bool>,
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
    log.set_session(&document.session);
    let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
    let manifest = path.with_file_name(format!("{}.json", folder.to_string_lossy()));
    if let Ok(manifest) = read_whole(&manifest, MAX_DOCUMENT_BYTES)
        && let Ok(manifest) = serde_json::from_str::<Manifest<'_>>(&manifest)
        && let Some(cwd) = manifest.cwd
    {
        log.set_project(&cwd);
    }
    let agent = match document.agent.as_deref() {
        None | Some("lead") => CallingAgent::Main,
        Some(_) => CallingAgent::Subagent,
    };
    for message in document.messages {
        read_message(message.get(), agent, &mut log).count(counts);
    }
    log.end(counts);
    Ok(())
}

fn read_message(text: &str, agent: CallingAgent, log: &mut SessionLog<'_, '_>) -> LineContent {
    let Ok(message) = serde_json::from_str::<Message<'_>>(text) else {
        return LineContent::Malformed;
    };
    let at = log.time_or_last(message.ts.and_then(moment));
    let is_of_user = match message.role.as_deref() {
        Some("user") => agent == CallingAgent::Main,
        Some("assistant") => false,
        _ => return LineContent::Unknown,
    };
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    let mut content = LineContent::Understood;
    if let Ok(text) = serde_json::from_str::<String>(message.content.get()) {
        texts.push(text.into());
    } else {
        let Ok(blocks) = serde_json::from_str::<Vec<Block<'_>>>(message.content.get()) else {
            return LineContent::Malformed;
        };
        for mut block in blocks {
            match block.r#type.as_deref() {
                Some("text") => texts.extend(block.text.take()),
                Some("tool_use" | "tool_result") => {
                    content = content.or(read_call(&block, at, agent, log));
                }
                _ => {}
            }
        }
    }
    if is_of_user {
        let text = texts.join("\n");
        let key = [log.session(), message.id.as_deref().unwrap_or(&text)].join("\n");
        log.message(own_text(&text), at, &key);
    }
    content
}

/// Reads the start of a call, or its result.
fn read_call(
    block: &Block<'_>,
    at: Timestamp,
    agent: CallingAgent,
    log: &mut SessionLog<'_, '_>,
) -> LineContent {
    match (&block.id, &block.name, &block.tool_use_id) {
        (Some(id), Some(name), None) => log.start(CallStart {
            call_id: id,
            tool: log.split(name),
            at,
            arguments: block.input.map(RawValue::get),
            agent,
            identity: identity(&["cline", log.session(), id, &at.to_string()]),
        }),
        (_, _, Some(id)) => {
            let raw = block.content.map_or("null", RawValue::get);
            let text: String = serde_json::from_str(raw).unwrap_or_default();
            let answer: Answer = serde_json::from_str(&text).unwrap_or_default();
            let is_error = block.is_error == Some(true);
            if is_error && text.contains(REFUSAL) {
                log.refuse(id);
                return LineContent::Understood;
            }
            let outcome = if is_error || answer.is_error == Some(true) {
                CallOutcome::Error
            } else {
                CallOutcome::Success
            };
            let end = CallEnd {
                outcome,
                at: Some(at),
                duration: None,
            };
            log.finish(id, &end);
        }
        _ => return LineContent::Malformed,
    }
    LineContent::Understood
}

/// Returns the text within the mark in which the client puts what the user wrote.
fn own_text(text: &str) -> &str {
    let marked = text.strip_prefix("<user_input");
    let marked = marked.and_then(|it| it.split_once('>'));
    let inner = marked.and_then(|(_, it)| it.split_once("</user_input>"));
    inner.map_or(text, |(inner, _)| inner)
}
