//! `riglm import`: sections of the configuration from the export of another gateway.
//!
//! The sections are printed, and nothing is written to a file. Values of environment variables,
//! headers and tokens may be secrets, so the sections refer to variables instead, unless the values
//! are asked for.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use riglm_domain::id::UpstreamName;
use serde::Deserialize;

use crate::args::{ImportCommand, MetaMcpImportArgs};
use crate::exit::WrongUsage;
use crate::output::{note, print, printable};

/// The maximum size of an export.
const MAX_BYTES: u64 = 16 << 20;
/// The maximum length of the name of an upstream.
const MAX_NAME: usize = 64;

/// The export of the servers of `MetaMCP`, a JSON object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaMcpExport {
    mcp_servers: BTreeMap<String, ExportedServer>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct ExportedServer {
    r#type: Option<String>,
    description: Option<String>,
    command: Option<String>,
    args: Vec<String>,
    env: BTreeMap<String, String>,
    url: Option<String>,
    bearer_token: Option<String>,
    headers: BTreeMap<String, String>,
}

/// The way in which secrets are printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Secrets {
    /// As references to variables.
    Referred,
    /// With their values.
    Printed,
}

/// The reason why riglm cannot use a server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum UnusableServer {
    #[error("it has no command")]
    NoCommand,
    #[error("it has no http or https address")]
    NoAddress,
    #[error("its type {0:?} is unknown")]
    UnknownType(String),
}

/// The imported sections.
#[derive(Debug, Default)]
struct ImportedSections {
    /// The TOML text.
    text: String,
    /// The variables that the sections refer to.
    variables: BTreeSet<String>,
    /// Sentences about servers that were changed or left out.
    notes: Vec<String>,
    n_upstreams: usize,
}

/// Runs the command.
///
/// # Errors
///
/// Returns [`WrongUsage`] for a file that cannot be read, or is no export.
pub(super) fn run(command: &ImportCommand) -> anyhow::Result<()> {
    let ImportCommand::Metamcp(arguments) = command;
    let text = read(&arguments.file)?;
    let export: MetaMcpExport = serde_json::from_str(&text).map_err(|error| {
        let file = arguments.file.display();
        WrongUsage(format!("{file} is no export of MetaMCP: {error}"))
    })?;
    let sections = import(&export, secrets(arguments));
    for text in &sections.notes {
        note(&printable(text));
    }
    if sections.n_upstreams == 0 {
        let file = arguments.file.display();
        return Err(WrongUsage(format!("{file} has no server that riglm can use")).into());
    }
    if !sections.variables.is_empty() {
        let variables: Vec<&str> = sections.variables.iter().map(String::as_str).collect();
        note(&format!(
            "set these variables for riglm, with the values of the export: {}",
            variables.join(", ")
        ));
    }
    print(&sections.text)?;
    Ok(())
}

fn secrets(arguments: &MetaMcpImportArgs) -> Secrets {
    if arguments.with_secrets {
        Secrets::Printed
    } else {
        Secrets::Referred
    }
}

/// Reads a file, or standard input for `-`.
fn read(file: &Path) -> anyhow::Result<String> {
    let mut text = String::new();
    let read = if file == Path::new("-") {
        std::io::stdin()
            .lock()
            .take(MAX_BYTES + 1)
            .read_to_string(&mut text)
    } else {
        std::fs::File::open(file)
            .and_then(|opened| opened.take(MAX_BYTES + 1).read_to_string(&mut text))
    };
    read.with_context(|| format!("failed to read {}", file.display()))
        .map_err(|error| WrongUsage(format!("{error:#}")))?;
    if text.len() as u64 > MAX_BYTES {
        let file = file.display();
        return Err(WrongUsage(format!("{file} has more than {MAX_BYTES} bytes")).into());
    }
    Ok(text)
}

fn import(export: &MetaMcpExport, secrets: Secrets) -> ImportedSections {
    let mut sections = ImportedSections::default();
    let mut names: BTreeMap<String, String> = BTreeMap::new();
    for (original, server) in &export.mcp_servers {
        let Some(name) = upstream_name(original) else {
            let text =
                format!("{original:?} was left out: no name for an upstream can be made of it");
            sections.notes.push(text);
            continue;
        };
        let key = comparison_key(name.as_str());
        if let Some(other) = names.get(&key) {
            let text = format!("{original:?} was left out: its name is too similar to {other:?}");
            sections.notes.push(text);
            continue;
        }
        let mut writer = SectionWriter {
            name: &name,
            secrets,
            variables: &mut sections.variables,
        };
        match writer.section(server) {
            Ok(text) => {
                if name.as_str() != original {
                    let text = format!("{original:?} has the name {:?} now", name.as_str());
                    sections.notes.push(text);
                }
                names.insert(key, original.clone());
                sections.n_upstreams += 1;
                if !sections.text.is_empty() {
                    sections.text.push('\n');
                }
                sections.text += &text;
            }
            Err(reason) => {
                let text = format!("{original:?} was left out: {reason}");
                sections.notes.push(text);
            }
        }
    }
    sections
}

/// The writer of the section of one upstream.
struct SectionWriter<'a> {
    name: &'a UpstreamName,
    secrets: Secrets,
    variables: &'a mut BTreeSet<String>,
}

impl SectionWriter<'_> {
    /// Returns the section of a server, or the reason why riglm cannot use it.
    fn section(&mut self, server: &ExportedServer) -> Result<String, UnusableServer> {
        let mut text = String::new();
        for line in server.description.iter().flat_map(|it| it.lines()) {
            let _ = writeln!(text, "# {}", printable(line));
        }
        let _ = writeln!(text, "[upstreams.{}]", quote(self.name.as_str()));
        let is_url = server.command.is_none() && server.url.is_some();
        let kind = server.r#type.as_deref().map(str::to_ascii_uppercase);
        match kind.as_deref() {
            Some("STDIO") => self.command(server, &mut text)?,
            None if !is_url => self.command(server, &mut text)?,
            Some("STREAMABLE_HTTP" | "SSE") | None => {
                self.address(server, kind.as_deref() == Some("SSE"), &mut text)?;
            }
            Some(other) => return Err(UnusableServer::UnknownType(other.to_owned())),
        }
        Ok(text)
    }

    fn command(
        &mut self,
        server: &ExportedServer,
        text: &mut String,
    ) -> Result<(), UnusableServer> {
        let command = server.command.as_deref().filter(|it| !it.trim().is_empty());
        let command = command.ok_or(UnusableServer::NoCommand)?;
        let words = std::iter::once(command).chain(server.args.iter().map(String::as_str));
        let words: Vec<String> = words.map(|word| quote(&literal(word))).collect();
        let _ = writeln!(text, "command = [{}]", words.join(", "));
        self.table("env", &server.env, text);
        Ok(())
    }

    fn address(
        &mut self,
        server: &ExportedServer,
        is_sse: bool,
        text: &mut String,
    ) -> Result<(), UnusableServer> {
        let url = server.url.as_deref().unwrap_or_default().trim();
        if !url.starts_with("http://") && !url.starts_with("https://") {
            return Err(UnusableServer::NoAddress);
        }
        let scheme = if is_sse { "sse+" } else { "" };
        let _ = writeln!(text, "url = {}", quote(&literal(&format!("{scheme}{url}"))));
        let mut headers = server.headers.clone();
        let mut token = server.bearer_token.clone().filter(|it| !it.is_empty());
        headers.retain(|name, value| {
            let bearer = value
                .strip_prefix("Bearer ")
                .filter(|_| name.eq_ignore_ascii_case("authorization"));
            match bearer {
                Some(bearer) => {
                    token.get_or_insert_with(|| bearer.trim().to_owned());
                    false
                }
                None => true,
            }
        });
        if let Some(token) = token {
            let token = self.secret("token", &token);
            let _ = writeln!(
                text,
                "credentials = {{ type = \"bearer\", token = {token} }}"
            );
        }
        self.table("headers", &headers, text);
        Ok(())
    }

    fn table(&mut self, key: &str, values: &BTreeMap<String, String>, text: &mut String) {
        if values.is_empty() {
            return;
        }
        let entries: Vec<String> = values
            .iter()
            .map(|(name, value)| format!("{} = {}", quote(name), self.secret(name, value)))
            .collect();
        let _ = writeln!(text, "{key} = {{ {} }}", entries.join(", "));
    }

    /// Returns the TOML string of a value that may be a secret.
    fn secret(&mut self, name: &str, value: &str) -> String {
        if self.secrets == Secrets::Printed {
            return quote(&literal(value));
        }
        let upper = |text: &str| -> String {
            let upper = |c: char| {
                if c.is_ascii_alphanumeric() {
                    c.to_ascii_uppercase()
                } else {
                    '_'
                }
            };
            text.chars().map(upper).collect()
        };
        let variable = format!("{}_{}", upper(self.name.as_str()), upper(name));
        let reference = format!("${{{variable}}}");
        self.variables.insert(variable);
        quote(&reference)
    }
}

/// Returns the name of an upstream for the name of a server; `None` if nothing is left of it.
fn upstream_name(original: &str) -> Option<UpstreamName> {
    let is_fine = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    let mut name = String::new();
    for c in original.chars().take(MAX_NAME) {
        let c = if is_fine(&c) { c } else { '-' };
        // Two of them would separate the name from that of a tool.
        let is_double = matches!(c, '_' | '.') && name.ends_with(['_', '.']);
        if !is_double {
            name.push(c);
        }
    }
    let name = name.trim_end_matches(['_', '.']);
    UpstreamName::parse(name).ok()
}

/// Returns the form of a name in which equal names are too similar for two upstreams.
fn comparison_key(name: &str) -> String {
    let counts = |c: &char| !matches!(c, '.' | '-' | '_');
    name.chars()
        .filter(counts)
        .collect::<String>()
        .to_lowercase()
}

/// Returns a value that has no references to variables.
fn literal(value: &str) -> String {
    value.replace("${", "$${")
}

/// Returns a text as a basic string of TOML.
fn quote(text: &str) -> String {
    let mut quoted = String::from("\"");
    for c in text.chars() {
        match c {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imported(json: &str, secrets: Secrets) -> ImportedSections {
        import(&serde_json::from_str(json).unwrap(), secrets)
    }

    #[test]
    fn each_kind_of_server_becomes_a_section() {
        let sections = imported(
            r#"{"mcpServers":{
                "files":{"type":"STDIO","description":"Two\nlines","command":"npx","args":["-y","a\"b"],
                    "env":{"API_KEY":"secret"}},
                "old":{"type":"sse","url":"https://a.example/sse","bearerToken":"secret"},
                "web":{"type":"STREAMABLE_HTTP","url":"https://b.example/mcp",
                    "headers":{"Authorization":"Bearer secret","X-Team":"secret"}}}}"#,
            Secrets::Referred,
        );
        assert_eq!(
            sections.text,
            r#"# Two
# lines
[upstreams."files"]
command = ["npx", "-y", "a\"b"]
env = { "API_KEY" = "${FILES_API_KEY}" }

[upstreams."old"]
url = "sse+https://a.example/sse"
credentials = { type = "bearer", token = "${OLD_TOKEN}" }

[upstreams."web"]
url = "https://b.example/mcp"
credentials = { type = "bearer", token = "${WEB_TOKEN}" }
headers = { "X-Team" = "${WEB_X_TEAM}" }
"#
        );
        let variables: Vec<&str> = sections.variables.iter().map(String::as_str).collect();
        let expected = ["FILES_API_KEY", "OLD_TOKEN", "WEB_TOKEN", "WEB_X_TEAM"];
        assert_eq!(variables, expected);
        assert!(sections.notes.is_empty());
    }

    #[test]
    fn values_are_printed_on_request_and_refer_to_nothing() {
        let sections = imported(
            r#"{"mcpServers":{"a":{"command":"run","args":["${HOME}"],"env":{"K":"\u0001${X}"}}}}"#,
            Secrets::Printed,
        );
        let expected = "[upstreams.\"a\"]\ncommand = [\"run\", \"$${HOME}\"]\n\
                        env = { \"K\" = \"\\u0001$${X}\" }\n";
        assert_eq!(sections.text, expected);
        assert!(sections.variables.is_empty());
    }

    #[test]
    fn servers_that_cannot_be_used_are_named_with_the_reason() {
        let sections = imported(
            r#"{"mcpServers":{
                "__":{"command":"a"}, "bad":{"type":"WS","url":"ws://x"}, "empty":{},
                "my server__x_":{"command":"a"}, "my-server-x":{"command":"a"},
                "no":{"type":"SSE","url":"ftp://x"}}}"#,
            Secrets::Referred,
        );
        assert_eq!(sections.n_upstreams, 1);
        assert!(sections.text.starts_with("[upstreams.\"my-server_x\"]"));
        assert_eq!(
            sections.notes,
            [
                "\"__\" was left out: no name for an upstream can be made of it",
                "\"bad\" was left out: its type \"WS\" is unknown",
                "\"empty\" was left out: it has no command",
                "\"my server__x_\" has the name \"my-server_x\" now",
                "\"my-server-x\" was left out: its name is too similar to \"my server__x_\"",
                "\"no\" was left out: it has no http or https address",
            ]
        );
    }
}
