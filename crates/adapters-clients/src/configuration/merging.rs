//! One server for equal ones of several clients.

use super::identity::AddressParts;
use super::server::{ConfiguredServer, ConfiguredTransport};
use crate::transcripts::comparable_name;

#[cfg(test)]
mod tests;

/// A server with the place that it was read from.
#[derive(Clone, Debug, PartialEq)]
pub struct SourcedServer {
    /// The client or the file, for messages.
    pub source: String,
    /// The server.
    pub server: ConfiguredServer,
}

/// A server that one or several clients have.
#[derive(Clone, Debug, PartialEq)]
pub struct MergedServer {
    /// The server as the first client has it.
    pub server: ConfiguredServer,
    /// The sources that have it, the first one first.
    pub sources: Vec<String>,
    /// The entries of the sources, in the same order. A source may have several.
    pub entries: Vec<ServerEntry>,
    /// The differences of later ones to the first. Values are not shown.
    pub differences: Vec<ServerDifference>,
}

/// An entry for a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServerEntry {
    /// The client or the file that has it.
    pub source: String,
    /// The name of the server there.
    pub name: String,
}

/// A difference between equal servers of two clients.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{origin} has another {part} than {first}")]
pub struct ServerDifference {
    /// The source of the first server.
    pub first: String,
    /// The source of the other server.
    pub origin: String,
    /// The part that differs.
    pub part: String,
}

/// Merges servers that have the same command line, or the same address without user, query and
/// fragment, and in addition the same name, or the same variables, query and headers: otherwise they
/// may be two accounts. Servers of different projects stay apart, and so do unusable ones.
pub fn merge_servers(servers: impl IntoIterator<Item = SourcedServer>) -> Vec<MergedServer> {
    let mut merged: Vec<MergedServer> = Vec::new();
    for SourcedServer { source, server } in servers {
        let entry = ServerEntry {
            source: source.clone(),
            name: server.name.clone(),
        };
        let equal = merged.iter_mut().find(|other| {
            other.server.project == server.project
                && is_same(&other.server.transport, &server.transport)
                && (comparable_name(&other.server.name) == comparable_name(&server.name)
                    || has_same_account(&other.server.transport, &server.transport))
        });
        let Some(other) = equal else {
            merged.push(MergedServer {
                server,
                sources: vec![source],
                entries: vec![entry],
                differences: Vec::new(),
            });
            continue;
        };
        let first = other.sources.first().cloned().unwrap_or_default();
        let parts = differing_parts(&other.server, &server);
        let differences = parts.into_iter().map(|part| ServerDifference {
            first: first.clone(),
            origin: source.clone(),
            part,
        });
        other.differences.extend(differences);
        // It is used if any client uses it.
        other.server.is_disabled &= server.is_disabled;
        other.entries.push(entry);
        if !other.sources.contains(&source) {
            other.sources.push(source);
        }
    }
    merged
}

fn is_same(one: &ConfiguredTransport, other: &ConfiguredTransport) -> bool {
    use ConfiguredTransport::{Command, Unusable, Url};
    match (one, other) {
        (Command(one), Command(other)) => one.program == other.program && one.args == other.args,
        (Url(one), Url(other)) => {
            match (
                AddressParts::parse(&one.url),
                AddressParts::parse(&other.url),
            ) {
                (Some(first), Some(second)) => first == second,
                _ => one.url == other.url,
            }
        }
        (Command(_) | Url(_) | Unusable(_), _) => false,
    }
}

/// Returns whether nothing differs that may select an account.
fn has_same_account(one: &ConfiguredTransport, other: &ConfiguredTransport) -> bool {
    use ConfiguredTransport::{Command, Url};
    match (one, other) {
        (Command(one), Command(other)) => one.env == other.env && one.env_file == other.env_file,
        (Url(one), Url(other)) => {
            one.url == other.url && one.headers == other.headers && one.bearer == other.bearer
        }
        _ => false,
    }
}

fn differing_parts(one: &ConfiguredServer, other: &ConfiguredServer) -> Vec<String> {
    let mut parts = Vec::new();
    let mut check = |is_equal: bool, part: &str| {
        if !is_equal {
            parts.push(part.to_owned());
        }
    };
    check(one.name == other.name, "name");
    match (&one.transport, &other.transport) {
        (ConfiguredTransport::Command(one), ConfiguredTransport::Command(other)) => {
            check(one.cwd == other.cwd, "working directory");
            check(one.env_file == other.env_file, "file of variables");
            let names = one.env.keys().chain(other.env.keys());
            let names: std::collections::BTreeSet<&String> = names.collect();
            for name in names {
                let is_equal = one.env.get(name) == other.env.get(name);
                check(is_equal, &format!("value of the variable {name}"));
            }
        }
        (ConfiguredTransport::Url(one), ConfiguredTransport::Url(other)) => {
            check(one.url == other.url, "user or query of the address");
            check(one.is_sse == other.is_sse, "transport");
            check(one.headers == other.headers, "set of headers");
            check(one.bearer == other.bearer, "token");
            check(one.oauth == other.oauth, "registration for OAuth");
            check(
                one.credentials_command == other.credentials_command,
                "program for credentials",
            );
        }
        _ => {}
    }
    check(one.tools == other.tools, "selection of tools");
    check(one.timeouts == other.timeouts, "time limit");
    check(one.is_disabled == other.is_disabled, "on/off switch");
    parts
}
