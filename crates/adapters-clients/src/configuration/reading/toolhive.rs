//! The run configurations of `ToolHive`: one JSON file for each server, a *workload* there.
//!
//! A server in a container is reached at the address of the proxy of `ToolHive`, so its variables
//! and secrets stay there. A remote server is reached at its own address. `ToolHive` keeps secrets
//! by their names only, so they become references to variables.

use std::net::Ipv6Addr;

use serde_json::Value;

use super::members::{Members, malformed_member};
use super::variables::TextTranslator;
use crate::configuration::identity::RiglmIdentity;
use crate::configuration::server::{
    ConfiguredOauth, ConfiguredServer, ConfiguredTransport, ConfiguredUrl, ServerNature,
    ServerNote, ServerTimeouts, ToolSelection, UnusableServer,
};

/// The name of the gateway.
pub(super) const TITLE: &str = "ToolHive";
/// The host at which the proxy of a server listens, unless the file names another.
const LOCAL_HOST: &str = "127.0.0.1";
/// The words between the name of a secret and its use.
const SECRET_USE: &str = ",target=";
/// Members of a login by OAuth. Each of them is empty for servers without one.
const OAUTH_MEMBERS: [&str; 9] = [
    "client_id",
    "ClientID",
    "issuer",
    "Issuer",
    "authorize_url",
    "AuthorizeURL",
    "cached_client_id",
    "cached_cimd_client_id",
    "cached_refresh_token_ref",
];

/// Returns whether a document is a run configuration.
pub(super) fn is_run_config(document: &Value) -> bool {
    let has_text = |key: &str| document.get(key).is_some_and(Value::is_string);
    let has_all = ["schema_version", "name", "transport"]
        .into_iter()
        .all(has_text);
    has_all && (has_text("image") || has_text("remote_url"))
}

/// Returns the server of a run configuration. A malformed one is unusable.
pub(super) fn server_of(document: &Value, riglm: &RiglmIdentity) -> ConfiguredServer {
    let name = document.get("name").and_then(Value::as_str);
    let name = name.unwrap_or_default();
    let mut reader = RunConfigReader {
        translator: TextTranslator {
            // ToolHive replaces nothing in texts, so `${` has no meaning.
            references: &[],
            home: "",
            notes: Vec::new(),
        },
        tools: ToolSelection::default(),
        server: name,
    };
    let transport = match document.as_object().map(Members) {
        Some(members) => reader.transport(members),
        None => Err(UnusableServer::NotAnObject),
    };
    let mut server = ConfiguredServer {
        name: name.to_owned(),
        project: None,
        transport: transport.unwrap_or_else(ConfiguredTransport::Unusable),
        is_disabled: false,
        tools: reader.tools,
        timeouts: ServerTimeouts::default(),
        nature: ServerNature::Server,
        notes: reader.translator.notes,
    };
    server.nature = riglm.nature(&server);
    server
}

struct RunConfigReader<'a> {
    translator: TextTranslator<'static>,
    tools: ToolSelection,
    /// The name of the server.
    server: &'a str,
}

impl RunConfigReader<'_> {
    fn transport(&mut self, members: Members<'_>) -> Result<ConfiguredTransport, UnusableServer> {
        let url = match text_at(members, "remote_url")? {
            Some(address) => self.remote(address, members)?,
            None => self.proxy_address(members)?,
        };
        Ok(ConfiguredTransport::Url(url))
    }

    /// Returns the address of the proxy of a server in a container.
    fn proxy_address(&mut self, members: Members<'_>) -> Result<ConfiguredUrl, UnusableServer> {
        let transport = text_at(members, "transport")?.unwrap_or_default();
        let mode = match transport {
            "stdio" => text_at(members, "proxy_mode")?.unwrap_or("streamable-http"),
            direct => direct,
        };
        let (path, is_sse) = match mode {
            "sse" => ("/sse", true),
            "streamable-http" => ("/mcp", false),
            other => {
                return Err(UnusableServer::UnknownTransport {
                    kind: other.to_owned(),
                });
            }
        };
        let (host, port) = (host(members)?, port(members)?);
        self.translator.note(ServerNote::RunByGateway {
            gateway: TITLE,
            command: format!("thv start {}", self.server),
        });
        if members.first(&["oidc_config"]).is_some() {
            self.translator
                .note(ServerNote::TokenNeeded { gateway: TITLE });
        }
        Ok(ConfiguredUrl {
            url: format!("http://{host}:{port}{path}"),
            is_sse,
            ..ConfiguredUrl::default()
        })
    }

    /// Returns a remote server, which is asked without `ToolHive`.
    fn remote(
        &mut self,
        address: &str,
        members: Members<'_>,
    ) -> Result<ConfiguredUrl, UnusableServer> {
        let scheme = address.split_once("://").map(|(scheme, _)| scheme);
        let scheme = scheme.ok_or_else(|| malformed_member("remote_url"))?;
        let lower = scheme.to_ascii_lowercase();
        if lower != "http" && lower != "https" {
            // The rest may hold a secret.
            return Err(UnusableServer::Scheme { scheme: lower });
        }
        let mut target = ConfiguredUrl {
            url: self.translator.translate(address, "remote_url"),
            is_sse: text_at(members, "transport")? == Some("sse"),
            ..ConfiguredUrl::default()
        };
        // The proxy of ToolHive, which leaves tools out, is not on the way.
        self.tools.allowed = members.words(&["tools_filter"], &mut self.translator)?;
        if let Some(headers) = members.object(&["header_forward"])? {
            let plain = headers.map(&["add_plaintext_headers"], &mut self.translator)?;
            target.headers.extend(plain);
            self.add_secret_headers(headers, &mut target)?;
        }
        if let Some(login) = members.object(&["remote_auth_config"])? {
            self.add_login(login, &mut target)?;
        }
        Ok(target)
    }

    /// Adds headers whose values `ToolHive` keeps.
    fn add_secret_headers(
        &mut self,
        headers: Members<'_>,
        target: &mut ConfiguredUrl,
    ) -> Result<(), UnusableServer> {
        const KEY: &str = "add_headers_from_secret";
        let Some(secrets) = headers.object(&[KEY])? else {
            return Ok(());
        };
        for (header, secret) in secrets.0 {
            let secret = secret.as_str().ok_or_else(|| malformed_member(KEY))?;
            let reference = self.reference_to(secret);
            target.headers.insert(header.clone(), reference);
        }
        Ok(())
    }

    fn add_login(
        &mut self,
        login: Members<'_>,
        target: &mut ConfiguredUrl,
    ) -> Result<(), UnusableServer> {
        for member in ["bearer_token_file", "BearerTokenFile", "client_secret_file"] {
            if text_at(login, member)?.is_some() {
                self.translator.note(ServerNote::FileReference {
                    member: member.to_owned(),
                });
            }
        }
        target.bearer = self.secret(login, ["bearer_token", "BearerToken"])?;
        let mut has_oauth = false;
        for member in OAUTH_MEMBERS {
            has_oauth |= text_at(login, member)?.is_some();
        }
        if target.bearer.is_some() || !has_oauth {
            return Ok(());
        }
        self.translator.note(ServerNote::LoginNeeded);
        let scopes = login.words(&["scopes", "Scopes"], &mut self.translator)?;
        let client_id = match text_at(login, "client_id")? {
            Some(id) => Some(id),
            None => text_at(login, "ClientID")?,
        };
        target.oauth = Some(ConfiguredOauth {
            client_id: client_id.map(|id| self.translator.translate(id, "client_id")),
            client_secret: self.secret(login, ["client_secret", "ClientSecret"])?,
            scopes: scopes.unwrap_or_default(),
        });
        Ok(())
    }

    /// Returns the value of the first of two members: a reference for the name of a secret, and the
    /// text itself for a text.
    fn secret(
        &mut self,
        members: Members<'_>,
        keys: [&'static str; 2],
    ) -> Result<Option<String>, UnusableServer> {
        for key in keys {
            let Some(value) = text_at(members, key)? else {
                continue;
            };
            return Ok(Some(match value.split_once(SECRET_USE) {
                Some((name, _)) => self.reference_to(name),
                None => self.translator.translate(value, key),
            }));
        }
        Ok(None)
    }

    /// Returns a reference to a variable in place of a secret that `ToolHive` keeps.
    fn reference_to(&mut self, secret: &str) -> String {
        let variable = variable_of(self.server, secret);
        let reference = TextTranslator::reference(&variable);
        self.translator.note(ServerNote::GatewaySecret {
            gateway: TITLE,
            secret: secret.to_owned(),
            variable,
        });
        reference
    }
}

/// Returns a text that is there and not empty. `ToolHive` writes empty texts for values that are
/// not set.
fn text_at<'a>(members: Members<'a>, key: &'static str) -> Result<Option<&'a str>, UnusableServer> {
    let text = members.raw_text(&[key])?.map(|(_, text)| text.trim());
    Ok(text.filter(|text| !text.is_empty()))
}

/// Returns the host at which the proxy of a server is reached.
fn host(members: Members<'_>) -> Result<String, UnusableServer> {
    let host = text_at(members, "host")?.unwrap_or(LOCAL_HOST);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    if let Ok(address) = bare.parse::<Ipv6Addr>() {
        let is_any = address.is_unspecified();
        return Ok(if is_any {
            LOCAL_HOST.to_owned()
        } else {
            format!("[{address}]")
        });
    }
    // Anything else would move the port or the path.
    let is_of_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
    if !host.chars().all(is_of_name) {
        return Err(malformed_member("host"));
    }
    let host = if host == "0.0.0.0" { LOCAL_HOST } else { host };
    Ok(host.to_owned())
}

fn port(members: Members<'_>) -> Result<u16, UnusableServer> {
    let port = members.first(&["port"]);
    let port = port.and_then(|(_, value)| value.as_u64());
    let port = port.and_then(|port| u16::try_from(port).ok());
    port.filter(|port| *port > 0)
        .ok_or_else(|| malformed_member("port"))
}

/// Returns the variable for a secret, such as `NOTES_GITHUB_TOKEN` for `github-token` of the server
/// `notes`. A variable with the name of the secret alone may be there for something else.
fn variable_of(server: &str, secret: &str) -> String {
    let in_capitals = |text: &str| -> String {
        let letters = text.chars().map(|c| {
            if c.is_ascii_alphanumeric() {
                c.to_ascii_uppercase()
            } else {
                '_'
            }
        });
        letters.collect()
    };
    let prefix = format!("{}_", in_capitals(server));
    let mut name = in_capitals(secret);
    if !name.starts_with(&prefix) {
        name.insert_str(0, &prefix);
    }
    if name.starts_with(|first: char| first.is_ascii_digit()) {
        return format!("SECRET_{name}");
    }
    name
}

/// Returns the host and the port at which the proxy of a server listens, as an address; `None` if
/// the document does not say it.
pub(super) fn own_address(document: &Value) -> Option<String> {
    let members = Members(document.as_object()?);
    let (host, port) = (host(members).ok()?, port(members).ok()?);
    Some(format!("http://{host}:{port}"))
}

#[cfg(test)]
mod tests;
