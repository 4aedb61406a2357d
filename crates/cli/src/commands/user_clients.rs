//! The MCP clients of a user: their places, and the entries of them that are riglm.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Context as _;
use riglm_adapters_clients::configuration::{
    Client, Connection, EntryKey, InstallEntry, Ledger, Os, Places, RiglmIdentity,
    VariableReference, clients, entry_value,
};
use serde_json::Value;

use crate::args::HomeArgs;
use crate::commands::connect::{KEY_VARIABLE, proxy_url};
use crate::config::{Config, ProcessEnv};
use crate::exit::WrongUsage;

/// The name of the entry for riglm.
pub(super) const ENTRY: &str = "riglm";
/// Names that clients give themselves, where they differ from the identifier.
const ALIASES: [(&str, &str); 4] = [
    ("vscode", "visualstudiocode"),
    ("claude-desktop", "claudeai"),
    ("devin", "windsurf"),
    ("copilot-cli", "githubcopilot"),
];
/// The largest number of words of a name in [`ALIASES`], or of an identifier.
const MAX_WORDS: usize = 3;

#[derive(Clone, Debug)]
pub(crate) struct UserClients {
    pub(super) places: Places,
    /// The addresses and programs that are riglm.
    pub(super) riglm: RiglmIdentity,
    pub(super) program: PathBuf,
}

impl UserClients {
    /// Returns the clients of the user that the arguments name, or of this user.
    ///
    /// # Errors
    ///
    /// Returns [`WrongUsage`] if there is no home directory.
    pub(crate) fn new(
        config: &Config,
        process: &ProcessEnv,
        arguments: &HomeArgs,
    ) -> anyhow::Result<Self> {
        let named = arguments.home.as_ref();
        let named = named.map(|home| process.working_directory.join(home));
        let home = named.clone().or_else(|| process.home_directory.clone());
        let home = home.ok_or_else(|| {
            WrongUsage("this user has no home directory: set HOME, or use --home DIR".into())
        })?;
        let home = std::path::absolute(&home)
            .with_context(|| format!("invalid path {}", home.display()))?;
        let program = std::env::current_exe().context("failed to find the path of this program")?;
        // Variables such as XDG_CONFIG_HOME belong to this user, not to the named one.
        let variables = match named {
            Some(_) => BTreeMap::new(),
            None => process.environment.all().clone(),
        };
        Ok(Self {
            places: Places {
                os: arguments.os.unwrap_or_else(Os::of_this_build),
                home,
                variables,
            },
            riglm: RiglmIdentity {
                // With those of earlier installations, before the port was changed.
                addresses: (Ledger::read(&config.data_dir)?.addresses().into_iter())
                    .chain(endpoint(config, None))
                    .collect(),
                programs: vec![program.display().to_string()],
            },
            program,
        })
    }

    /// Returns the home directory as text.
    pub(super) fn home(&self) -> String {
        self.places.home.display().to_string()
    }
}

/// Returns the address of the MCP endpoint for clients on this machine; `None` if its port is
/// unknown.
pub(super) fn endpoint(config: &Config, profile: Option<&str>) -> Option<String> {
    let url = proxy_url(config.listen.address, profile).ok()?;
    Some(url.to_string())
}

/// Returns the entry for riglm in the notation of a client; `None` if the address of the proxy is
/// unknown, or if there is none without a secret.
pub(crate) fn own_entry(client: &Client, config: &Config) -> Option<Value> {
    let key = if config.keys.is_empty() {
        EntryKey::None
    } else {
        EntryKey::Variable(KEY_VARIABLE.into())
    };
    entry_without_secret(client, endpoint(config, None)?, key)
}

/// Returns the entry for an address in the notation of a client. There is none if the client starts a
/// program instead, if it would have the key itself, or if the client asks for the key by another
/// entry.
fn entry_without_secret(client: &Client, address: String, key: EntryKey) -> Option<Value> {
    let is_referred_to = match &key {
        EntryKey::None => true,
        EntryKey::Variable(_) => client.reference != VariableReference::Input,
        EntryKey::Text(_) => false,
    };
    if !is_referred_to || !matches!(client.connection, Connection::Http(_)) {
        return None;
    }
    let entry = InstallEntry {
        name: ENTRY.into(),
        address,
        program: String::new(),
        arguments: Vec::new(),
        key,
    };
    entry_value(client, &entry).ok()
}

/// Returns the names that a client gives itself, in lower case and without separators.
pub(super) fn own_names(client: &Client) -> impl Iterator<Item = String> {
    let aliases = ALIASES.iter().filter(move |(id, _)| *id == client.id);
    let aliases = aliases.map(|(_, alias)| (*alias).to_owned());
    aliases.chain([without_separators(client.id)])
}

/// Returns a name in lower case, with its ASCII letters and digits only.
pub(super) fn without_separators(name: &str) -> String {
    let letters = name.chars().filter(char::is_ascii_alphanumeric);
    letters.collect::<String>().to_ascii_lowercase()
}

/// Returns the client that declares a name in a session: the one of whose own names the longest is
/// the beginning of it, in whole words.
pub(crate) fn client_that_declares(name: &str) -> Option<&'static Client> {
    let words = name.split(|c: char| !c.is_ascii_alphanumeric());
    let words = words.filter(|word| !word.is_empty());
    let mut beginning = String::new();
    let mut longest = None;
    for word in words.take(MAX_WORDS) {
        beginning.push_str(&word.to_ascii_lowercase());
        let client = clients().find(|client| own_names(client).any(|own| own == beginning));
        longest = client.or(longest);
    }
    longest
}

#[cfg(test)]
mod tests {
    use riglm_adapters_clients::configuration::client;
    use serde_json::json;

    use super::*;

    #[test]
    fn a_declared_name_belongs_to_one_client() {
        for (name, expected) in [
            ("claude-code", Some("claude-code")),
            ("claude-ai", Some("claude-desktop")),
            ("cursor-vscode", Some("cursor")),
            ("Visual Studio Code", Some("vscode")),
            ("Visual Studio Code - Insiders", Some("vscode")),
            ("codex-mcp-client", Some("codex")),
            ("gemini-cli-mcp-client", Some("gemini")),
            ("Zed", Some("zed")),
            ("example-client", None),
            ("amplifier", None),
            ("", None),
            ("\u{202e}\u{1b}[31m", None),
        ] {
            let found = client_that_declares(name).map(|client| client.id);
            assert_eq!(found, expected, "{name:?}");
        }
    }

    #[test]
    fn no_own_name_has_more_words_than_are_compared() {
        let n_words = |client: &Client| client.id.split('-').count();
        assert!(clients().all(|client| n_words(client) <= MAX_WORDS));
    }

    #[test]
    fn an_entry_without_secret_refers_to_the_key_or_does_not_exist() {
        const ADDRESS: &str = "http://127.0.0.1:8642/mcp";
        let entry = |id: &str, key: EntryKey| {
            let client = client(id).expect("it is known");
            entry_without_secret(client, ADDRESS.into(), key)
        };
        for (id, expected) in [
            ("cursor", json!({ "url": ADDRESS })),
            ("vscode", json!({ "type": "http", "url": ADDRESS })),
            ("lm-studio", json!({ "url": ADDRESS })),
            ("kiro", json!({ "url": ADDRESS })),
        ] {
            assert_eq!(entry(id, EntryKey::None), Some(expected), "{id}");
        }
        let variable = || EntryKey::Variable(KEY_VARIABLE.into());
        for (id, expected) in [
            ("cursor", Some("Bearer ${env:RIGLM_KEY}")),
            ("kiro", Some("Bearer ${RIGLM_KEY}")),
            // It asks for the key by another entry.
            ("vscode", None),
            // It replaces nothing.
            ("lm-studio", None),
        ] {
            let entry = entry(id, variable());
            let header = entry
                .as_ref()
                .map(|entry| &entry["headers"]["Authorization"]);
            assert_eq!(header, expected.map(Value::from).as_ref(), "{id}");
        }
        for client in clients() {
            let with_key = entry_without_secret(client, ADDRESS.into(), EntryKey::Text("k".into()));
            assert_eq!(with_key, None, "{}", client.id);
        }
    }
}
