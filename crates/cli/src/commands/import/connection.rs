//! The connection of riglm to a server of a client, before the configuration has it.

use std::collections::BTreeMap;
use std::path::PathBuf;

use riglm_adapters_clients::configuration::{ConfiguredServer, ConfiguredTransport};
use riglm_adapters_mcp::upstream::{UpstreamConfig, UpstreamCredentials};
use riglm_domain::id::UpstreamName;
use secrecy::SecretString;

use crate::config::{Environment, InterpolationError};

/// The reason why riglm cannot connect to a server.
#[derive(Debug, thiserror::Error)]
pub(crate) enum NoConnection {
    /// A variable that the server needs has no value.
    #[error("{0}")]
    Variable(#[from] InterpolationError),
    /// The entry of the client has no connection that riglm knows.
    #[error("{0}")]
    Client(String),
    /// The server needs a login, which is only possible when it is an upstream.
    #[error("log in first: riglm login {0}")]
    Login(UpstreamName),
    /// A program of the client prints the credentials.
    #[error("its credentials come from a program")]
    Program,
}

/// Returns the connection that riglm has to a server as soon as it is the upstream `name`. `variables`
/// replace its references.
///
/// # Errors
///
/// Returns [`NoConnection`] as [`connection_to`] does, and for credentials that riglm gets later: a
/// list of tools without them says nothing about calls.
pub(crate) fn planned_connection(
    name: &UpstreamName,
    server: &ConfiguredServer,
    variables: &Environment,
) -> Result<UpstreamConfig, NoConnection> {
    if let ConfiguredTransport::Url(url) = &server.transport
        && url.bearer.is_none()
    {
        // In the order in which an import writes them.
        if url.credentials_command.is_some() {
            return Err(NoConnection::Program);
        }
        if url.oauth.is_some() {
            return Err(NoConnection::Login(name.clone()));
        }
    }
    connection_to(server, variables)
}

/// Returns the connection to a server. `variables` replace its references. A login by OAuth is left
/// out, because the one of the client cannot be used.
///
/// # Errors
///
/// Returns [`NoConnection`] for a variable without a value, and for an unusable entry.
pub(crate) fn connection_to(
    server: &ConfiguredServer,
    variables: &Environment,
) -> Result<UpstreamConfig, NoConnection> {
    let expand = |text: &String| variables.expand(text);
    let expand_all =
        |values: &BTreeMap<String, String>| -> Result<BTreeMap<_, _>, InterpolationError> {
            let values = values.iter();
            values
                .map(|(name, value)| Ok((name.clone(), expand(value)?)))
                .collect()
        };
    match &server.transport {
        ConfiguredTransport::Command(command) => {
            let words = std::iter::once(&command.program).chain(&command.args);
            let directory = command.cwd.as_ref().or(server.project.as_ref());
            Ok(UpstreamConfig {
                command: Some(words.map(expand).collect::<Result<_, _>>()?),
                env: expand_all(&command.env)?,
                cwd: directory.map(expand).transpose()?.map(PathBuf::from),
                ..UpstreamConfig::default()
            })
        }
        ConfiguredTransport::Url(url) => {
            let scheme = if url.is_sse { "sse+" } else { "" };
            let headers = expand_all(&url.headers)?.into_iter();
            let bearer = url.bearer.as_ref().map(expand).transpose()?;
            Ok(UpstreamConfig {
                url: Some(format!("{scheme}{}", expand(&url.url)?)),
                headers: headers
                    .map(|(name, value)| (name, SecretString::from(value)))
                    .collect(),
                credentials: bearer
                    .map(|token| UpstreamCredentials::bearer(SecretString::from(token))),
                ..UpstreamConfig::default()
            })
        }
        ConfiguredTransport::Unusable(reason) => Err(NoConnection::Client(reason.to_string())),
    }
}
