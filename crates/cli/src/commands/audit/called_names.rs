//! The names under which clients call servers.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use riglm_adapters_clients::transcripts::{RecordedCall, ServerNames, comparable_name};

/// The names of servers in clients. Two clients may call one server by two names, and two servers by
/// one name.
#[derive(Debug, Default)]
pub(super) struct CalledNames {
    /// The entries by the comparable form of their name.
    entries: BTreeMap<String, Vec<CalledName>>,
    /// The names of riglm, in their comparable form.
    riglm: BTreeSet<String>,
}

#[derive(Debug)]
struct CalledName {
    name: String,
    /// The client; `None` for the name in riglm.
    client: Option<String>,
    /// The project that the entry is for; `None` for all.
    project: Option<String>,
    /// The name of the server in the audit.
    server: String,
}

impl CalledNames {
    /// Adds a name that a client has for a server, in a project or in all of them.
    pub(super) fn add(
        &mut self,
        name: &str,
        client: Option<&str>,
        project: Option<&str>,
        server: &str,
    ) {
        let entries = self.entries.entry(comparable_name(name)).or_default();
        entries.push(CalledName {
            name: name.to_owned(),
            client: client.map(str::to_owned),
            project: project.map(str::to_owned),
            server: server.to_owned(),
        });
    }

    /// Adds a name that a client has for riglm.
    pub(super) fn add_riglm(&mut self, name: &str) {
        self.riglm.insert(comparable_name(name));
    }

    /// Returns whether a server of a client is riglm. Its usual name counts also after it was removed.
    pub(super) fn is_riglm(&self, name: &str) -> bool {
        name == "riglm" || self.riglm.contains(&comparable_name(name))
    }

    /// Returns all names, which tell where the name of a tool begins.
    pub(super) fn server_names(&self) -> ServerNames {
        let entries = self.entries.values().flatten();
        let names = entries.map(|entry| entry.name.as_str());
        ServerNames::new(names.chain(self.riglm.iter().map(String::as_str)))
    }

    /// Returns the server that a call was for: with this name in the client and its project, or else
    /// in another client.
    pub(super) fn server_of(&self, call: &RecordedCall) -> Option<&str> {
        let name = comparable_name(call.server.as_deref()?);
        let entries = self.entries.get(&name)?;
        let fit = |entry: &&CalledName| {
            let of_client = match entry.client.as_deref() {
                Some(client) if client == call.client.title() => 2,
                // An entry that is gone, or was renamed.
                None => 1,
                Some(_) => 0,
            };
            // A client may have gone into a folder of the project. The nearest project counts.
            let of_project = match (&entry.project, &call.project) {
                (Some(project), Some(called)) if Path::new(&**called).starts_with(project) => {
                    2 + project.len()
                }
                (None, _) => 1,
                _ => 0,
            };
            (of_client, of_project)
        };
        // Of equal ones, the first counts.
        let best = entries.iter().rev().max_by_key(fit)?;
        Some(&best.server)
    }

    pub(super) fn server_in_riglm(&self, upstream: &str) -> Option<&str> {
        let mut entries = self.entries.get(&comparable_name(upstream))?.iter();
        let entry = entries.find(|entry| entry.client.is_none())?;
        Some(&entry.server)
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_adapters_clients::transcripts::{CallOutcome, CallingAgent, TranscriptClient};

    use super::*;

    fn call(client: TranscriptClient, project: &str, server: &str) -> RecordedCall {
        RecordedCall {
            client,
            session: "s".into(),
            project: Some(project.into()),
            call_id: "c".into(),
            identity: 0,
            server: Some(server.into()),
            tool: "t".into(),
            started_at: Timestamp::UNIX_EPOCH,
            duration: None,
            outcome: CallOutcome::Success,
            agent: CallingAgent::Main,
            arguments: None,
        }
    }

    #[test]
    fn the_entry_of_the_client_and_its_project_counts() {
        use TranscriptClient::{ClaudeCode, Codex, GeminiCli};
        let mut names = CalledNames::default();
        names.add("github", None, None, "github");
        names.add("github", Some("Claude Code"), None, "github (2)");
        names.add("github", Some("Claude Code"), Some("/shop"), "github (3)");
        names.add("my-files", Some("Codex"), None, "files");
        for (client, project, name, expected) in [
            (ClaudeCode, "/shop", "github", Some("github (3)")),
            (ClaudeCode, "/shop/sub", "github", Some("github (3)")),
            (ClaudeCode, "/shopping", "github", Some("github (2)")),
            (ClaudeCode, "/other", "github", Some("github (2)")),
            (Codex, "/shop", "github", Some("github")),
            (Codex, "/shop", "my_files", Some("files")),
            (GeminiCli, "/shop", "my-files", Some("files")),
            (GeminiCli, "/shop", "unknown", None),
        ] {
            let found = names.server_of(&call(client, project, name));
            assert_eq!(found, expected, "{client} {project} {name}");
        }
        assert_eq!(names.server_in_riglm("github"), Some("github"));
        assert_eq!(names.server_in_riglm("my-files"), None);
    }
}
