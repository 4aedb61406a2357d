//! Streams of recorded calls: a catalog, and the sessions that called its tools.

use std::collections::HashMap;
use std::path::Path;

use serde::Deserialize;

/// Sessions over one catalog, in the order of their start.
#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) name: String,
    /// The callable tools. Names are unique.
    pub(crate) tools: Vec<Tool>,
    /// The sessions. Each has at least one call.
    pub(crate) sessions: Vec<Session>,
}

#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Tool {
    pub(crate) name: String,
    /// The description. May be empty.
    #[serde(default)]
    pub(crate) description: String,
    /// The server of the tool. May be empty.
    #[serde(default)]
    pub(crate) server: String,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Session {
    /// The task of the session, if known.
    pub(crate) query: Option<String>,
    /// The positions of the called tools.
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

    /// Returns the stream with only its first sessions.
    pub(crate) fn first(mut self, n_sessions: usize) -> Self {
        self.sessions.truncate(n_sessions);
        self
    }
}
