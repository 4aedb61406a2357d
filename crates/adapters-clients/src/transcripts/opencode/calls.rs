//! The calls of opencode, in the same form for all versions.

use std::borrow::Cow;
use std::time::Duration;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::Origin;
use crate::transcripts::event::CallOutcome;
use crate::transcripts::session_log::{CallEnd, CallStart, SessionLog, identity};
use crate::transcripts::tool_names::QualifiedTool;

/// The tool that runs a script, and keeps the calls of the script in its metadata.
const SCRIPT_TOOL: &str = "execute";

/// Beginnings of errors of calls that the user refused or stopped.
const REFUSALS: [&str; 3] = [
    "Tool execution aborted",
    "The user rejected permission",
    "The user dismissed this question",
];

/// Types of errors of calls that the user or a rule refused or stopped. Version 2 has types.
const REFUSAL_TYPES: [&str; 3] = ["aborted", "permission.rejected", "tool.interrupted"];

/// A call of the model.
pub(super) struct ToolCall<'a> {
    pub(super) id: &'a str,
    pub(super) tool: &'a str,
    pub(super) arguments: Option<&'a RawValue>,
    pub(super) start: Option<Timestamp>,
    pub(super) end: Option<Timestamp>,
    /// `None` without a result.
    pub(super) outcome: Option<CallOutcome>,
    pub(super) metadata: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct ScriptMetadata<'a> {
    #[serde(rename = "toolCalls", borrow)]
    calls: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct ScriptCall<'a> {
    tool: Cow<'a, str>,
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
}

/// Returns the outcome of a state; `None` if it is no end.
pub(super) fn outcome_of(
    status: Option<&str>,
    error_type: Option<&str>,
    error: Option<&str>,
) -> Option<CallOutcome> {
    match status {
        Some("completed") => Some(CallOutcome::Success),
        Some("error") => {
            let error = error.unwrap_or_default();
            let is_refusal = error_type.is_some_and(|it| REFUSAL_TYPES.contains(&it))
                || REFUSALS.iter().any(|refusal| error.starts_with(refusal));
            Some(if is_refusal {
                CallOutcome::Cancelled
            } else {
                CallOutcome::Error
            })
        }
        _ => None,
    }
}

/// Adds a call, with the calls of its script.
pub(super) fn add_call(call: &ToolCall<'_>, origin: Origin, log: &mut SessionLog<'_, '_>) {
    let duration = match (call.start, call.end) {
        (Some(start), Some(end)) => Duration::try_from(end.duration_since(start)).ok(),
        _ => None,
    };
    let tool = log.split(call.tool);
    add(call, tool, origin, duration, log);
    if call.tool == SCRIPT_TOOL {
        add_script_calls(call, origin, log);
    }
}

fn add(
    call: &ToolCall<'_>,
    tool: QualifiedTool,
    origin: Origin,
    duration: Option<Duration>,
    log: &mut SessionLog<'_, '_>,
) {
    let at = call.start.unwrap_or(origin.at);
    log.start(CallStart {
        call_id: call.id,
        tool,
        at,
        arguments: call.arguments.map(RawValue::get),
        agent: origin.agent,
        // Forked and copied sessions have other identifiers for the rest, but the same times.
        identity: identity(&["opencode", call.id, &at.to_string()]),
    });
    if let Some(outcome) = call.outcome {
        let end = CallEnd {
            outcome,
            at: None,
            duration,
        };
        log.finish(call.id, &end);
    }
}

/// Adds the calls of a script. They have no times, so they count from the start of the script.
fn add_script_calls(script: &ToolCall<'_>, origin: Origin, log: &mut SessionLog<'_, '_>) {
    let metadata = (script.metadata).and_then(|it| serde_json::from_str(it.get()).ok());
    let Some(ScriptMetadata { calls }) = metadata else {
        return;
    };
    for (number, call) in (1_usize..).zip(calls) {
        // A call that never started leaves a gap in the list.
        let Ok(call) = serde_json::from_str::<ScriptCall<'_>>(call.get()) else {
            continue;
        };
        let tool = log.split_path(&call.tool);
        let part = ToolCall {
            id: &format!("{}/{number}", script.id),
            tool: &call.tool,
            arguments: call.input,
            start: script.start,
            end: None,
            outcome: outcome_of(call.status.as_deref(), None, None),
            metadata: None,
        };
        add(&part, tool, origin, None, log);
    }
}
