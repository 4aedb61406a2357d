//! A stream of calls: the catalog that they are from, and the sessions that made them.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

/// Sessions over one catalog, in the order of their beginnings.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    /// What it is called.
    pub(crate) name: String,
    /// The tools that could be called, each name once.
    pub(crate) tools: Vec<Tool>,
    /// What was called; no session without calls.
    pub(crate) sessions: Vec<Session>,
}

/// A tool of a catalog.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Tool {
    /// Its name.
    pub(crate) name: String,
    /// What it says of itself; may be empty.
    #[serde(default)]
    pub(crate) description: String,
    /// The server that has it; may be empty.
    #[serde(default)]
    pub(crate) server: String,
}

/// What an agent did in one go.
#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// What it was asked for, where that is known.
    pub(crate) query: Option<String>,
    /// The positions of the tools that it called.
    pub(crate) calls: Vec<usize>,
}

#[derive(Deserialize)]
struct CatalogFile {
    tools: Vec<Tool>,
}

#[derive(Deserialize)]
struct SessionLine {
    query: Option<String>,
    calls: Vec<CallEntry>,
}

#[derive(Deserialize)]
struct CallEntry {
    tool: String,
}

impl Stream {
    /// Reads a catalog and its sessions.
    pub(crate) fn read(catalog: &Path, sessions: &Path) -> Self {
        let text = |path: &Path| std::fs::read_to_string(path).expect("a stream can be read");
        let catalog: CatalogFile = serde_json::from_str(&text(catalog)).expect("a catalog");
        let position_of: HashMap<&str, usize> = catalog
            .tools
            .iter()
            .map(|tool| &*tool.name)
            .zip(0..)
            .collect();
        let lines = text(sessions);
        let lines = lines.lines().filter(|line| !line.trim().is_empty());
        let read = lines.map(|line| {
            let line: SessionLine = serde_json::from_str(line).expect("a session");
            Session {
                query: line.query.filter(|query| !query.is_empty()),
                calls: (line.calls.iter())
                    .map(|call| position_of[&*call.tool])
                    .collect(),
            }
        });
        let read: Vec<Session> = read.filter(|session| !session.calls.is_empty()).collect();
        let name = sessions.file_stem().unwrap_or_default();
        Self {
            name: name.to_string_lossy().into_owned(),
            sessions: read,
            tools: catalog.tools,
        }
    }

    /// Returns the stream with its first sessions only.
    pub(crate) fn first(mut self, n_sessions: usize) -> Self {
        self.sessions.truncate(n_sessions);
        self
    }
}
