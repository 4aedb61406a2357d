//! The transcripts of Claude Code, as versions 1.0 to 2.1 write them (to August 2026).
//!
//! `projects/PROJECT/SESSION.jsonl`, and for subagents of newer versions
//! `projects/PROJECT/SESSION/subagents/agent-ID.jsonl` with the identifier of the session of the
//! user. An `assistant` line has blocks of type `tool_use`, and a later `user` line has the block
//! of type `tool_result` with the same identifier. A session that was resumed or forked starts with
//! copies of earlier lines, with the same `uuid` or at least the same time; they count once, for
//! the file that was written first. MCP tools are called `mcp__SERVER__TOOL`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::reader::{LineContent, LineFormat};
use super::session_log::{CallEnd, CallStart, SessionLog, identity};

/// Lines without calls and without texts of the user.
const OTHER_TYPES: [&str; 24] = [
    "agent-color",
    "agent-name",
    "agent-setting",
    "ai-title",
    "attachment",
    "attribution-snapshot",
    "bridge-session",
    "content-replacement",
    "custom-title",
    "file-history-delta",
    "file-history-snapshot",
    "last-prompt",
    "mode",
    "permission-mode",
    "pr-link",
    "progress",
    "queue-operation",
    "result",
    "speculation-accept",
    "summary",
    "system",
    "tag",
    "task-summary",
    "worktree-state",
];

/// Beginnings of texts that the client writes in the name of the user.
const CLIENT_TEXTS: [&str; 12] = [
    "<bash-",
    "<command-",
    "<ide_",
    "<local-command-",
    "<new-diagnostics",
    "<session-start-hook",
    "<system-reminder",
    "<task-notification",
    "<teammate-message",
    "Caveat: The messages below",
    "This session is being continued from a previous conversation",
    "[Request interrupted by user",
];

/// Beginnings of results of calls that the user refused or stopped.
const REFUSALS: [&str; 3] = [
    "The user doesn't want to proceed with this tool use",
    "The user doesn't want to take this action right now",
    "[Request interrupted by user",
];

/// The reader of a file.
#[derive(Debug, Default)]
pub(super) struct ClaudeCodeFormat;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Line<'a> {
    r#type: Option<Cow<'a, str>>,
    uuid: Option<Cow<'a, str>>,
    session_id: Option<Cow<'a, str>>,
    timestamp: Option<Cow<'a, str>>,
    cwd: Option<Cow<'a, str>>,
    is_sidechain: Option<bool>,
    is_meta: Option<bool>,
    is_compact_summary: Option<bool>,
    tool_denial_kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    tool_use_result: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
}

impl Line<'_> {
    /// Returns a text that tells the line from later ones and is equal in its copies.
    fn moment(&self) -> &str {
        let time = self.timestamp.as_deref().or(self.uuid.as_deref());
        time.unwrap_or_default()
    }
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    content: Option<&'a RawValue>,
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
    is_error: Option<bool>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
}

impl LineFormat for ClaudeCodeFormat {
    fn read_line(&mut self, line: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(line) = serde_json::from_str::<Line<'_>>(line) else {
            return LineContent::Malformed;
        };
        match line.r#type.as_deref() {
            Some("user" | "assistant") => {}
            Some(other) if OTHER_TYPES.contains(&other) => return LineContent::Understood,
            _ => return LineContent::Unknown,
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
        let Some(message) = line.message else {
            return LineContent::Malformed;
        };
        match serde_json::from_str::<Message<'_>>(message.get()) {
            Ok(message) => read_message(&line, message.content, log),
            Err(_) => LineContent::Malformed,
        }
    }
}

fn read_message(
    line: &Line<'_>,
    content: Option<&RawValue>,
    log: &mut SessionLog<'_, '_>,
) -> LineContent {
    let at = log.time_of(line.timestamp.as_deref());
    let Some(content) = content else {
        return LineContent::Understood;
    };
    let mut texts: Vec<Cow<'_, str>> = Vec::new();
    let mut result = LineContent::Understood;
    if content.get().starts_with('"') {
        match serde_json::from_str::<String>(content.get()) {
            Ok(text) => texts.push(text.into()),
            Err(_) => result = LineContent::Malformed,
        }
    } else {
        let Ok(blocks) = serde_json::from_str::<Vec<&RawValue>>(content.get()) else {
            return LineContent::Malformed;
        };
        for block in blocks {
            let Ok(mut block) = serde_json::from_str::<Block<'_>>(block.get()) else {
                result = LineContent::Malformed;
                continue;
            };
            match block.r#type.as_deref() {
                Some("text") => texts.extend(block.text.take()),
                Some("tool_use" | "tool_result") => {
                    result = result.or(read_call(line, &block, at, log));
                }
                _ => {}
            }
        }
    }
    let is_of_user = line.r#type.as_deref() == Some("user")
        && ![line.is_sidechain, line.is_meta, line.is_compact_summary].contains(&Some(true));
    if is_of_user {
        texts.retain(|text| {
            let text = text.trim_start();
            !CLIENT_TEXTS.iter().any(|start| text.starts_with(start))
        });
        let text = texts.join("\n");
        let time = line.moment();
        let key = [time, &text].join("\n");
        log.message(&text, at, &key);
    }
    result
}

/// Reads the start of a call, or its result.
fn read_call(
    line: &Line<'_>,
    block: &Block<'_>,
    at: Timestamp,
    log: &mut SessionLog<'_, '_>,
) -> LineContent {
    match (&block.id, &block.name, &block.tool_use_id) {
        (Some(id), Some(name), None) => {
            let time = line.moment();
            log.start(CallStart {
                call_id: id,
                tool: log.split(name),
                at,
                arguments: block.input.map(RawValue::get),
                agent: if line.is_sidechain == Some(true) {
                    CallingAgent::Subagent
                } else {
                    CallingAgent::Main
                },
                // Servers of other models number their calls, so an identifier alone may occur in
                // several sessions. Copies keep the time.
                identity: identity(&["claude", id, time]),
            });
        }
        (_, _, Some(id)) => {
            let end = CallEnd {
                outcome: outcome(line, block),
                at: line.timestamp.is_some().then_some(at),
                duration: None,
            };
            log.finish(id, &end);
        }
        _ => return LineContent::Malformed,
    }
    LineContent::Understood
}

fn outcome(line: &Line<'_>, block: &Block<'_>) -> CallOutcome {
    let is_refused = line.tool_denial_kind.is_some()
        || (line.tool_use_result)
            .is_some_and(|result| result.get() == r#""User rejected tool use""#);
    if is_refused {
        return CallOutcome::Cancelled;
    }
    if block.is_error != Some(true) {
        return CallOutcome::Success;
    }
    let text = block.content.and_then(first_text).unwrap_or_default();
    if REFUSALS.iter().any(|start| text.starts_with(start)) {
        CallOutcome::Cancelled
    } else {
        CallOutcome::Error
    }
}

/// Returns the text of a result: a string, or blocks of which the first is a text.
fn first_text(content: &RawValue) -> Option<String> {
    if content.get().starts_with('"') {
        return serde_json::from_str(content.get()).ok();
    }
    let blocks: Vec<Block<'_>> = serde_json::from_str(content.get()).ok()?;
    let first = blocks.into_iter().next()?;
    first.text.map(Cow::into_owned)
}
