//! Sessions of calls, in the form in which recorded sessions are replayed.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use jiff::Timestamp;
use serde::Serialize;

use super::event::{CallOutcome, RecordedCall, TranscriptClient, TranscriptEvent};
use super::tool_key::{Spellings, ToolKey};

/// Collects events into sessions. Keeps the calls to tools of MCP servers, without arguments, and
/// the texts of the user.
#[derive(Clone, Debug, Default)]
pub struct SessionCollector {
    sessions: HashMap<SessionKey, Parts>,
    /// The called tools, in their comparable form.
    tools: BTreeSet<ToolKey>,
    spellings: Spellings,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct SessionKey {
    client: TranscriptClient,
    id: Arc<str>,
}

#[derive(Clone, Debug, Default)]
struct Parts {
    project: Option<Arc<str>>,
    messages: Vec<TimedText>,
    calls: Vec<TimedCall>,
}

#[derive(Clone, Debug)]
struct TimedText {
    at: Timestamp,
    text: String,
}

#[derive(Clone, Debug)]
struct TimedCall {
    at: Timestamp,
    /// The tool, in its comparable form.
    tool: ToolKey,
    outcome: CallOutcome,
}

/// A session, as one line of the file that `riglm replay --sessions` reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RecordedSession {
    /// The identifier, unique over all clients.
    pub session_id: String,
    /// The name of the client.
    pub client: &'static str,
    /// The project, if known.
    #[serde(rename = "task_id", skip_serializing_if = "Option::is_none")]
    pub project: Option<String>,
    /// The time of the first call or message.
    pub started_at: Timestamp,
    /// The texts of the user, each the start of a turn.
    pub turns: Vec<String>,
    /// The calls, in order of time.
    pub calls: Vec<SessionCall>,
}

/// A call of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SessionCall {
    /// The qualified name of the tool, as in [`ToolEntry`].
    pub tool: String,
    /// Whether the call succeeded. A call without a result counts as a success; a cancelled one
    /// does not.
    pub ok: bool,
    /// The turn of the call; `None` if the session has no texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turn: Option<usize>,
    /// The time of the call.
    pub t: Timestamp,
}

/// A tool, as in the `tools` of the file that `riglm replay --catalog` reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ToolEntry {
    /// The qualified name, `SERVER__TOOL`.
    pub name: String,
    /// The server.
    pub server: String,
    /// The description. Transcripts do not have it.
    pub description: String,
}

impl SessionCollector {
    /// Adds an event. Calls to tools of the client are left out.
    pub fn add(&mut self, event: &TranscriptEvent) {
        match event {
            TranscriptEvent::Call(call) => self.add_call(call),
            TranscriptEvent::UserMessage(message) => {
                let parts = self.parts(message.client, &message.session, message.project.as_ref());
                parts.messages.push(TimedText {
                    at: message.sent_at,
                    text: message.text.clone(),
                });
            }
        }
    }

    fn add_call(&mut self, call: &RecordedCall) {
        let Some(server) = &call.server else {
            return;
        };
        let key = ToolKey {
            server: server.clone(),
            tool: call.tool.clone(),
        };
        let common = self.spellings.add(&key);
        self.tools.insert(common.clone());
        let timed = TimedCall {
            at: call.started_at,
            tool: common,
            outcome: call.outcome,
        };
        let parts = self.parts(call.client, &call.session, call.project.as_ref());
        parts.calls.push(timed);
    }

    fn parts(
        &mut self,
        client: TranscriptClient,
        session: &Arc<str>,
        project: Option<&Arc<str>>,
    ) -> &mut Parts {
        let id = Arc::clone(session);
        let parts = self.sessions.entry(SessionKey { client, id }).or_default();
        if parts.project.is_none() {
            parts.project = project.cloned();
        }
        parts
    }

    /// Returns the sessions with calls, in order of their start.
    #[must_use]
    pub fn sessions(self) -> Vec<RecordedSession> {
        let with_calls = self
            .sessions
            .into_iter()
            .filter(|(_, it)| !it.calls.is_empty());
        let mut sessions: Vec<RecordedSession> = with_calls
            .map(|(key, parts)| session(&key, parts, &self.spellings))
            .collect();
        sessions.sort_by(|a, b| {
            let by_start = a.started_at.cmp(&b.started_at);
            by_start.then_with(|| a.session_id.cmp(&b.session_id))
        });
        sessions
    }

    /// Returns the called tools, by name. They are the least that a catalog for a replay needs; the
    /// listed tools that were never called are missing.
    #[must_use]
    pub fn called_tools(&self) -> Vec<ToolEntry> {
        let keys = self.tools.iter().map(|common| self.spellings.best(common));
        // Two tools have the same name if a separator is a part of it.
        let by_name: BTreeMap<String, ToolKey> =
            keys.map(|key| (qualified_name(&key), key)).collect();
        let entries = by_name.into_iter().map(|(name, key)| ToolEntry {
            name,
            server: key.server,
            description: String::new(),
        });
        entries.collect()
    }
}

fn session(key: &SessionKey, mut parts: Parts, spellings: &Spellings) -> RecordedSession {
    // Stable sorts: events of one time stay in the order of the transcript.
    parts.messages.sort_by_key(|message| message.at);
    parts.calls.sort_by_key(|call| call.at);
    let first_call = parts.calls.first().map(|call| call.at);
    let first_message = parts.messages.first().map(|message| message.at);
    let started_at = first_call.into_iter().chain(first_message).min();
    let calls = parts.calls.into_iter().map(|call| {
        let n_before = parts.messages.partition_point(|it| it.at <= call.at);
        let has_turns = !parts.messages.is_empty();
        SessionCall {
            tool: qualified_name(&spellings.best(&call.tool)),
            ok: !matches!(call.outcome, CallOutcome::Error | CallOutcome::Cancelled),
            turn: has_turns.then(|| n_before.saturating_sub(1)),
            t: call.at,
        }
    });
    RecordedSession {
        session_id: format!("{}:{}", key.client, key.id),
        client: key.client.as_str(),
        project: parts.project.as_deref().map(str::to_owned),
        started_at: started_at.unwrap_or_default(),
        calls: calls.collect(),
        turns: parts.messages.iter().map(|it| it.text.clone()).collect(),
    }
}

/// Returns the name of a tool with its server, as the proxy lists it.
fn qualified_name(key: &ToolKey) -> String {
    format!("{}__{}", key.server, key.tool)
}

#[cfg(test)]
mod tests;
