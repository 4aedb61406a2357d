//! Sections of the configuration for servers of MCP clients.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use riglm_adapters_clients::configuration::{
    ConfiguredCommand, ConfiguredServer, ConfiguredTransport, ConfiguredUrl, MergedServer,
    ServerNature,
};
use riglm_domain::id::UpstreamName;

use super::secrets::{SecretWriter, Secrets};
use super::{quote, upstream_name, write_table};
use crate::args::ImportScope;
use crate::config::comparison_key;
use crate::output::printable;

#[derive(Debug)]
pub(crate) struct NewUpstream {
    pub(crate) name: UpstreamName,
    /// The server that it was made of.
    pub(crate) server: ConfiguredServer,
    /// The clients and files that have it.
    pub(crate) sources: Vec<String>,
    pub(crate) section: String,
    /// The variables of `secrets.env` that it refers to, with their values.
    pub(crate) secrets: BTreeMap<String, String>,
    /// Sentences about the server.
    pub(crate) notes: Vec<String>,
}

/// A server without an upstream.
#[derive(Debug)]
pub(crate) struct SkippedServer {
    pub(crate) name: String,
    pub(crate) sources: Vec<String>,
    pub(crate) reason: String,
}

/// Makes sections, with names and variables that are free.
#[derive(Debug)]
pub(crate) struct SectionMaker {
    /// The names in use, in their comparable form.
    names: BTreeSet<String>,
    variables: BTreeSet<String>,
    scope: ImportScope,
}

impl SectionMaker {
    /// Creates a maker beside upstreams and variables that are there.
    pub(crate) fn new<'a>(
        names: impl IntoIterator<Item = &'a UpstreamName>,
        variables: BTreeSet<String>,
        scope: ImportScope,
    ) -> Self {
        Self {
            names: names.into_iter().map(comparison_key).collect(),
            variables,
            scope,
        }
    }

    /// Returns the upstream for a server, or the reason why there is none.
    pub(crate) fn upstream(&mut self, merged: &MergedServer) -> Result<NewUpstream, SkippedServer> {
        let server = &merged.server;
        let skipped = |reason: String| SkippedServer {
            name: server.name.clone(),
            sources: merged.sources.clone(),
            reason,
        };
        if let Some(reason) = self.exclusion(server) {
            return Err(skipped(reason));
        }
        let name = self.free_name(&server.name);
        let name =
            name.ok_or_else(|| skipped("no name for an upstream can be made of it".into()))?;
        let mut notes: Vec<String> = server.notes.iter().map(ToString::to_string).collect();
        notes.extend(difference_notes(merged));
        notes.extend(selection_notes(&name, server));
        let (mut places, mut secrets) = (BTreeMap::new(), BTreeMap::new());
        let mut writer = ServerWriter(SecretWriter {
            server: name.as_str(),
            secrets: Secrets::Referred,
            variables: &mut places,
            values: &mut secrets,
            references: &self.variables,
            notes: &mut notes,
        });
        // A file may have any name, and a comment ends with its line.
        let mut section = format!("# From {}.\n", printable(&merged.sources.join(", ")));
        let _ = writeln!(section, "[upstreams.{}]", quote(name.as_str()));
        match &server.transport {
            ConfiguredTransport::Command(command) => {
                writer.command(command, server.project.as_deref(), &mut section);
            }
            ConfiguredTransport::Url(url) => writer.address(url, &mut section),
            ConfiguredTransport::Unusable(_) => {}
        }
        if server.is_disabled {
            section.push_str("enabled = false\n");
        }
        self.names.insert(comparison_key(&name));
        self.variables.extend(secrets.keys().cloned());
        Ok(NewUpstream {
            name,
            server: server.clone(),
            sources: merged.sources.clone(),
            section,
            secrets,
            notes,
        })
    }

    /// Returns the reason why a server is not wanted or cannot be used; `None` if it becomes an
    /// upstream.
    pub(crate) fn exclusion(&self, server: &ConfiguredServer) -> Option<String> {
        let is_usual = self.scope == ImportScope::Usual;
        match (&server.nature, &server.transport) {
            (ServerNature::Riglm, _) => return Some("it is riglm itself".into()),
            (ServerNature::Gateway(gateway), _) if is_usual => {
                return Some(format!(
                    "it is the gateway {gateway}: import its servers with --from FILE, or use --all"
                ));
            }
            (_, ConfiguredTransport::Unusable(reason)) => return Some(reason.to_string()),
            _ => {}
        }
        if server.is_disabled && is_usual {
            return Some("it is switched off (import it with --all)".into());
        }
        let project = server.project.as_ref().filter(|_| is_usual)?;
        Some(format!(
            "it is for the project {project} (import it with --all)"
        ))
    }

    /// Returns a name that is free: that of the server, or one with a number.
    fn free_name(&self, original: &str) -> Option<UpstreamName> {
        let name = upstream_name(original)?;
        let numbered = (2..100).filter_map(|number| upstream_name(&format!("{name}-{number}")));
        std::iter::once(name.clone())
            .chain(numbered)
            .find(|name| !self.names.contains(&comparison_key(name)))
    }
}

/// Returns notes about what other clients have otherwise. Other names are written out.
fn difference_notes(merged: &MergedServer) -> Vec<String> {
    let mut notes = Vec::new();
    for entry in &merged.entries {
        let text = format!("{} calls it {}", entry.source, entry.name);
        if entry.name != merged.server.name && !notes.contains(&text) {
            notes.push(text);
        }
    }
    let others = merged.differences.iter();
    let others = others.filter(|difference| difference.part != "name");
    notes.extend(others.map(ToString::to_string));
    notes
}

/// Returns notes about tools that were switched off at the client.
fn selection_notes(name: &UpstreamName, server: &ConfiguredServer) -> Vec<String> {
    let mut notes = Vec::new();
    if !server.tools.denied.is_empty() {
        let tools: Vec<String> = (server.tools.denied.iter())
            .map(|tool| quote(&format!("{name}__{tool}")))
            .collect();
        notes.push(format!(
            "its tools are switched off there: to forbid them, add filtering.forbid = [{}]",
            tools.join(", ")
        ));
    }
    if let Some(allowed) = &server.tools.allowed {
        notes.push(format!(
            "only {} of its tools are used there; riglm has all of them",
            allowed.len()
        ));
    }
    notes
}

/// Writes the keys of one upstream. Texts of servers have the references of riglm.
struct ServerWriter<'a>(SecretWriter<'a>);

impl ServerWriter<'_> {
    fn command(&mut self, command: &ConfiguredCommand, project: Option<&str>, text: &mut String) {
        let raw: Option<Vec<String>> = command.args.iter().map(|word| unescape(word)).collect();
        let arguments = match raw {
            Some(words) => self.0.arguments(&words),
            // Words with references stay as they are.
            None => command.args.clone(),
        };
        let words = std::iter::once(command.program.clone()).chain(arguments);
        let words: Vec<String> = words.map(|word| quote(&word)).collect();
        let _ = writeln!(text, "command = [{}]", words.join(", "));
        let entries: Vec<String> = (command.env.iter())
            .map(|(name, value)| {
                let value = self.setting(name, value);
                format!("{} = {}", quote(name), quote(&value))
            })
            .collect();
        write_table("env", &entries, text);
        if let Some(directory) = command.cwd.as_deref().or(project) {
            let _ = writeln!(text, "cwd = {}", quote(directory));
        }
    }

    fn address(&mut self, url: &ConfiguredUrl, text: &mut String) {
        let scheme = if url.is_sse { "sse+" } else { "" };
        let address = match unescape(&url.url) {
            Some(raw) => self.0.address(&raw, "the address"),
            None => url.url.clone(),
        };
        let _ = writeln!(text, "url = {}", quote(&format!("{scheme}{address}")));
        if let Some(credentials) = self.credentials(url) {
            let _ = writeln!(text, "credentials = {{ {credentials} }}");
        }
        let entries: Vec<String> = (url.headers.iter())
            .map(|(name, value)| {
                let value = self.setting(name, value);
                format!("{} = {}", quote(name), quote(&value))
            })
            .collect();
        write_table("headers", &entries, text);
    }

    fn credentials(&mut self, url: &ConfiguredUrl) -> Option<String> {
        if let Some(token) = &url.bearer {
            let token = match unescape(token) {
                Some(raw) => self.0.value("token", &raw),
                None => token.clone(),
            };
            return Some(format!("type = \"bearer\", token = {}", quote(&token)));
        }
        if let Some(program) = &url.credentials_command {
            return Some(format!(
                "type = \"command\", command = [\"sh\", \"-c\", {}]",
                quote(program)
            ));
        }
        let oauth = url.oauth.as_ref()?;
        let mut keys = "type = \"oauth\"".to_owned();
        if let Some(id) = &oauth.client_id {
            let _ = write!(keys, ", client_id = {}", quote(id));
            if let Some(secret) = &oauth.client_secret {
                let secret = match unescape(secret) {
                    Some(raw) => self.0.value("client_secret", &raw),
                    None => secret.clone(),
                };
                let _ = write!(keys, ", client_secret = {}", quote(&secret));
            }
        }
        if !oauth.scopes.is_empty() {
            let scopes: Vec<String> = oauth.scopes.iter().map(|scope| quote(scope)).collect();
            let _ = write!(keys, ", scopes = [{}]", scopes.join(", "));
        }
        Some(keys)
    }

    /// Returns a value of the environment or of a header.
    fn setting(&mut self, name: &str, value: &str) -> String {
        match unescape(value) {
            Some(raw) => self.0.setting(name, &raw),
            None => value.to_owned(),
        }
    }
}

/// Returns the text that a template stands for; `None` if it has references to variables.
fn unescape(template: &str) -> Option<String> {
    let mut text = String::with_capacity(template.len());
    let mut rest = template;
    while let Some(at) = rest.find("${") {
        let before = rest[..at].strip_suffix('$')?;
        text.push_str(before);
        text.push_str("${");
        rest = &rest[at + 2..];
    }
    text.push_str(rest);
    Some(text)
}

#[cfg(test)]
mod tests {
    use riglm_adapters_clients::configuration::{
        ReadContext, RiglmIdentity, SourcedServer, client, merge_servers, read_servers,
    };

    use super::*;

    fn upstreams(json: &str, scope: ImportScope) -> Vec<Result<NewUpstream, SkippedServer>> {
        upstreams_from("Claude Code", json, scope)
    }

    fn upstreams_from(
        source: &str,
        json: &str,
        scope: ImportScope,
    ) -> Vec<Result<NewUpstream, SkippedServer>> {
        let riglm = RiglmIdentity::default();
        let context = ReadContext {
            home: "/home/ann",
            riglm: &riglm,
        };
        let servers = read_servers(json, client("claude-code").unwrap(), context).unwrap();
        let servers = servers.servers.into_iter().map(|server| SourcedServer {
            source: source.to_owned(),
            server,
        });
        let taken = UpstreamName::parse("taken").unwrap();
        let mut maker = SectionMaker::new([&taken], BTreeSet::from(["A_TOKEN".into()]), scope);
        let merged = merge_servers(servers);
        merged.iter().map(|merged| maker.upstream(merged)).collect()
    }

    fn section(entry: &str) -> NewUpstream {
        let json = format!(r#"{{"mcpServers":{{"a":{entry}}}}}"#);
        upstreams(&json, ImportScope::Usual).remove(0).unwrap()
    }

    #[test]
    fn secrets_become_variables_and_other_values_stay() {
        let upstream = section(
            r#"{"command":"npx","args":["-y","server","--api-key","k1"],
                "env":{"API_TOKEN":"t1","MODE":"fast","HOME_URL":"https://u:p1@h/x","R":"${OTHER:-x}"}}"#,
        );
        assert_eq!(
            upstream.section,
            "# From Claude Code.\n[upstreams.\"a\"]\n\
             command = [\"npx\", \"-y\", \"server\", \"--api-key\", \"${A_API_KEY}\"]\n\
             env = { \"API_TOKEN\" = \"${A_API_TOKEN}\", \"HOME_URL\" = \"${A_HOME_URL}\", \
             \"MODE\" = \"fast\", \"R\" = \"${OTHER:-x}\" }\n"
        );
        let secrets: Vec<(&str, &str)> = (upstream.secrets.iter())
            .map(|(name, value)| (name.as_str(), value.as_str()))
            .collect();
        let expected = [
            ("A_API_KEY", "k1"),
            ("A_API_TOKEN", "t1"),
            ("A_HOME_URL", "https://u:p1@h/x"),
        ];
        assert_eq!(secrets, expected);
    }

    #[test]
    fn the_name_of_a_file_stays_in_its_comment() {
        let json = r#"{"mcpServers":{"a":{"command":"a"}}}"#;
        let name = "x\n[upstreams.evil]\r\u{1b}[31m.json";
        let mut found = upstreams_from(name, json, ImportScope::Usual);
        let section = found.remove(0).unwrap().section;
        assert_eq!(
            section,
            "# From x\\u{a}[upstreams.evil]\\u{d}\\u{1b}[31m.json.\n[upstreams.\"a\"]\n\
             command = [\"a\"]\n"
        );
    }

    #[test]
    fn an_address_has_its_credentials() {
        let upstream = section(
            r#"{"type":"http","url":"https://h/mcp","headers":{"Authorization":"Bearer t1","X-Team":"red"}}"#,
        );
        // The name A_TOKEN is in use.
        assert!(
            upstream.section.ends_with(
                "url = \"https://h/mcp\"\n\
             credentials = { type = \"bearer\", token = \"${A_TOKEN_2}\" }\n\
             headers = { \"X-Team\" = \"red\" }\n"
            ),
            "{}",
            upstream.section
        );
        assert_eq!(upstream.secrets["A_TOKEN_2"], "t1");
        let upstream =
            section(r#"{"type":"sse","url":"https://h/sse","headersHelper":"/bin/h x"}"#);
        assert!(upstream.section.contains("url = \"sse+https://h/sse\"\n"));
        let credentials =
            "credentials = { type = \"command\", command = [\"sh\", \"-c\", \"/bin/h x\"] }";
        assert!(
            upstream.section.contains(credentials),
            "{}",
            upstream.section
        );
    }

    #[test]
    fn names_are_free_and_what_is_left_out_has_a_reason() {
        let json = r#"{"mcpServers":{"Taken":{"command":"a"},"riglm":{"command":"/opt/riglm"},
            "gate":{"command":"docker","args":["mcp","gateway","run"]},"x":{"type":"ws","url":"ws://h"}},
            "projects":{"/p":{"mcpServers":{"b":{"command":"b"}}}}}"#;
        let found = upstreams(json, ImportScope::Usual);
        let shown: Vec<String> = (found.iter())
            .map(|one| match one {
                Ok(upstream) => upstream.name.to_string(),
                Err(skipped) => format!("{}: {}", skipped.name, skipped.reason),
            })
            .collect();
        assert_eq!(shown[0], "Taken-2");
        assert_eq!(shown[1], "riglm: it is riglm itself");
        assert!(shown[2].starts_with("gate: it is the gateway Docker MCP gateway"));
        assert!(shown[3].starts_with("x: its "), "{}", shown[3]);
        assert!(shown[4].starts_with("b: it is for the project /p"));
        let all = upstreams(json, ImportScope::All);
        let project = all[4].as_ref().unwrap();
        assert!(
            project.section.contains("cwd = \"/p\"\n"),
            "{}",
            project.section
        );
    }

    #[test]
    fn a_template_without_references_is_a_text() {
        assert_eq!(unescape("a$${b}$${c").as_deref(), Some("a${b}${c"));
        assert_eq!(unescape("a${B}"), None);
        assert_eq!(unescape("a$b"), Some("a$b".into()));
    }
}
