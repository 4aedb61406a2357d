//! `riglm clients`: the MCP clients that riglm knows, and those of this user.

use std::fmt;
use std::path::Path;

use anyhow::Context as _;
use riglm_adapters_clients::configuration::{
    Client, ConfiguredServer, ConfiguredTransport, FileState, InstalledClient, Tier, clients,
    installed_client, own_entries, read_text,
};
use serde_json::{Value, json};

use super::import::plan::ImportTarget;
use super::table::{Column, table};
use super::user_clients::{UserClients, endpoint};
use crate::args::ClientsArgs;
use crate::config::Config;
use crate::output::print;

#[derive(Debug)]
pub(crate) struct ClientRow {
    pub(crate) client: &'static Client,
    pub(crate) files: Vec<String>,
    pub(crate) is_installed: bool,
    pub(crate) riglm: RiglmState,
}

/// The entries of a client that are riglm.
#[derive(Debug)]
pub(crate) enum RiglmState {
    /// The files cannot be read.
    Unreadable,
    /// There is none.
    Absent,
    /// All of them reach the proxy.
    Current,
    /// One does not reach it.
    Defective(Defect),
}

/// The reason why an entry that is riglm does not reach the proxy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    /// It has another address than this one.
    OtherAddress(String),
    /// It has no key, and the proxy needs one.
    NoKey,
    /// It starts this program, which does not exist.
    NoProgram(String),
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::OtherAddress(address) => write!(f, "has another address than {address}"),
            Self::NoKey => f.write_str("has no key, which section auth.keys needs"),
            Self::NoProgram(program) => write!(f, "starts {program}, which does not exist"),
        }
    }
}

/// Returns the reason why an entry that is riglm does not reach the proxy at `address`, which may be
/// unknown.
pub(super) fn defect(
    transport: &ConfiguredTransport,
    config: &Config,
    address: Option<&str>,
) -> Option<Defect> {
    match transport {
        ConfiguredTransport::Url(url) => {
            let address = address?;
            let is_it = url.url.trim_end_matches('/').starts_with(address)
                || (url.url.replace("localhost", "127.0.0.1")).starts_with(address);
            let needs_key = !config.keys.is_empty();
            let has_key = url.bearer.is_some() || !url.headers.is_empty();
            if !is_it {
                Some(Defect::OtherAddress(address.to_owned()))
            } else if needs_key && !has_key {
                Some(Defect::NoKey)
            } else {
                None
            }
        }
        ConfiguredTransport::Command(command) => {
            let program = Path::new(&command.program);
            let is_missing = program.is_absolute() && !program.exists();
            is_missing.then(|| Defect::NoProgram(command.program.clone()))
        }
        ConfiguredTransport::Unusable(_) => None,
    }
}

/// Prints the clients; those that are installed, or all.
///
/// # Errors
///
/// Returns the error of writing.
pub(super) fn run(target: ImportTarget<'_>, arguments: &ClientsArgs) -> anyhow::Result<()> {
    let users = UserClients::new(target.config, target.process, &arguments.home)?;
    let rows: Vec<ClientRow> = rows(&users, target.config)
        .filter(|row| row.is_installed || arguments.all)
        .collect();
    let text = if arguments.format.is_json() {
        let json: Value = rows.iter().map(ClientRow::as_json).collect();
        serde_json::to_string(&json).context("failed to write clients as JSON")?
    } else {
        let columns = [
            Column::Text("CLIENT"),
            Column::Text("NAME"),
            Column::Text("INSTALLED"),
            Column::Text("RIGLM"),
            Column::Text("FILES"),
        ];
        table(&columns, rows.iter().map(ClientRow::cells).collect())
    };
    Ok(print(&text)?)
}

/// Returns the clients that riglm knows, in the order of their table.
pub(crate) fn rows(users: &UserClients, config: &Config) -> impl Iterator<Item = ClientRow> {
    clients().map(move |client| row(users, config, client))
}

fn row(users: &UserClients, config: &Config, client: &'static Client) -> ClientRow {
    let installed = installed_client(&users.places, client);
    let present: Vec<_> = (installed.iter())
        .flat_map(|installed: &InstalledClient| &installed.files)
        .filter(|file| matches!(file.state, FileState::Present { .. }))
        .collect();
    let entries = present.iter().map(|file| {
        let text = read_text(&file.path).ok()?.text;
        own_entries(&text, client, &users.riglm).ok()
    });
    let entries: Option<Vec<Vec<ConfiguredServer>>> = entries.collect();
    ClientRow {
        client,
        files: (present.iter())
            .map(|file| file.path.display().to_string())
            .collect(),
        is_installed: installed.is_some(),
        riglm: match entries {
            Some(entries) => RiglmState::of(&entries.concat(), config),
            None => RiglmState::Unreadable,
        },
    }
}

impl RiglmState {
    /// Returns the state of these entries.
    fn of(entries: &[ConfiguredServer], config: &Config) -> Self {
        let address = endpoint(config, None);
        let defect_of =
            |entry: &ConfiguredServer| defect(&entry.transport, config, address.as_deref());
        match entries.iter().find_map(defect_of) {
            Some(defect) => Self::Defective(defect),
            None if entries.is_empty() => Self::Absent,
            None => Self::Current,
        }
    }

    /// Returns whether there is an entry; `None` if this is unknown.
    fn is_there(&self) -> Option<bool> {
        match self {
            Self::Unreadable => None,
            Self::Absent => Some(false),
            Self::Current | Self::Defective(_) => Some(true),
        }
    }

    /// Returns whether all entries reach the proxy; `None` if there is none, or if this is unknown.
    fn is_current(&self) -> Option<bool> {
        match self {
            Self::Unreadable | Self::Absent => None,
            Self::Current => Some(true),
            Self::Defective(_) => Some(false),
        }
    }

    /// Returns the state as a word of the output.
    pub(crate) fn word(&self) -> &'static str {
        match self {
            Self::Unreadable => "unreadable",
            Self::Absent => "no",
            Self::Current => "yes",
            Self::Defective(Defect::OtherAddress(_)) => "other address",
            Self::Defective(Defect::NoKey) => "no key",
            Self::Defective(Defect::NoProgram(_)) => "program missing",
        }
    }
}

impl ClientRow {
    fn as_json(&self) -> Value {
        json!({
            "client": self.client.id,
            "name": self.client.title,
            "tested": self.client.tier == Tier::Tested,
            "installed": self.is_installed,
            "riglm": self.riglm.is_there(),
            "current": self.riglm.is_current(),
            "files": self.files,
        })
    }

    fn cells(&self) -> Vec<String> {
        let installed = if self.is_installed { "yes" } else { "no" };
        vec![
            self.client.id.to_owned(),
            self.client.title.to_owned(),
            installed.to_owned(),
            self.riglm.word().to_owned(),
            self.files.join(", "),
        ]
    }
}

#[cfg(test)]
mod tests {
    use riglm_adapters_clients::configuration::Connection;

    use super::*;

    const DOCUMENTATION: &str = include_str!("../../../../docs/clients.md");

    /// Returns the row of a client in the documentation.
    fn documented(client: &Client) -> String {
        let place = |templates: &[&str]| match templates.last() {
            Some(path) => format!("`{path}`"),
            None => "-".to_owned(),
        };
        let file = client.files.first();
        let [linux, macos, windows] = [
            file.map(|file| place(file.linux)),
            file.map(|file| place(file.macos)),
            file.map(|file| place(file.windows)),
        ]
        .map(Option::unwrap_or_default);
        let beside_linux = |place: String| {
            if place == linux && place != "-" {
                "same".to_owned()
            } else {
                place
            }
        };
        let (macos, windows) = (beside_linux(macos), beside_linux(windows));
        let connection = match client.connection {
            Connection::Http(_) => "address",
            Connection::Bridge => "`riglm connect`",
        };
        let tested = if client.tier == Tier::Tested {
            "yes"
        } else {
            ""
        };
        format!(
            "| `{}` | {} | {tested} | {linux} | {macos} | {windows} | {connection} |",
            client.id, client.title
        )
    }

    #[test]
    fn the_documentation_has_each_client() {
        let missing: Vec<String> = (clients().map(documented))
            .filter(|row| !DOCUMENTATION.lines().any(|line| line == row))
            .collect();
        assert!(
            missing.is_empty(),
            "docs/clients.md:\n{}",
            missing.join("\n")
        );
    }
}
