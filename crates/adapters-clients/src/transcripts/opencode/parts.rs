//! The messages of versions before 2, and their parts.

use std::borrow::Cow;

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::{ToolCall, add_call, outcome_of};
use super::{Origin, moment};
use crate::transcripts::event::CallingAgent;
use crate::transcripts::reader::LineContent;
use crate::transcripts::session_log::SessionLog;

#[derive(Deserialize)]
struct Message<'a> {
    role: Option<Cow<'a, str>>,
    time: Option<MessageTime>,
}

#[derive(Deserialize)]
struct MessageTime {
    created: Option<f64>,
}

#[derive(Deserialize)]
struct Part<'a> {
    r#type: Option<Cow<'a, str>>,
    text: Option<Cow<'a, str>>,
    synthetic: Option<bool>,
    ignored: Option<bool>,
    #[serde(rename = "callID")]
    call_id: Option<Cow<'a, str>>,
    tool: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Option<ToolState<'a>>,
}

#[derive(Deserialize)]
struct ToolState<'a> {
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    error: Option<Cow<'a, str>>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    time: Option<StateTime>,
}

#[derive(Deserialize)]
struct StateTime {
    start: Option<f64>,
    end: Option<f64>,
}

/// A message while its parts are read.
pub(super) struct MessageOfParts {
    is_of_user: bool,
    origin: Origin,
    /// The identifier of the message, until a text has it as its key. Version 2 joins the texts of a
    /// message under it.
    key: Option<String>,
}

impl MessageOfParts {
    /// Reads a message. Returns `None` if it cannot be read.
    pub(super) fn read(
        text: &str,
        id: &str,
        agent: CallingAgent,
        log: &mut SessionLog<'_, '_>,
    ) -> Option<Self> {
        let message: Message<'_> = serde_json::from_str(text).ok()?;
        let created = message.time.and_then(|time| time.created).and_then(moment);
        Some(Self {
            is_of_user: message.role.as_deref() == Some("user") && agent == CallingAgent::Main,
            origin: Origin {
                at: log.time_or_last(created),
                agent,
            },
            key: Some(id.to_owned()),
        })
    }

    /// Reads a part of the message.
    pub(super) fn read_part(
        &mut self,
        text: &str,
        id: &str,
        log: &mut SessionLog<'_, '_>,
    ) -> LineContent {
        let Ok(part) = serde_json::from_str::<Part<'_>>(text) else {
            return LineContent::Malformed;
        };
        match part.r#type.as_deref() {
            Some("text") => {
                let is_own = part.synthetic != Some(true) && part.ignored != Some(true);
                let text = part.text.as_deref().unwrap_or_default();
                if self.is_of_user && is_own && !text.trim().is_empty() {
                    let key = self.key.take();
                    log.message(text, self.origin.at, key.as_deref().unwrap_or(id));
                }
                LineContent::Understood
            }
            Some("tool") => self.read_call(&part, id, log),
            Some(
                "agent" | "compaction" | "file" | "patch" | "reasoning" | "retry" | "snapshot"
                | "step-finish" | "step-start" | "subtask",
            ) => LineContent::Understood,
            _ => LineContent::Unknown,
        }
    }

    fn read_call(&self, part: &Part<'_>, id: &str, log: &mut SessionLog<'_, '_>) -> LineContent {
        let (Some(tool), Some(state)) = (&part.tool, &part.state) else {
            return LineContent::Malformed;
        };
        let time = |part: fn(&StateTime) -> Option<f64>| -> Option<Timestamp> {
            state.time.as_ref().and_then(part).and_then(moment)
        };
        let call = ToolCall {
            id: part.call_id.as_deref().unwrap_or(id),
            tool,
            arguments: state.input,
            start: time(|time| time.start),
            end: time(|time| time.end),
            outcome: outcome_of(state.status.as_deref(), None, state.error.as_deref()),
            metadata: state.metadata,
        };
        add_call(&call, self.origin, log);
        LineContent::Understood
    }
}
