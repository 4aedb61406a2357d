//! The servers in the file of a client or of another gateway.
//!
//! One malformed entry never hides the others: it becomes an unusable server with a reason.

mod bridge;
mod entry;
mod formats;
mod members;
mod options;
mod toolhive;
mod variables;

#[cfg(test)]
mod tests;

use serde_json::{Map, Value};

use self::entry::EntryReader;
use super::client::{Client, Dialect, MapShape, ReferenceSyntax, TimeoutUnit, UntypedUrl};
use super::document::{self, DocumentError};
use super::identity::RiglmIdentity;
use super::server::ConfiguredServer;

pub use self::formats::{ImportError, ImportFormat};

/// The values that the servers of a file depend on.
#[derive(Clone, Copy, Debug)]
pub struct ReadContext<'a> {
    /// The home directory of the user, for references to it.
    pub home: &'a str,
    /// The addresses and programs that are riglm itself.
    pub riglm: &'a RiglmIdentity,
}

/// The servers of a file.
#[derive(Debug, Default, PartialEq)]
pub struct ConfiguredServers {
    /// The servers, in the order of the file.
    pub servers: Vec<ConfiguredServer>,
    /// Facts about the file that somebody should know.
    pub problems: Vec<FileProblem>,
}

/// A fact about a file that somebody should know.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FileProblem {
    /// A key occurs twice, and the last one counts.
    #[error("the key {path:?} occurs twice, and the last one counts")]
    DuplicateKey {
        /// The path of the key.
        path: String,
    },
    /// The servers are in a value of the wrong kind.
    #[error("the value of {key:?} is not {expected}")]
    WrongKind {
        /// The key.
        key: String,
        /// The kind of value that is needed.
        expected: &'static str,
    },
    /// A server of a list has no name.
    #[error("server {number} of {key:?} has no name")]
    NoName {
        /// The key of the list.
        key: String,
        /// The number of the server, from 1.
        number: usize,
    },
}

/// The meaning of entries of an unknown origin.
const ANY_DIALECT: Dialect = Dialect {
    references: &[
        ReferenceSyntax::Braces,
        ReferenceSyntax::EnvBraces,
        ReferenceSyntax::Input,
        ReferenceSyntax::Workspace,
    ],
    untyped_url: UntypedUrl::Http,
    timeout_unit: TimeoutUnit::Seconds,
};

/// Reads the servers in the file of a client.
///
/// # Errors
///
/// Returns [`DocumentError`] if the text is malformed as a whole.
pub fn read_servers(
    text: &str,
    client: &Client,
    context: ReadContext<'_>,
) -> Result<ConfiguredServers, DocumentError> {
    let contents = document::read(text, client.format)?;
    let mut reader = ServerCollector::new(&client.dialect, context);
    for path in contents.duplicate_keys {
        let problem = FileProblem::DuplicateKey { path };
        reader.servers.problems.push(problem);
    }
    let key = client.map.key;
    match (contents.value.get(key), client.map.shape) {
        (None | Some(Value::Null), _) => {}
        (Some(value), MapShape::Map) => reader.add_map(key, value),
        (Some(value), MapShape::List) => reader.add_list(key, value),
    }
    reader.add_projects(key, &contents.value);
    reader.apply_lists(&contents.value);
    Ok(reader.servers)
}

/// Collects the servers of a document.
struct ServerCollector<'a> {
    entries: EntryReader<'a>,
    servers: ConfiguredServers,
}

impl<'a> ServerCollector<'a> {
    fn new(dialect: &'a Dialect, context: ReadContext<'a>) -> Self {
        Self {
            entries: EntryReader {
                dialect,
                home: context.home,
                riglm: context.riglm,
            },
            servers: ConfiguredServers::default(),
        }
    }

    fn add(&mut self, name: &str, entry: &Value) {
        self.servers.servers.push(self.entries.read(name, entry));
    }

    fn add_map(&mut self, key: &str, value: &Value) {
        match value.as_object() {
            Some(members) => {
                for (name, entry) in members {
                    self.add(name, entry);
                }
            }
            None => self.wrong_kind(key, "an object"),
        }
    }

    fn add_list(&mut self, key: &str, value: &Value) {
        let Some(entries) = value.as_array() else {
            return self.wrong_kind(key, "a list");
        };
        for (entry, number) in entries.iter().zip(1..) {
            match entry.get("name").and_then(Value::as_str) {
                Some(name) => self.add(name, entry),
                None => self.servers.problems.push(FileProblem::NoName {
                    key: key.to_owned(),
                    number,
                }),
            }
        }
    }

    fn wrong_kind(&mut self, key: &str, expected: &'static str) {
        self.servers.problems.push(FileProblem::WrongKind {
            key: key.to_owned(),
            expected,
        });
    }

    /// Adds the servers of single projects, which one client keeps in the file of its user.
    fn add_projects(&mut self, key: &str, document: &Value) {
        let projects = document.get("projects").and_then(Value::as_object);
        for (path, project) in projects.into_iter().flatten() {
            let servers = project.get(key).and_then(Value::as_object);
            let disabled = texts(project.get("disabledMcpServers"));
            for (name, entry) in servers.into_iter().flatten() {
                let mut server = self.entries.read(name, entry);
                server.project = Some(path.clone());
                server.is_disabled |= disabled.contains(&name.as_str());
                self.servers.servers.push(server);
            }
        }
    }

    /// Applies lists of names that are used, and of names that are not.
    fn apply_lists(&mut self, document: &Value) {
        let Some(lists) = document.get("mcp").and_then(Value::as_object) else {
            return;
        };
        let excluded = texts(lists.get("excluded"));
        let allowed = lists.get("allowed").filter(|value| value.is_array());
        let allowed = allowed.map(|allowed| texts(Some(allowed)));
        for server in &mut self.servers.servers {
            let name = server.name.as_str();
            let is_left_out = allowed.as_ref().is_some_and(|names| !names.contains(&name));
            server.is_disabled |= is_left_out || excluded.contains(&name);
        }
    }
}

/// Returns the texts of a list; none for any other value.
fn texts(value: Option<&Value>) -> Vec<&str> {
    let values = value.and_then(Value::as_array).into_iter().flatten();
    values.filter_map(Value::as_str).collect()
}

/// Returns the members of an object; none for any other value.
fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flat_map(Map::iter)
}
