//! The recorded agent sessions that the demonstration plays.

use std::collections::BTreeMap;

use anyhow::Context as _;
use rmcp::model::JsonObject;
use serde::Deserialize;

use super::{DemoClient, DemoServer};

/// The recorded sessions, and the words for tools.
#[derive(Clone, Debug, Deserialize)]
pub struct Script {
    /// The number of sessions after which riglm has had its time to learn.
    pub n_learning: usize,
    /// The words in which an agent searches for a tool, by the name of the tool.
    pub needs: BTreeMap<String, String>,
    /// The sessions, in order.
    pub sessions: Vec<ScriptedSession>,
}

/// A session of an agent.
#[derive(Clone, Debug, Deserialize)]
pub struct ScriptedSession {
    /// The client of the agent.
    pub client: DemoClient,
    /// The task in the words of the user.
    pub intent: String,
    /// The calls, in order.
    pub calls: Vec<ScriptedCall>,
}

/// A call of a session.
#[derive(Clone, Debug, Deserialize)]
pub struct ScriptedCall {
    /// The server of the tool.
    pub server: DemoServer,
    /// The name of the tool at the server.
    pub tool: String,
    /// The arguments.
    pub arguments: JsonObject,
    /// The expected result.
    #[serde(default)]
    pub expected: ExpectedResult,
}

/// The expected result of a call.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedResult {
    /// A result with this part.
    Text(String),
    /// A result that the tool marks as failed, with this part.
    Failure(String),
}

impl Default for ExpectedResult {
    fn default() -> Self {
        Self::Text(String::new())
    }
}

impl ScriptedCall {
    /// Returns the name of the tool behind the proxy, which adds the name of the server.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}__{}", self.server.name(), self.tool)
    }
}

impl Script {
    /// Returns the recorded sessions.
    ///
    /// # Errors
    ///
    /// Returns the place that cannot be read.
    pub fn load() -> anyhow::Result<Self> {
        let script = serde_json::from_str(include_str!("sessions.json"));
        script.context("failed to read the recorded sessions")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn recorded_sessions_call_existing_tools_that_have_words() {
        let script = Script::load().unwrap();
        assert!(script.sessions.len() >= 24);
        let clients: BTreeSet<&str> = (script.sessions.iter())
            .map(|session| session.client.revision())
            .collect();
        assert_eq!(clients.len(), 2);
        for session in &script.sessions {
            assert!((3..=8).contains(&session.calls.len()), "{}", session.intent);
            for call in &session.calls {
                let mut tools = call.server.definitions().into_iter();
                assert!(
                    tools.any(|tool| tool.name == call.name()),
                    "{}",
                    call.name()
                );
                assert!(script.needs.contains_key(&call.name()), "{}", call.name());
            }
        }
    }
}
