//! The format of a file of unknown origin: that of a client, or of another gateway.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::{
    ANY_DIALECT, ConfiguredServers, ReadContext, ServerCollector, members, read_servers, toolhive,
};
use crate::configuration::client::{Client, Dialect, ReferenceSyntax};
use crate::configuration::document::{self, DocumentError, DocumentFormat};
use crate::configuration::identity::AddressParts;
use crate::configuration::server::{ConfiguredServer, ConfiguredTransport};
use crate::configuration::table;

/// The format of a file with servers.
#[derive(Clone, Copy, Debug)]
pub enum ImportFormat {
    /// The file of a client.
    Client(&'static Client),
    /// An object `mcpServers`, as several gateways and documents of servers have it.
    McpServers(DocumentFormat),
    /// An object `servers`.
    Servers(DocumentFormat),
    /// A list `mcpServers` in JSON, as mcpproxy has it.
    McpServersList(DocumentFormat),
    /// The settings of VS Code before mid-2025, with an object `servers` under `mcp`.
    CodeSettings,
    /// An object with the names of servers as keys.
    PlainMap(DocumentFormat),
    /// Lists `targets` under a key `mcp`, as agentgateway has them.
    Targets(DocumentFormat),
    /// An object `backends`, as mcp-gateway has it.
    Backends(DocumentFormat),
    /// A run configuration of `ToolHive`, which has one server.
    RunConfig(DocumentFormat),
}

/// The reason why a file cannot be imported.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    /// The text is malformed.
    #[error("the file is malformed")]
    Document(#[from] DocumentError),
    /// There is no known list of servers in it.
    #[error("the file has no servers in a known format")]
    UnknownFormat,
}

impl ImportFormat {
    /// Guesses the format of a file from its path and its contents.
    ///
    /// # Errors
    ///
    /// Returns [`ImportError`] if the text is malformed, or has no servers.
    pub fn guess(path: &Path, text: &str) -> Result<Self, ImportError> {
        let (format, value) = parse(path, text)?;
        if let Some(client) = client_of_path(path, &value) {
            return Ok(Self::Client(client));
        }
        let client = |id| table::client(id).map(ImportFormat::Client);
        let has = |key: &str| value.get(key).is_some_and(|it| !it.is_null());
        let is_list = |key: &str| value.get(key).is_some_and(Value::is_array);
        let is_map = |key: &str| value.get(key).is_some_and(Value::is_object);
        let guess = if toolhive::is_run_config(&value) {
            Some(Self::RunConfig(format))
        } else if has("context_servers") {
            client("zed")
        } else if has("amp.mcpServers") {
            client("amp")
        } else if is_map("extensions") && format == DocumentFormat::Yaml {
            client("goose")
        } else if is_list("mcp_servers") {
            client("vibe")
        } else if has("mcp_servers") {
            client(if format == DocumentFormat::Toml {
                "codex"
            } else {
                "hermes"
            })
        } else if is_list("mcpServers") {
            match format {
                DocumentFormat::Yaml => client("continue"),
                _ => Some(Self::McpServersList(format)),
            }
        } else if is_map("mcpServers") {
            owner(&value).or(Some(Self::McpServers(format)))
        } else if is_map("servers") {
            match format {
                DocumentFormat::Json | DocumentFormat::JsonWithComments => client("vscode"),
                _ => Some(Self::Servers(format)),
            }
        } else if is_map("backends") {
            Some(Self::Backends(format))
        } else if value["mcp"]["servers"].is_object() {
            Some(Self::CodeSettings)
        } else if !targets(&value, 0).is_empty() {
            Some(Self::Targets(format))
        } else if is_map("mcp") && members(&value["mcp"]).any(|(_, entry)| is_server(entry)) {
            let kinds = members(&value["mcp"]).map(|(_, entry)| &entry["type"]);
            let is_local = |kind: &Value| kind == "local" || kind == "remote";
            client(if kinds.into_iter().any(is_local) {
                "opencode"
            } else {
                "crush"
            })
        } else {
            let mut entries = members(&value).peekable();
            let is_plain = entries.peek().is_some() && entries.all(|(_, entry)| is_server(entry));
            is_plain.then_some(Self::PlainMap(format))
        };
        guess.ok_or(ImportError::UnknownFormat)
    }

    /// Returns the name of the format for messages.
    pub fn title(self) -> &'static str {
        match self {
            Self::Client(client) => client.title,
            Self::McpServers(_) => "mcpServers",
            Self::Servers(_) => "servers",
            Self::McpServersList(_) => "mcpproxy",
            Self::CodeSettings => "settings of VS Code",
            Self::PlainMap(_) => "a map of servers",
            Self::Targets(_) => "agentgateway",
            Self::Backends(_) => "mcp-gateway",
            Self::RunConfig(_) => toolhive::TITLE,
        }
    }

    /// Returns whether one of several servers has the address at which a gateway offers the server of
    /// a file in this format. A remote server has another address in the file.
    pub fn is_offered_among<'a>(
        self,
        text: &str,
        servers: impl IntoIterator<Item = &'a ConfiguredServer>,
    ) -> bool {
        let Self::RunConfig(format) = self else {
            return false;
        };
        let Ok(contents) = document::read(text, format) else {
            return false;
        };
        let Some(own) = toolhive::own_address(&contents.value) else {
            return false;
        };
        // The path says nothing: one port has one server.
        let authority = |address: &str| AddressParts::parse(address).map(|parts| parts.authority);
        let own = authority(&own);
        servers.into_iter().any(|server| match &server.transport {
            ConfiguredTransport::Url(url) => authority(&url.url) == own,
            ConfiguredTransport::Command(_) | ConfiguredTransport::Unusable(_) => false,
        })
    }

    /// Reads the servers of a file in this format.
    ///
    /// # Errors
    ///
    /// Returns [`DocumentError`] if the text is malformed as a whole.
    pub fn read(
        self,
        text: &str,
        context: ReadContext<'_>,
    ) -> Result<ConfiguredServers, DocumentError> {
        let (format, dialect) = match self {
            Self::Client(client) => return read_servers(text, client, context),
            Self::McpServers(format)
            | Self::Servers(format)
            | Self::McpServersList(format)
            | Self::PlainMap(format)
            | Self::Backends(format)
            | Self::RunConfig(format) => (format, &ANY_DIALECT),
            Self::Targets(format) => (format, &SHELL_DIALECT),
            Self::CodeSettings => (DocumentFormat::JsonWithComments, &ANY_DIALECT),
        };
        let value = document::read(text, format)?.value;
        let mut reader = ServerCollector::new(dialect, context);
        match self {
            Self::Client(_) => {}
            Self::McpServers(_) => reader.add_map("mcpServers", &value["mcpServers"]),
            Self::Servers(_) => reader.add_map("servers", &value["servers"]),
            Self::McpServersList(_) => reader.add_list("mcpServers", &value["mcpServers"]),
            Self::CodeSettings => reader.add_map("mcp.servers", &value["mcp"]["servers"]),
            Self::PlainMap(_) => reader.add_map("the file", &value),
            Self::RunConfig(_) => {
                let server = toolhive::server_of(&value, context.riglm);
                reader.servers.servers.push(server);
            }
            Self::Backends(_) => {
                for (name, entry) in members(&value["backends"]) {
                    reader.add(name, &with_split_command(entry));
                }
            }
            Self::Targets(_) => {
                for target in targets(&value, 0) {
                    let name = target.get("name").and_then(Value::as_str);
                    reader.add(name.unwrap_or("server"), &from_target(target));
                }
            }
        }
        Ok(reader.servers)
    }
}

/// The references in files of agentgateway.
const SHELL_DIALECT: Dialect = Dialect {
    references: &[ReferenceSyntax::Braces, ReferenceSyntax::Dollar],
    ..ANY_DIALECT
};

/// The maximum depth at which targets are looked for.
const MAX_TARGET_DEPTH: usize = 16;

/// Parses a text by the extension of its file, or by trial.
fn parse(path: &Path, text: &str) -> Result<(DocumentFormat, Value), DocumentError> {
    let extension = path.extension().unwrap_or_default().to_string_lossy();
    let formats: &[DocumentFormat] = match extension.to_ascii_lowercase().as_str() {
        "toml" => &[DocumentFormat::Toml],
        "yaml" | "yml" => &[DocumentFormat::Yaml],
        "json" | "jsonc" | "json5" => &[DocumentFormat::JsonWithComments],
        _ => &[
            DocumentFormat::JsonWithComments,
            DocumentFormat::Toml,
            DocumentFormat::Yaml,
        ],
    };
    let mut first_error = None;
    for format in formats {
        match document::read(text, *format) {
            Ok(contents) => return Ok((*format, contents.value)),
            Err(error) => first_error = first_error.or(Some(error)),
        }
    }
    Err(first_error.unwrap_or(DocumentError::TooManyValues))
}

/// Returns the client whose file has a path, if the document has its key.
fn client_of_path(path: &Path, document: &Value) -> Option<&'static Client> {
    let path = path.to_string_lossy().replace('\\', "/");
    let is_end = |template: &&'static str| {
        let Some((_, end)) = template.split_once('/') else {
            return false;
        };
        // A name alone says little, unless it is hidden.
        let is_telling = (end.contains('/') || end.starts_with('.')) && !end.contains('*');
        let before = path.strip_suffix(end);
        is_telling && before.is_some_and(|before| before.is_empty() || before.ends_with('/'))
    };
    table::clients().find(|client| {
        let places = client.files.iter();
        let mut templates = places.flat_map(|it| it.linux.iter().chain(it.macos).chain(it.windows));
        document.get(client.map.key).is_some() && templates.any(is_end)
    })
}

/// Returns the client whose file an object `mcpServers` comes from, if a key says so.
fn owner(value: &Value) -> Option<ImportFormat> {
    let has_member = |key: &str| members(&value["mcpServers"]).any(|(_, it)| it.get(key).is_some());
    let is_streamable =
        || members(&value["mcpServers"]).any(|(_, it)| it["type"] == "streamableHttp");
    let id = if value.get("projects").is_some() || has_member("headersHelper") {
        "claude-code"
    } else if has_member("httpUrl") {
        "gemini"
    } else if has_member("serverUrl") {
        "windsurf"
    } else if is_streamable() {
        "cline"
    } else {
        return None;
    };
    table::client(id).map(ImportFormat::Client)
}

/// Returns whether a value looks like the entry of a server.
fn is_server(value: &Value) -> bool {
    let keys = ["command", "cmd", "url", "httpUrl", "serverUrl", "uri"];
    keys.iter().any(|key| value.get(key).is_some())
}

/// Returns the targets under all keys `mcp`.
fn targets(value: &Value, depth: usize) -> Vec<&Value> {
    if depth > MAX_TARGET_DEPTH {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (key, inner) in members(value) {
        match inner.get("targets").and_then(Value::as_array) {
            Some(list) if key == "mcp" => found.extend(list),
            _ => found.extend(targets(inner, depth + 1)),
        }
    }
    for inner in value.as_array().into_iter().flatten() {
        found.extend(targets(inner, depth + 1));
    }
    found
}

/// Returns a target in the notation of most clients.
fn from_target(target: &Value) -> Value {
    if let Some(command) = target.get("stdio") {
        return command.clone();
    }
    for (key, kind) in [("mcp", "http"), ("sse", "sse")] {
        let Some(address) = target.get(key) else {
            continue;
        };
        let host = address["host"].as_str().unwrap_or_default();
        let url = if host.contains("://") {
            host.to_owned()
        } else {
            let port = &address["port"];
            let scheme = if *port == 443 { "https" } else { "http" };
            let port = port.as_u64().map(|port| format!(":{port}"));
            let path = address["path"].as_str().unwrap_or("/mcp");
            let slash = if path.starts_with('/') { "" } else { "/" };
            format!("{scheme}://{host}{}{slash}{path}", port.unwrap_or_default())
        };
        return json!({ "type": kind, "url": url });
    }
    // An OpenAPI target is no MCP server.
    Value::Object(Map::new())
}

/// Returns an entry whose command is a list of words instead of one line.
fn with_split_command(entry: &Value) -> Value {
    let mut entry = entry.clone();
    if let Some(line) = entry.get("command").and_then(Value::as_str)
        && entry.get("args").is_none()
    {
        entry["command"] = split_words(line).into();
    }
    entry
}

/// Splits a line at white space, except in quotes.
fn split_words(line: &str) -> Vec<String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote: Option<char> = None;
    for c in line.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if matches!(c, '"' | '\'') => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    words
}
