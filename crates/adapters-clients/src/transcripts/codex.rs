//! The transcripts of Codex, as versions 0.30 to 0.144 write them (to August 2026).
//!
//! `sessions/YYYY/MM/DD/rollout-TIME-ID.jsonl`, and `archived_sessions`. A line has a time, a type
//! and a payload. A call is a `function_call` of a `response_item`, with the tool as
//! `mcp__server__tool` or as a name and a namespace `mcp__server`, and its result a
//! `function_call_output` with the same `call_id`. Most versions write an `mcp_tool_call_end` too,
//! with the exact names, the duration and the result; it is the only line for calls that were made
//! by code of the model. Before 0.30 lines were bare items without times; their calls have the time
//! of the session.
//!
//! A forked session starts with copies of earlier lines with new times. They are recognized by the
//! identifier and the arguments of the call. Old files are compressed to `.jsonl.zst`.

use std::borrow::Cow;

use jiff::Timestamp;
use serde_json::value::RawValue;

use super::event::{CallOutcome, CallingAgent};
use super::reader::{LineContent, LineFormat};
use super::session_log::{CallEnd, CallStart, SessionLog, identity};
use super::tool_names::QualifiedTool;

mod output;
mod records;

use records::{
    Event, Invocation, Item, Line, RecordedDuration, SessionMeta, TurnItem, bare_user_text,
    json_text, part,
};

/// Shorter identifiers of calls are numbers within a session, as servers of other models make them.
const UNIQUE_ID_BYTES: usize = 16;

/// The line in a text of the user after which it begins. Above it an editor writes what is open.
const REQUEST_HEADING: &str = "## My request for Codex:";

/// The reader of a file.
#[derive(Debug, Default)]
pub(super) struct CodexFormat {
    has_session: bool,
    is_subagent: bool,
    /// Whether the line has a time of its own.
    has_time: bool,
}

impl LineFormat for CodexFormat {
    fn read_line(&mut self, text: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(line) = serde_json::from_str::<Line<'_>>(text) else {
            return LineContent::Malformed;
        };
        let at = log.time_of(line.timestamp.as_deref());
        self.has_time = line.timestamp.is_some();
        let payload = line.payload.map_or("null", RawValue::get);
        match line.r#type.as_deref() {
            Some("session_meta") => self.read_meta(payload, log),
            Some("response_item") => self.read_item(payload, at, log),
            Some("event_msg") => self.read_event(payload, at, log),
            Some(
                "compacted"
                | "turn_context"
                | "inter_agent_communication"
                | "world_state"
                | "session_state",
            ) => LineContent::Understood,
            Some(
                "function_call"
                | "function_call_output"
                | "local_shell_call"
                | "message"
                | "reasoning"
                | "custom_tool_call"
                | "custom_tool_call_output",
            ) => {
                if let Some(text) = bare_user_text(text) {
                    let key = [log.session(), &text].join("\n");
                    log.message(&text, at, &key);
                }
                self.read_item(text, at, log)
            }
            None if line.id.is_some() && !self.has_session => self.read_meta(text, log),
            None if line.record_type.is_some() => LineContent::Understood,
            _ => LineContent::Unknown,
        }
    }
}

impl CodexFormat {
    fn read_meta(&mut self, payload: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(meta) = serde_json::from_str::<SessionMeta<'_>>(payload) else {
            return LineContent::Malformed;
        };
        // A forked session has the header of its origin after its own.
        if !self.has_session {
            self.has_session = true;
            let is_started_by_agent =
                (meta.source).is_some_and(|source| source.get().contains(r#""subagent""#));
            self.is_subagent = is_started_by_agent
                || meta.parent_thread_id.is_some()
                || part::<String>(meta.thread_source).as_deref() == Some("subagent");
            if let Some(id) = &meta.id {
                log.set_session(id);
            }
            if let Some(cwd) = &meta.cwd {
                log.set_project(cwd);
            }
        }
        LineContent::Understood
    }

    fn agent(&self) -> CallingAgent {
        if self.is_subagent {
            CallingAgent::Subagent
        } else {
            CallingAgent::Main
        }
    }

    fn read_item(&self, payload: &str, at: Timestamp, log: &mut SessionLog<'_, '_>) -> LineContent {
        let Ok(item) = serde_json::from_str::<Item<'_>>(payload) else {
            return LineContent::Malformed;
        };
        let call_id = item.call_id.as_ref().or(item.id.as_ref());
        match (item.r#type.as_deref(), call_id) {
            (Some("function_call" | "custom_tool_call"), Some(call_id)) => {
                let Some(name) = item.name.as_deref() else {
                    return LineContent::Malformed;
                };
                let tool = match item.namespace.as_deref() {
                    Some(namespace) if !namespace.is_empty() => {
                        log.split_namespace(namespace, name)
                    }
                    _ => log.split(name),
                };
                let arguments = item.arguments.or(item.input).map(json_text);
                self.start(call_id, tool, at, arguments.as_deref(), log);
            }
            (Some("local_shell_call" | "tool_search_call" | "web_search_call"), _) => {
                let kind = item.r#type.as_deref().unwrap_or_default();
                let tool = QualifiedTool {
                    server: None,
                    tool: kind.trim_end_matches("_call").to_owned(),
                };
                let id = call_id.map_or_else(|| format!("{kind} {at}").into(), Cow::clone);
                self.start(&id, tool, at, item.arguments.map(RawValue::get), log);
                if kind == "web_search_call" {
                    // The search is made by the server of the model, and has no line for its
                    // result.
                    let end = CallEnd {
                        outcome: CallOutcome::Success,
                        at: None,
                        duration: None,
                    };
                    log.finish(&id, &end);
                }
            }
            (
                Some("function_call_output" | "custom_tool_call_output" | "tool_search_output"),
                Some(call_id),
            ) => {
                let output = output::read(item.output);
                let end = CallEnd {
                    outcome: output.outcome,
                    at: self.has_time.then_some(at),
                    duration: output.duration.filter(|_| log.is_open_mcp_call(call_id)),
                };
                log.finish(call_id, &end);
            }
            (Some(_), _) => {}
            (None, _) => return LineContent::Malformed,
        }
        LineContent::Understood
    }

    fn start(
        &self,
        call_id: &str,
        tool: QualifiedTool,
        at: Timestamp,
        arguments: Option<&str>,
        log: &mut SessionLog<'_, '_>,
    ) {
        if log.has_call(call_id) {
            return;
        }
        let scope = if call_id.len() < UNIQUE_ID_BYTES {
            log.session().to_owned()
        } else {
            String::new()
        };
        let identity = identity(&["codex", call_id, &scope, arguments.unwrap_or_default()]);
        log.start(CallStart {
            call_id,
            tool,
            at,
            arguments,
            agent: self.agent(),
            identity,
        });
    }

    fn read_event(
        &self,
        payload: &str,
        at: Timestamp,
        log: &mut SessionLog<'_, '_>,
    ) -> LineContent {
        let Ok(event) = serde_json::from_str::<Event<'_>>(payload) else {
            return LineContent::Malformed;
        };
        match event.r#type.as_deref() {
            Some("user_message") if !self.is_subagent => {
                let message: String = part(event.message).unwrap_or_default();
                let own = message.split_once(REQUEST_HEADING);
                let text = own.map_or(&*message, |(_, rest)| rest);
                let key = [log.session(), &at.to_string(), text].join("\n");
                log.message(text, at, &key);
            }
            Some("mcp_tool_call_begin" | "mcp_tool_call_end") => {
                let call_id: Option<String> = part(event.call_id);
                let invocation: Option<Invocation<'_>> = part(event.invocation);
                let (Some(call_id), Some(invocation)) = (call_id, invocation) else {
                    return LineContent::Malformed;
                };
                let end = event.result.map(|result| CallEnd {
                    outcome: output::outcome_of_result(result),
                    at: Some(at),
                    duration: part(event.duration).map(RecordedDuration::duration),
                });
                self.read_mcp_call(&call_id, &invocation, at, end.as_ref(), log);
            }
            Some("item_completed") => return self.read_turn_item(event.item, at, log),
            Some("turn_aborted") => log.finish_all(&CallEnd {
                outcome: CallOutcome::Cancelled,
                at: Some(at),
                duration: None,
            }),
            Some(_) => {}
            None => return LineContent::Malformed,
        }
        LineContent::Understood
    }

    fn read_turn_item(
        &self,
        item: Option<&RawValue>,
        at: Timestamp,
        log: &mut SessionLog<'_, '_>,
    ) -> LineContent {
        let Some(item) = part::<TurnItem<'_>>(item) else {
            return LineContent::Malformed;
        };
        let is_call = matches!(item.r#type.as_deref(), Some("McpToolCall" | "mcpToolCall"));
        if let (true, Some(id), Some(server), Some(tool)) =
            (is_call, item.id, item.server, item.tool)
        {
            let outcome = match (item.result, item.error) {
                (_, Some(error)) => output::outcome_of_error(error.get()),
                (Some(result), None) => output::outcome_of_result(result),
                (None, None) => CallOutcome::Unknown,
            };
            let end = CallEnd {
                outcome,
                at: Some(at),
                duration: item.duration.map(RecordedDuration::duration),
            };
            let invocation = Invocation {
                server,
                tool,
                arguments: item.arguments,
            };
            self.read_mcp_call(&id, &invocation, at, Some(&end), log);
        }
        LineContent::Understood
    }

    fn read_mcp_call(
        &self,
        call_id: &str,
        invocation: &Invocation<'_>,
        at: Timestamp,
        end: Option<&CallEnd>,
        log: &mut SessionLog<'_, '_>,
    ) {
        let tool = QualifiedTool {
            server: Some(invocation.server.clone().into_owned()),
            tool: invocation.tool.clone().into_owned(),
        };
        if log.has_call(call_id) {
            log.set_tool(call_id, tool);
        } else {
            let before = end.and_then(|end| end.duration).unwrap_or_default();
            let started_at = at.checked_sub(before).unwrap_or(at);
            let arguments = invocation.arguments.map(RawValue::get);
            self.start(call_id, tool, started_at, arguments, log);
        }
        if let Some(end) = end {
            log.finish(call_id, end);
        }
    }
}
