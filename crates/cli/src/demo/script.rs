//! The recorded agent sessions that the demonstration plays.

use std::collections::BTreeMap;

use anyhow::{Context as _, bail};
use rmcp::model::JsonObject;

use super::{DemoClient, DemoServer};

const SESSIONS: &str = include_str!("sessions.txt");

/// The line between the sessions from which riglm learns, and the others.
const LEARNED: &str = "= learned";

/// The recorded sessions, and the words for tools.
#[derive(Clone, Debug)]
pub struct Script {
    /// The sessions, in order.
    pub sessions: Vec<ScriptedSession>,
    /// The number of sessions after which riglm has had its time to learn.
    pub n_learning: usize,
    /// The words in which an agent searches for a tool, by the name of the tool.
    pub needs: BTreeMap<String, String>,
}

/// A session of an agent.
#[derive(Clone, Debug)]
pub struct ScriptedSession {
    /// The client of the agent.
    pub client: DemoClient,
    /// The task in the words of the user.
    pub intent: String,
    /// The calls, in order.
    pub calls: Vec<ScriptedCall>,
}

/// A call of a session.
#[derive(Clone, Debug)]
pub struct ScriptedCall {
    /// The server of the tool.
    pub server: DemoServer,
    /// The name of the tool at the server.
    pub tool: String,
    /// The arguments.
    pub arguments: JsonObject,
    /// The expected result.
    pub expected: ExpectedResult,
}

/// The expected result of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedResult {
    /// A result with this part.
    Text(String),
    /// A result that the tool marks as failed, with this part.
    Failure(String),
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
    /// Returns the line that cannot be read.
    pub fn load() -> anyhow::Result<Self> {
        let mut script = Self {
            sessions: Vec::new(),
            n_learning: 0,
            needs: BTreeMap::new(),
        };
        for (at, line) in SESSIONS.lines().enumerate() {
            script
                .add_line(line)
                .with_context(|| format!("line {} of the recorded sessions", at + 1))?;
        }
        Ok(script)
    }

    fn add_line(&mut self, line: &str) -> anyhow::Result<()> {
        if line.is_empty() || line.starts_with('#') {
            return Ok(());
        }
        if let Some(session) = line.strip_prefix("@ ") {
            let (client, intent) = session.split_once(' ').context("an intent is missing")?;
            self.sessions.push(ScriptedSession {
                client: client.parse()?,
                intent: intent.into(),
                calls: Vec::new(),
            });
            return Ok(());
        }
        if line == LEARNED {
            self.n_learning = self.sessions.len();
            return Ok(());
        }
        if let Some(need) = line.strip_prefix("? ") {
            let (tool, words) = need.split_once(' ').context("words are missing")?;
            let name = tool.replacen('.', "__", 1);
            self.needs.insert(name, words.into());
            return Ok(());
        }
        let Some(session) = self.sessions.last_mut() else {
            bail!("a call before the first session");
        };
        session.calls.push(call(line)?);
        Ok(())
    }
}

fn call(line: &str) -> anyhow::Result<ScriptedCall> {
    let (tool, rest) = line.split_once(' ').context("arguments are missing")?;
    let (server, tool) = tool.split_once('.').context("a server is missing")?;
    let (arguments, expected) = if let Some((arguments, part)) = rest.split_once(" => ") {
        (arguments, ExpectedResult::Text(part.into()))
    } else if let Some((arguments, part)) = rest.split_once(" !! ") {
        (arguments, ExpectedResult::Failure(part.into()))
    } else {
        (rest, ExpectedResult::Text(String::new()))
    };
    Ok(ScriptedCall {
        server: server.parse()?,
        tool: tool.into(),
        arguments: serde_json::from_str(arguments)?,
        expected,
    })
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
                let mut tools = call.server.tools().iter();
                assert!(tools.any(|tool| tool.name == call.tool), "{}", call.name());
                assert!(script.needs.contains_key(&call.name()), "{}", call.name());
            }
        }
    }

    #[test]
    fn lines_that_cannot_be_read_are_refused() {
        for line in [
            "notes.add_note",
            "nosuch.tool {}",
            "notes.add_note {",
            "add_note {}",
        ] {
            assert!(call(line).is_err(), "{line}");
        }
    }
}
