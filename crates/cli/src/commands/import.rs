//! `riglm import`: upstreams from the files of MCP clients and of other gateways.
//!
//! Servers of clients are added to the configuration ([`plan`]). Those in an export of `MetaMCP` are
//! printed as sections, and nothing is written to a file. Values of environment variables,
//! headers and tokens may be secrets, so the sections refer to variables instead, unless the values
//! are asked for. The same applies to recognised secrets in arguments and addresses. What may be one
//! is printed, and named in a note.

pub(super) mod connection;
mod listen;
pub(super) mod plan;
pub(super) mod programs;
mod secrets;
mod sections;
pub(super) mod sources;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::io::Read as _;
use std::path::Path;

use anyhow::Context as _;
use riglm_domain::id::UpstreamName;
use serde::Deserialize;
use serde_json::{Map, Value};

use self::plan::{ImportPlan, ImportTarget};
use self::secrets::{SecretWriter, Secrets, literal, references};
use self::sources::read_sources;
use super::confirmation::is_confirmed;
use super::user_clients::UserClients;
use crate::args::{ImportArgs, ImportCommand};
use crate::config::{comparison_key, name_problem};
use crate::exit::WrongUsage;
use crate::output::{note, number_of, print, printable};

/// The maximum size of an export.
const MAX_BYTES: u64 = 16 << 20;
/// The maximum length of the name of an upstream.
const MAX_NAME: usize = 64;

/// The export of the servers of `MetaMCP`, a JSON object.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct MetaMcpExport {
    /// The servers, each of which may be malformed.
    mcp_servers: BTreeMap<String, Value>,
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

/// The reason why riglm cannot use a server.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
enum UnusableServer {
    #[error("it is no object")]
    NoObject,
    #[error("the value of {0:?} is malformed")]
    Malformed(String),
    #[error("no name for an upstream can be made of it")]
    NoName,
    #[error("its name is too similar to {0:?}")]
    SimilarName(String),
    #[error("it has no command")]
    NoCommand,
    #[error("it has no http or https address")]
    NoAddress,
    #[error("its type {0:?} is unknown")]
    UnknownType(String),
}

impl ExportedServer {
    /// Reads a server. The error names the wrong member, not its value, which may be a secret.
    fn read(exported: &Value) -> Result<Self, UnusableServer> {
        let members = exported.as_object().ok_or(UnusableServer::NoObject)?;
        let read = |members: Map<String, Value>| Self::deserialize(Value::Object(members)).ok();
        // A member that is null counts as absent.
        let members: Map<String, Value> = (members.clone().into_iter())
            .filter(|(_, value)| !value.is_null())
            .collect();
        let is_wrong = |(key, value): &(&String, &Value)| {
            let alone = Map::from_iter([((*key).clone(), (*value).clone())]);
            read(alone).is_none()
        };
        if let Some((key, _)) = members.iter().find(is_wrong) {
            return Err(UnusableServer::Malformed(key.clone()));
        }
        read(members).ok_or(UnusableServer::NoObject)
    }
}

#[derive(Debug, Default)]
struct ImportedSections {
    text: String,
    /// The variables for values of the export, each with the place of its value if the name does not
    /// say it.
    variables: BTreeMap<String, Option<String>>,
    /// The variables that the export itself refers to.
    references: BTreeSet<String>,
    values: BTreeMap<String, String>,
    /// Sentences about servers that were changed or left out.
    notes: Vec<String>,
    n_upstreams: usize,
}

/// Adds servers to the configuration, after a confirmation.
///
/// # Errors
///
/// Returns [`WrongUsage`] for wrong names and files, and the error of writing.
pub(super) fn run(target: ImportTarget<'_>, arguments: &ImportArgs) -> anyhow::Result<()> {
    let users = UserClients::new(target.config, target.process, &arguments.home)?;
    let servers = read_sources(&users, &arguments.from)?;
    if servers.files.is_empty() {
        note("no file of an MCP client was found (riglm import --from FILE reads one)");
    }
    let plan = ImportPlan::new(target, servers, arguments.scope)?;
    for remark in plan.remarks() {
        note(&remark);
    }
    let is_json = arguments.change.format.is_json();
    if let Some(preview) = plan.preview().filter(|_| !is_json) {
        print(&preview)?;
    }
    let is_wanted = !arguments.change.dry_run && !plan.upstreams.is_empty();
    let is_written = is_wanted && {
        let upstreams = number_of(plan.upstreams.len(), "upstream");
        let question = format!("add {upstreams} to {}?", plan.file.display());
        is_confirmed(&arguments.change, &question)?
    };
    if is_written {
        plan.apply(target)?;
    }
    if is_json {
        let mut json = plan.as_json();
        json["written"] = is_written.into();
        print(&json.to_string())?;
    } else if is_written {
        let verb = if plan.upstreams.len() == 1 {
            "was"
        } else {
            "were"
        };
        let upstreams = number_of(plan.upstreams.len(), "upstream");
        note(&format!(
            "{upstreams} {verb} added to {}",
            plan.file.display()
        ));
    } else if plan.upstreams.is_empty() {
        note("there is no new server to import");
    } else {
        note("nothing was written");
    }
    Ok(())
}

/// Prints the servers in the export of a gateway.
///
/// # Errors
///
/// Returns [`WrongUsage`] for a file that cannot be read, or is no export.
pub(super) fn print_export(command: &ImportCommand) -> anyhow::Result<()> {
    let ImportCommand::Metamcp(arguments) = command;
    let text = read(&arguments.file)?;
    let export: MetaMcpExport = serde_json::from_str(&text).map_err(|error| {
        let file = arguments.file.display();
        WrongUsage(format!("{file} is no export of MetaMCP: {error}"))
    })?;
    let secrets = if arguments.with_secrets {
        Secrets::Printed
    } else {
        Secrets::Referred
    };
    let sections = import(&export, secrets);
    for text in sections.all_notes() {
        note(&printable(&text));
    }
    if sections.n_upstreams == 0 {
        let file = arguments.file.display();
        return Err(WrongUsage(format!("{file} has no server that riglm can use")).into());
    }
    print(&sections.text)?;
    Ok(())
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
    let servers: Vec<(&String, Result<ExportedServer, UnusableServer>)> =
        (export.mcp_servers.iter())
            .map(|(name, server)| (name, ExportedServer::read(server)))
            .collect();
    // New variables must not have a name that the export already refers to.
    let references = (servers
        .iter()
        .filter_map(|(_, server)| server.as_ref().ok()))
    .flat_map(|server| server.env.values())
    .flat_map(|value| references(value));
    let mut sections = ImportedSections {
        references: references.map(str::to_owned).collect(),
        ..ImportedSections::default()
    };
    let mut names: BTreeMap<String, &str> = BTreeMap::new();
    for (original, server) in servers {
        if let Err(reason) = sections.add(original, server, secrets, &mut names) {
            let text = format!("{original:?} was left out: {reason}");
            sections.notes.push(text);
        }
    }
    sections
}

impl ImportedSections {
    /// Adds the section of a server, or returns the reason why there is none.
    fn add<'a>(
        &mut self,
        original: &'a str,
        server: Result<ExportedServer, UnusableServer>,
        secrets: Secrets,
        names: &mut BTreeMap<String, &'a str>,
    ) -> Result<(), UnusableServer> {
        let server = server?;
        let name = upstream_name(original).ok_or(UnusableServer::NoName)?;
        let key = comparison_key(&name);
        if let Some(other) = names.get(&key) {
            return Err(UnusableServer::SimilarName((*other).to_owned()));
        }
        let mut writer = SectionWriter {
            name: &name,
            secrets: SecretWriter {
                server: name.as_str(),
                secrets,
                variables: &mut self.variables,
                values: &mut self.values,
                references: &self.references,
                notes: &mut self.notes,
            },
        };
        let text = writer.section(&server)?;
        if name.as_str() != original {
            let text = format!("{original:?} has the name {:?} now", name.as_str());
            self.notes.push(text);
        }
        names.insert(key, original);
        self.n_upstreams += 1;
        if !self.text.is_empty() {
            self.text.push('\n');
        }
        self.text += &text;
        Ok(())
    }

    /// Returns all notes, those about variables last.
    fn all_notes(&self) -> Vec<String> {
        let mut notes = self.notes.clone();
        let variables = self.variables.iter().map(|(name, place)| match place {
            Some(place) => format!("{name} ({place})"),
            None => name.clone(),
        });
        let variables: Vec<String> = variables.collect();
        let references: Vec<&str> = self.references.iter().map(String::as_str).collect();
        for (variables, values) in [
            (variables.join(", "), "with the values of the export"),
            (references.join(", "), "as for MetaMCP"),
        ] {
            if !variables.is_empty() {
                notes.push(format!(
                    "set these variables for riglm, {values}: {variables}"
                ));
            }
        }
        notes
    }
}

struct SectionWriter<'a> {
    name: &'a UpstreamName,
    secrets: SecretWriter<'a>,
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
        let arguments = self.secrets.arguments(&server.args);
        let words = std::iter::once(literal(command)).chain(arguments);
        let words: Vec<String> = words.map(|word| quote(&word)).collect();
        let _ = writeln!(text, "command = [{}]", words.join(", "));
        // Only here, MetaMCP replaces references to variables.
        let entry = |(name, value): (&String, &String)| {
            let value = self.secrets.template(name, value);
            format!("{} = {}", quote(name), quote(&value))
        };
        let entries: Vec<String> = server.env.iter().map(entry).collect();
        write_table("env", &entries, text);
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
        let url = self.secrets.address(url, "the address");
        let _ = writeln!(text, "url = {}", quote(&format!("{scheme}{url}")));
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
            let token = quote(&self.secrets.value("token", &token));
            let _ = writeln!(
                text,
                "credentials = {{ type = \"bearer\", token = {token} }}"
            );
        }
        let entry = |(name, value): (&String, &String)| {
            let value = self.secrets.value(name, value);
            format!("{} = {}", quote(name), quote(&value))
        };
        let entries: Vec<String> = headers.iter().map(entry).collect();
        write_table("headers", &entries, text);
        Ok(())
    }
}

fn write_table(key: &str, entries: &[String], text: &mut String) {
    if !entries.is_empty() {
        let _ = writeln!(text, "{key} = {{ {} }}", entries.join(", "));
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
    let name = UpstreamName::parse(name.trim_end_matches(['_', '.'])).ok()?;
    name_problem(&name).is_none().then_some(name)
}

/// Returns a text as a basic string of TOML.
pub(super) fn quote(text: &str) -> String {
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
        let variables: Vec<&str> = sections.variables.keys().map(String::as_str).collect();
        let expected = ["FILES_API_KEY", "OLD_TOKEN", "WEB_TOKEN", "WEB_X_TEAM"];
        assert_eq!(variables, expected);
        assert!(sections.notes.is_empty());
    }

    #[test]
    fn values_are_printed_on_request_and_references_stay() {
        let sections = imported(
            r#"{"mcpServers":{"a":{"command":"run","args":["${HOME}"],"env":{"K":"\u0001${X}"}}}}"#,
            Secrets::Printed,
        );
        let expected = "[upstreams.\"a\"]\ncommand = [\"run\", \"$${HOME}\"]\n\
                        env = { \"K\" = \"\\u0001${X}\" }\n";
        assert_eq!(sections.text, expected);
        assert!(sections.variables.is_empty());
        assert_eq!(
            sections.all_notes(),
            ["set these variables for riglm, as for MetaMCP: X"]
        );
    }

    #[test]
    fn references_in_variables_stay_references() {
        let sections = imported(
            r#"{"mcpServers":{"a":{"command":"run","env":{
                "ONE":"${GITHUB_TOKEN}", "TWO":"Bearer ${A_TWO}", "THREE":"${1X} ${",
                "FOUR":"sk-0123456789abcdef ${GITHUB_TOKEN}", "FIVE":"${A_SIX}", "SIX":"x"}}}}"#,
            Secrets::Referred,
        );
        for expected in [
            r#""ONE" = "${GITHUB_TOKEN}""#,
            r#""TWO" = "Bearer ${A_TWO}""#,
            r#""THREE" = "${A_THREE}""#,
            r#""FOUR" = "${A_FOUR}""#,
            r#""FIVE" = "${A_SIX}""#,
            // The export has given the obvious name to another variable.
            r#""SIX" = "${A_SIX_2}""#,
        ] {
            assert!(sections.text.contains(expected), "{}", sections.text);
        }
        assert_eq!(
            sections.all_notes(),
            [
                "set these variables for riglm, with the values of the export: A_FOUR, A_SIX_2, \
                 A_THREE",
                "set these variables for riglm, as for MetaMCP: A_SIX, A_TWO, GITHUB_TOKEN",
            ]
        );
    }

    #[test]
    fn each_value_has_a_variable_of_its_own_with_a_valid_name() {
        let sections = imported(
            r#"{"mcpServers":{
                "1password":{"command":"run","env":{"KEY":"1"}},
                "a":{"command":"run","env":{"b_c":"2"}},
                "a-b":{"command":"run","env":{"c":"3","C":"4"}},
                "riglm":{"url":"https://x.example","headers":{"_listen":"5"}}}}"#,
            Secrets::Referred,
        );
        let variables: Vec<&str> = sections.variables.keys().map(String::as_str).collect();
        let expected = [
            "A_B_C",
            "A_B_C_2",
            "A_B_C_3",
            "SERVER_1PASSWORD_KEY",
            "SERVER_RIGLM__LISTEN",
        ];
        assert_eq!(variables, expected);
        for variable in expected {
            let reference = format!("${{{variable}}}");
            assert_eq!(sections.text.matches(&reference).count(), 1, "{variable}");
        }
    }

    #[test]
    fn recognised_secrets_in_arguments_and_addresses_become_variables() {
        let sections = imported(
            r#"{"mcpServers":{
                "db":{"command":"npx","args":["server-postgres","postgres://me:pw1@host/db",
                    "--api-key","pw2","--token=pw3","--header","Authorization: Bearer pw4",
                    "sk-pw5-0123456789","--verbose","--port=80"]},
                "web":{"url":"https://u:pw6@x.example/sk-pw7-0123456789/mcp?apiKey=pw8&v=2#top"}}}"#,
            Secrets::Referred,
        );
        assert!(!sections.text.contains("pw"), "{}", sections.text);
        assert_eq!(
            sections.text,
            r#"[upstreams."db"]
command = ["npx", "server-postgres", "postgres://me:${DB_PASSWORD}@host/db", "--api-key", "${DB_API_KEY}", "--token=${DB_TOKEN}", "--header", "Authorization: ${DB_AUTHORIZATION}", "${DB_ARG_8}", "--verbose", "--port=80"]

[upstreams."web"]
url = "https://u:${WEB_PASSWORD}@x.example/${WEB_PATH}/mcp?apiKey=${WEB_APIKEY}&v=2#top"
"#
        );
        assert_eq!(
            sections.all_notes(),
            [
                "set these variables for riglm, with the values of the export: DB_API_KEY \
                 (argument 4 of \"db\"), DB_ARG_8 (argument 8 of \"db\"), DB_AUTHORIZATION \
                 (argument 7 of \"db\"), DB_PASSWORD (argument 2 of \"db\"), DB_TOKEN (argument 5 \
                 of \"db\"), WEB_APIKEY (the address of \"web\"), WEB_PASSWORD (the address of \
                 \"web\"), WEB_PATH (the address of \"web\")"
            ]
        );
    }

    #[test]
    fn what_may_be_a_secret_is_printed_with_a_note() {
        let json = r#"{"mcpServers":{
            "a":{"command":"npx","args":["-y","@scope/server-files-2025-01","k7Gh2kQp9sVw3xYz81bN"]},
            "b":{"url":"https://x.example/s/k7Gh2kQp9sVw3xYz81bN/mcp"}}}"#;
        let sections = imported(json, Secrets::Referred);
        assert_eq!(sections.text.matches("k7Gh2kQp9sVw3xYz81bN").count(), 2);
        assert_eq!(
            sections.notes,
            [
                "argument 3 of \"a\" may have a secret, and is printed as it is",
                "the address of \"b\" may have a secret, and is printed as it is",
            ]
        );
        let asked_for = imported(json, Secrets::Printed);
        assert!(asked_for.notes.is_empty());
    }

    #[test]
    fn a_malformed_server_leaves_the_others_alone() {
        let sections = imported(
            r#"{"mcpServers":{
                "a":{"command":"run","args":null,"description":null},
                "b":{"command":"run","env":["TOKEN=secret"]}, "c":"secret",
                "d":{"command":"run","args":"secret"}}}"#,
            Secrets::Referred,
        );
        assert_eq!(sections.text, "[upstreams.\"a\"]\ncommand = [\"run\"]\n");
        assert_eq!(
            sections.notes,
            [
                "\"b\" was left out: the value of \"env\" is malformed",
                "\"c\" was left out: it is no object",
                "\"d\" was left out: the value of \"args\" is malformed",
            ]
        );
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
