//! The messages of version 2. A message of the model has its texts and calls in `content`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::calls::{ToolCall, add_call, outcome_of};
use super::{Origin, moment};
use crate::transcripts::event::CallingAgent;
use crate::transcripts::reader::{ClientSummary, LineContent};
use crate::transcripts::session_log::SessionLog;

#[derive(Deserialize)]
struct Entry<'a> {
    text: Option<Cow<'a, str>>,
    time: Option<EntryTime>,
    #[serde(borrow)]
    content: Option<Vec<&'a RawValue>>,
}

/// The times of a message or of a call.
#[derive(Deserialize)]
struct EntryTime {
    created: Option<f64>,
    /// The start of the tool, after the model wrote the arguments. Copies from earlier versions have
    /// none, and the start in `created`.
    ran: Option<f64>,
    completed: Option<f64>,
}

#[derive(Deserialize)]
struct Content<'a> {
    r#type: Option<Cow<'a, str>>,
    id: Option<Cow<'a, str>>,
    name: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Option<State<'a>>,
    time: Option<EntryTime>,
}

#[derive(Deserialize)]
struct State<'a> {
    status: Option<Cow<'a, str>>,
    #[serde(borrow)]
    input: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    metadata: Option<&'a RawValue>,
    /// The metadata, by its name in previous stages of the version.
    #[serde(borrow)]
    structured: Option<&'a RawValue>,
}

#[derive(Default, Deserialize)]
struct StateError<'a> {
    r#type: Option<Cow<'a, str>>,
    message: Option<Cow<'a, str>>,
}

/// Reads a message, and counts it and each part of it.
pub(super) fn read_entry(
    kind: &str,
    id: &str,
    text: &str,
    agent: CallingAgent,
    log: &mut SessionLog<'_, '_>,
    counts: &mut ClientSummary,
) {
    let is_known = matches!(
        kind,
        "agent-switched"
            | "compaction"
            | "idle"
            | "location-switched"
            | "model-switched"
            | "shell"
            | "skill"
            | "synthetic"
            | "system"
    );
    if is_known {
        LineContent::Understood.count(counts);
        return;
    }
    if !matches!(kind, "assistant" | "user") {
        LineContent::Unknown.count(counts);
        return;
    }
    let Ok(entry) = serde_json::from_str::<Entry<'_>>(text) else {
        LineContent::Malformed.count(counts);
        return;
    };
    LineContent::Understood.count(counts);
    let created = entry.time.and_then(|time| time.created).and_then(moment);
    let at = log.time_or_last(created);
    if kind == "user" {
        if let Some(text) = entry.text.filter(|_| agent == CallingAgent::Main) {
            log.message(&text, at, id);
        }
        return;
    }
    let origin = Origin { at, agent };
    for content in entry.content.unwrap_or_default() {
        read_content(content.get(), origin, log).count(counts);
    }
}

fn read_content(text: &str, origin: Origin, log: &mut SessionLog<'_, '_>) -> LineContent {
    let Ok(content) = serde_json::from_str::<Content<'_>>(text) else {
        return LineContent::Malformed;
    };
    match content.r#type.as_deref() {
        Some("tool") => {}
        Some("text" | "reasoning") => return LineContent::Understood,
        _ => return LineContent::Unknown,
    }
    let (Some(id), Some(name), Some(state)) = (&content.id, &content.name, &content.state) else {
        return LineContent::Malformed;
    };
    let error: StateError<'_> = (state.error)
        .and_then(|error| serde_json::from_str(error.get()).ok())
        .unwrap_or_default();
    let time = content.time.as_ref();
    let call = ToolCall {
        id,
        tool: name,
        arguments: state.input,
        start: time.and_then(|it| it.ran.or(it.created)).and_then(moment),
        end: time.and_then(|it| it.completed).and_then(moment),
        outcome: outcome_of(
            state.status.as_deref(),
            error.r#type.as_deref(),
            error.message.as_deref(),
        ),
        metadata: state.metadata.or(state.structured),
    };
    add_call(&call, origin, log);
    LineContent::Understood
}
