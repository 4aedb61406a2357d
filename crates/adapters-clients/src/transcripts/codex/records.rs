//! The lines of Codex. Every part is optional, because it may be missing in other versions.

use std::borrow::Cow;
use std::time::Duration;

use serde::Deserialize;
use serde_json::value::RawValue;

/// A line: with a payload, or in old versions the first line or a bare item.
#[derive(Deserialize)]
pub(super) struct Line<'a> {
    pub(super) r#type: Option<Cow<'a, str>>,
    pub(super) timestamp: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) record_type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) payload: Option<&'a RawValue>,
}

/// The session, in the first line.
#[derive(Deserialize)]
pub(super) struct SessionMeta<'a> {
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) cwd: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) thread_source: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) parent_thread_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) source: Option<&'a RawValue>,
}

/// A part of the conversation with the model.
#[derive(Deserialize)]
pub(super) struct Item<'a> {
    pub(super) r#type: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) call_id: Option<Cow<'a, str>>,
    pub(super) name: Option<Cow<'a, str>>,
    pub(super) namespace: Option<Cow<'a, str>>,
    pub(super) role: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) input: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) output: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) content: Option<&'a RawValue>,
}

/// A message from the agent to its user interface. Other events use the same names for other types,
/// so the parts are parsed where the event is known.
#[derive(Deserialize)]
pub(super) struct Event<'a> {
    pub(super) r#type: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) message: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) invocation: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) duration: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) item: Option<&'a RawValue>,
}

/// A call to an MCP server.
#[derive(Deserialize)]
pub(super) struct Invocation<'a> {
    pub(super) server: Cow<'a, str>,
    pub(super) tool: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
}

/// A duration, as Rust programs write it.
#[derive(Clone, Copy, Deserialize)]
pub(super) struct RecordedDuration {
    pub(super) secs: u64,
    pub(super) nanos: u32,
}

impl RecordedDuration {
    pub(super) fn duration(self) -> Duration {
        Duration::from_secs(self.secs).saturating_add(Duration::from_nanos(self.nanos.into()))
    }
}

/// An item of an `item_completed` event.
#[derive(Deserialize)]
pub(super) struct TurnItem<'a> {
    pub(super) r#type: Option<Cow<'a, str>>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) server: Option<Cow<'a, str>>,
    pub(super) tool: Option<Cow<'a, str>>,
    #[serde(borrow)]
    pub(super) arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) result: Option<&'a RawValue>,
    #[serde(borrow)]
    pub(super) error: Option<&'a RawValue>,
    pub(super) duration: Option<RecordedDuration>,
}

/// Parses a part of a line; `None` if it is missing or has another type.
pub(super) fn part<'a, T: Deserialize<'a>>(part: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(part?.get()).ok()
}

/// Returns the text of the user in a bare item.
pub(super) fn bare_user_text(item: &str) -> Option<String> {
    #[derive(Deserialize)]
    struct Part<'a> {
        text: Option<Cow<'a, str>>,
    }
    let item: Item<'_> = serde_json::from_str(item).ok()?;
    if item.role.as_deref() != Some("user") {
        return None;
    }
    let parts: Vec<Part<'_>> = serde_json::from_str(item.content?.get()).ok()?;
    let texts = parts.into_iter().filter_map(|part| part.text);
    // The client adds what it knows of the project, in the name of the user.
    let of_user: Vec<_> = texts.filter(|text| !text.starts_with('<')).collect();
    Some(of_user.join("\n"))
}

/// Returns arguments as JSON text. Most are JSON within a string.
pub(super) fn json_text(arguments: &RawValue) -> Cow<'_, str> {
    match serde_json::from_str::<String>(arguments.get()) {
        Ok(text) => text.into(),
        Err(_) => arguments.get().into(),
    }
}
