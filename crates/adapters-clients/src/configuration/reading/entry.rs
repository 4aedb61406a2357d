//! One entry of a client as a server in neutral terms.
//!
//! The members of all clients are read, whichever client it is: their names do not clash, and files
//! are copied from one client to another. Only the meaning of references, of an address without a
//! type and of times depends on the client.

use std::time::Duration;

use serde_json::Value;

use super::bridge::{CommandLine, bridge_target};
use super::members::{Members, malformed_member};
use super::options::{oauth, tools};
use super::variables::TextTranslator;
use crate::configuration::client::{Dialect, TimeoutUnit, UntypedUrl};
use crate::configuration::identity::RiglmIdentity;
use crate::configuration::server::{
    ConfiguredCommand, ConfiguredServer, ConfiguredTransport, ConfiguredUrl, ServerNature,
    ServerNote, ServerTimeouts, ToolSelection, UnusableServer,
};

const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

/// Members that hold consent that was given to the client.
const CONSENT: [&str; 4] = ["autoApprove", "alwaysAllow", "trust", "always_allow"];

/// The values that all entries of a file share.
#[derive(Clone, Copy, Debug)]
pub(super) struct EntryReader<'a> {
    pub(super) dialect: &'a Dialect,
    pub(super) home: &'a str,
    pub(super) riglm: &'a RiglmIdentity,
}

/// The kinds of transport that clients name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Command,
    Http,
    Sse,
}

impl EntryReader<'_> {
    /// Reads an entry. A malformed one becomes an unusable server.
    pub(super) fn read(&self, name: &str, entry: &Value) -> ConfiguredServer {
        let mut translator = TextTranslator {
            references: self.dialect.references,
            home: self.home,
            notes: Vec::new(),
        };
        let mut server = ConfiguredServer {
            name: name.to_owned(),
            project: None,
            transport: ConfiguredTransport::Unusable(UnusableServer::NotAnObject),
            is_disabled: false,
            tools: ToolSelection::default(),
            timeouts: ServerTimeouts::default(),
            nature: ServerNature::Server,
            notes: Vec::new(),
        };
        if let Some(members) = entry.as_object().map(Members) {
            let transport = self.fill(&mut server, members, &mut translator);
            server.transport = transport.unwrap_or_else(ConfiguredTransport::Unusable);
        }
        server.notes = translator.notes;
        server.nature = self.riglm.nature(&server);
        server
    }

    fn fill(
        &self,
        server: &mut ConfiguredServer,
        members: Members<'_>,
        translator: &mut TextTranslator<'_>,
    ) -> Result<ConfiguredTransport, UnusableServer> {
        let (disabled, enabled) = (members.flag("disabled")?, members.flag("enabled")?);
        server.is_disabled = disabled == Some(true) || enabled == Some(false);
        let transport = self.transport(members, translator);
        if let Err(UnusableServer::NoTransport) = transport
            && (disabled.is_some() || enabled.is_some())
        {
            return Err(UnusableServer::OnlySwitch);
        }
        let transport = transport?;
        server.tools = tools(members, translator)?;
        server.timeouts = self.timeouts(members)?;
        for key in CONSENT {
            let given = members.first(&[key]).map(|(_, value)| value);
            let is_given = given.is_some_and(|value| match value {
                Value::Bool(value) => *value,
                Value::Array(values) => !values.is_empty(),
                _ => true,
            });
            if is_given {
                translator.note(ServerNote::Consent {
                    member: key.to_owned(),
                });
            }
        }
        Ok(transport)
    }

    fn transport(
        &self,
        members: Members<'_>,
        translator: &mut TextTranslator<'_>,
    ) -> Result<ConfiguredTransport, UnusableServer> {
        let kind = kind(members)?;
        let has_command = members.first(&["command", "cmd"]).is_some();
        let has_url = members.first(&ADDRESS_KEYS).is_some();
        match kind {
            Some(Kind::Command) => command(members, translator),
            None if has_command => command(members, translator),
            Some(Kind::Http | Kind::Sse) | None if has_url => self.url(members, kind, translator),
            _ => Err(UnusableServer::NoTransport),
        }
    }

    fn url(
        &self,
        members: Members<'_>,
        kind: Option<Kind>,
        translator: &mut TextTranslator<'_>,
    ) -> Result<ConfiguredTransport, UnusableServer> {
        let found = members.raw_text(&ADDRESS_KEYS)?;
        let (key, address) = found.ok_or(UnusableServer::NoTransport)?;
        let address = address.trim();
        check_scheme(address)?;
        let is_untyped = kind.is_none() && key == "url";
        if is_untyped && self.dialect.untyped_url == UntypedUrl::Refused {
            translator.note(ServerNote::SkippedByClient);
        }
        let mut target = ConfiguredUrl {
            url: translator.translate(address, key),
            is_sse: kind == Some(Kind::Sse)
                || (is_untyped && self.dialect.untyped_url == UntypedUrl::Sse),
            headers: members.map(&["headers", "http_headers"], translator)?,
            ..ConfiguredUrl::default()
        };
        for parent in ["requestInit", "requestOptions"] {
            if let Some(parent) = members.object(&[parent])? {
                target.headers.extend(parent.map(&["headers"], translator)?);
            }
        }
        if let Some(names) = members.object(&["env_http_headers"])? {
            for (header, variable) in names.0 {
                let variable = variable.as_str();
                let variable = variable.ok_or_else(|| malformed_member("env_http_headers"))?;
                let reference = TextTranslator::reference(variable);
                target.headers.insert(header.clone(), reference);
            }
        }
        add_environment(members, &mut target, translator)?;
        if let Some((_, variable)) = members.raw_text(&["bearer_token_env_var"])? {
            target.bearer = Some(TextTranslator::reference(variable));
        } else {
            target.bearer = members.text(&["bearerToken", "bearer_token"], translator)?;
        }
        if let Some((_, program)) = members.raw_text(&["headersHelper"])? {
            target.credentials_command = Some(program.to_owned());
            translator.note(ServerNote::CredentialsCommand);
        }
        target.oauth = oauth(members, translator)?;
        if target.oauth.is_some() {
            translator.note(ServerNote::LoginNeeded);
        }
        take_bearer(&mut target);
        Ok(ConfiguredTransport::Url(target))
    }

    fn timeouts(&self, members: Members<'_>) -> Result<ServerTimeouts, UnusableServer> {
        let unit = match self.dialect.timeout_unit {
            TimeoutUnit::Milliseconds => MILLISECOND,
            TimeoutUnit::Seconds => SECOND,
        };
        let startup = [
            ("startup_timeout_sec", SECOND),
            ("startup_timeout_ms", MILLISECOND),
            ("connectionTimeout", MILLISECOND),
        ];
        let call = [("tool_timeout_sec", SECOND), ("timeout", unit)];
        Ok(ServerTimeouts {
            startup: first_time(members, &startup)?,
            call: first_time(members, &call)?,
        })
    }
}

/// The keys of an address. Some clients know two, and the first one counts.
const ADDRESS_KEYS: [&str; 5] = ["httpUrl", "serverUrl", "url", "uri", "http_url"];

fn kind(members: Members<'_>) -> Result<Option<Kind>, UnusableServer> {
    let Some((_, kind)) = members.raw_text(&["type", "transport", "protocol"])? else {
        return Ok(None);
    };
    let plain: String = kind
        .chars()
        .filter(|c| !matches!(c, '-' | '_'))
        .map(|c| c.to_ascii_lowercase())
        .collect();
    match plain.as_str() {
        "stdio" | "local" => Ok(Some(Kind::Command)),
        "http" | "https" | "streamablehttp" | "streamable" | "remote" => Ok(Some(Kind::Http)),
        "sse" => Ok(Some(Kind::Sse)),
        "auto" | "" => Ok(None),
        "builtin" | "platform" | "frontend" | "inlinepython" => Err(UnusableServer::PartOfClient),
        _ => Err(UnusableServer::UnknownTransport {
            kind: kind.to_owned(),
        }),
    }
}

fn check_scheme(address: &str) -> Result<(), UnusableServer> {
    // A reference may hold the scheme.
    if address.starts_with(['$', '{', '%']) {
        return Ok(());
    }
    let (scheme, _) = address
        .split_once(':')
        .ok_or_else(|| malformed_member("url"))?;
    let lower = scheme.to_ascii_lowercase();
    if lower != "http" && lower != "https" {
        // The rest may hold a secret.
        return Err(UnusableServer::Scheme { scheme: lower });
    }
    Ok(())
}

fn command(
    members: Members<'_>,
    translator: &mut TextTranslator<'_>,
) -> Result<ConfiguredTransport, UnusableServer> {
    let (key, value) = (members.first(&["command", "cmd"])).ok_or(UnusableServer::NoTransport)?;
    let mut words: Vec<String> = match value {
        Value::String(program) => vec![program.clone()],
        Value::Array(_) => members.words(&[key], translator)?.unwrap_or_default(),
        // An old form: the command is an object.
        Value::Object(inner) => return command(OldCommand::new(inner).as_members(), translator),
        _ => return Err(malformed_member(key)),
    };
    words.extend(members.words(&["args"], translator)?.unwrap_or_default());
    if words
        .first()
        .is_none_or(|program| program.trim().is_empty())
    {
        return Err(malformed_member(key));
    }
    let mut target = ConfiguredCommand {
        env: members.map(&["env", "environment", "envs"], translator)?,
        env_file: members.text(&["envFile"], translator)?,
        cwd: members.text(&["cwd", "working_directory", "working_dir"], translator)?,
        ..ConfiguredCommand::default()
    };
    if target.env_file.is_some() {
        translator.note(ServerNote::EnvFile {
            member: "envFile".to_owned(),
        });
    }
    add_inherited(members, &mut target, translator)?;
    let line = CommandLine {
        words: &words,
        command: &target,
    };
    if let Some(mut url) = bridge_target(&line, translator) {
        take_bearer(&mut url);
        return Ok(ConfiguredTransport::Url(url));
    }
    let mut words = words.iter();
    target.program = words
        .next()
        .map(|word| translator.translate(word, key))
        .unwrap_or_default();
    target.args = words
        .map(|word| translator.translate(word, "args"))
        .collect();
    Ok(ConfiguredTransport::Command(target))
}

/// An entry whose program was under the key `path`.
struct OldCommand(serde_json::Map<String, Value>);

impl OldCommand {
    fn new(inner: &serde_json::Map<String, Value>) -> Self {
        let mut members = inner.clone();
        // A nested object would be read again and again.
        let program = members
            .remove("path")
            .filter(|program| !program.is_object());
        members.insert("command".to_owned(), program.unwrap_or(Value::Null));
        Self(members)
    }

    fn as_members(&self) -> Members<'_> {
        Members(&self.0)
    }
}

/// Adds variables that the client only names.
fn add_inherited(
    members: Members<'_>,
    target: &mut ConfiguredCommand,
    translator: &mut TextTranslator<'_>,
) -> Result<(), UnusableServer> {
    for key in ["env_vars", "env_keys"] {
        let Some((_, value)) = members.first(&[key]) else {
            continue;
        };
        for variable in value.as_array().ok_or_else(|| malformed_member(key))? {
            let name = variable
                .as_str()
                .or_else(|| variable.get("name").and_then(Value::as_str));
            let name = name.ok_or_else(|| malformed_member(key))?;
            if key == "env_keys" {
                translator.note(ServerNote::Keyring {
                    variable: name.to_owned(),
                });
            }
            let reference = TextTranslator::reference(name);
            target.env.entry(name.to_owned()).or_insert(reference);
        }
    }
    Ok(())
}

/// Replaces references to variables that an entry with an address has itself.
fn add_environment(
    members: Members<'_>,
    target: &mut ConfiguredUrl,
    translator: &mut TextTranslator<'_>,
) -> Result<(), UnusableServer> {
    let mut environment = ConfiguredCommand {
        env: members.map(&["env", "environment", "envs"], translator)?,
        ..ConfiguredCommand::default()
    };
    add_inherited(members, &mut environment, translator)?;
    for value in target.headers.values_mut() {
        for (name, text) in &environment.env {
            *value = value.replace(&TextTranslator::reference(name), text);
        }
    }
    Ok(())
}

/// Moves the token of the header `Authorization` to its own place.
fn take_bearer(target: &mut ConfiguredUrl) {
    let bearer = target.headers.iter().find_map(|(name, value)| {
        let (scheme, token) = value.split_once(' ')?;
        let is_bearer =
            name.eq_ignore_ascii_case("authorization") && scheme.eq_ignore_ascii_case("bearer");
        is_bearer.then(|| (name.clone(), token.trim().to_owned()))
    });
    if let Some((name, token)) = bearer {
        target.headers.remove(&name);
        target.bearer.get_or_insert(token);
    }
}

fn first_time(
    members: Members<'_>,
    keys: &[(&'static str, Duration)],
) -> Result<Option<Duration>, UnusableServer> {
    for (key, unit) in keys {
        if let Some(time) = members.time(key, *unit)? {
            return Ok(Some(time));
        }
    }
    Ok(None)
}
