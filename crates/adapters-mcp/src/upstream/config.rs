//! The configuration section of one upstream.

use std::collections::BTreeMap;
use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use riglm_app::proxy::Unavailable;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use validator::{Validate, ValidationError, ValidationErrors};

use super::credentials::section::UpstreamCredentials;
use riglm_adapters_programs::StartTime;
use riglm_adapters_programs::{Patience, UpstreamLimits};
use riglm_domain::mcp::header::PARAM_PREFIX;
use riglm_domain::mcp::protocol::{Revision, Transport};

/// The connection to one upstream: a program or a URL.
#[derive(Clone, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
#[validate(schema(function = "validate_transport"))]
pub struct UpstreamConfig {
    /// The URL of a server: `http(s)://` for Streamable HTTP, with a fallback to HTTP+SSE for a
    /// server that supports only that; `sse+http(s)://` for HTTP+SSE.
    pub url: Option<String>,
    /// A program and its arguments, started without a shell.
    pub command: Option<Vec<String>>,
    /// Variables that are added to the program's environment.
    pub env: BTreeMap<String, String>,
    /// The program's working directory; the proxy's own by default.
    pub cwd: Option<PathBuf>,
    /// Headers of every request to the URL.
    pub headers: BTreeMap<String, SecretString>,
    /// The credentials for the URL. The key `auth` means the same.
    #[serde(alias = "auth")]
    pub credentials: Option<UpstreamCredentials>,
    /// The timeout for making a connection, as in `3s`.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "validate_not_zero"))]
    pub connect_timeout: Duration,
    /// The handling of messages to a server on this machine that refuses connections. No key sets
    /// it: only the bridge to a proxy needs it, because a proxy may be restarting.
    #[serde(skip)]
    pub patience: Patience,
    /// The largest message that is accepted from the server, in bytes.
    #[validate(range(min = 1024))]
    pub max_message_bytes: usize,
    /// The time limit of each stage of ending a program, as in `2s`.
    #[serde(with = "humantime_serde")]
    pub shutdown_grace: Duration,
    /// The time of a program for its first answer, as in `2m`.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "validate_not_zero"))]
    pub start_timeout: Duration,
    /// Whether a process is started ahead while several sessions make calls, if each has its own.
    pub spare: bool,
    /// The revision that the server speaks; detected by default.
    #[validate(custom(function = "validate_revision"))]
    pub revision: Option<Revision>,
    /// The sessions that share a connection.
    pub isolation: Isolation,
    /// The handling of listed entries while the server is down.
    pub unavailable: Unavailable,
    /// The time after which the connection of an idle session is closed, as in `5m`.
    #[serde(with = "humantime_serde")]
    #[validate(custom(function = "validate_not_zero"))]
    pub idle_timeout: Duration,
    /// The maximum number of processes, if each session has its own.
    #[validate(range(min = 1))]
    pub max_connections: usize,
    /// The handling of changed tool definitions.
    pub tool_changes: ToolChanges,
    /// Whether the server is checked at the start, and again while it does not answer. A check of a
    /// program starts it.
    pub health_check: bool,
    /// Whether the upstream is used.
    pub enabled: bool,
}

/// The handling of changed tool definitions of an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ToolChanges {
    /// They are shown at once.
    #[default]
    Pass,
    /// They are held back until an operator approves them.
    Hold,
}

/// The sessions that share a connection to an upstream.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Isolation {
    /// Each client session has its own connection.
    #[default]
    PerSession,
    /// All sessions of a principal share one, for servers without state of their clients.
    Shared,
}

/// The reason why an upstream cannot be used with its configuration.
#[derive(Debug, thiserror::Error)]
pub enum UpstreamConfigError {
    /// A value is out of its range, or the values are inconsistent.
    #[error("invalid upstream configuration")]
    Invalid(#[from] ValidationErrors),
    /// The URL cannot be parsed.
    #[error("upstream url is invalid")]
    Url(#[source] url::ParseError),
    /// The URL has another scheme, or no host.
    #[error("upstream url must begin with http://, https://, sse+http:// or sse+https://")]
    Scheme,
    /// The URL has a link-local address, or the address of a metadata service.
    #[error("upstream url names an address that is not allowed")]
    Address,
    /// A header cannot be sent.
    #[error("upstream header {name:?} is not allowed or has an invalid value")]
    Header {
        /// The name of the header.
        name: String,
    },
    /// The header `Authorization` is configured in addition to credentials that need the same header.
    #[error(
        "upstream has credentials of type oauth or command and a header Authorization: remove one of \
         them"
    )]
    TwoTokens,
    /// The HTTP client cannot be set up, usually because of TLS.
    #[error("failed to set up the HTTP client of an upstream")]
    Client(#[source] reqwest::Error),
}

/// The default time after which the connection of an idle session is closed.
const DEFAULT_IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// The default maximum number of connections to one upstream.
const DEFAULT_MAX_CONNECTIONS: usize = 128;

/// Headers that the proxy sets itself, because the protocol defines them.
const RESERVED_HEADERS: [&str; 11] = [
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "transfer-encoding",
];

impl Default for UpstreamConfig {
    fn default() -> Self {
        let limits = UpstreamLimits::default();
        Self {
            url: None,
            command: None,
            env: BTreeMap::new(),
            cwd: None,
            headers: BTreeMap::new(),
            credentials: None,
            connect_timeout: limits.connect_timeout,
            patience: limits.patience,
            max_message_bytes: limits.max_message_bytes,
            shutdown_grace: limits.shutdown_grace,
            start_timeout: StartTime::default().current(),
            spare: true,
            revision: None,
            isolation: Isolation::default(),
            unavailable: Unavailable::default(),
            idle_timeout: DEFAULT_IDLE_TIMEOUT,
            max_connections: DEFAULT_MAX_CONNECTIONS,
            tool_changes: ToolChanges::default(),
            health_check: true,
            enabled: true,
        }
    }
}

impl fmt::Debug for UpstreamConfig {
    /// Omits everything that may be secret: values of variables and headers, arguments, and all of
    /// the URL but its origin.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let url = self.url.as_deref().map(|url| {
            let (prefix, rest) = split_prefix(url);
            let origin = url::Url::parse(rest).map(|url| url.origin().ascii_serialization());
            format!("{prefix}{}", origin.as_deref().unwrap_or("?"))
        });
        f.debug_struct("UpstreamConfig")
            .field("url", &url)
            .field(
                "program",
                &self.command.as_ref().and_then(|argv| argv.first()),
            )
            .field("env", &self.env.keys())
            .field("cwd", &self.cwd)
            .field("headers", &self.headers.keys())
            .field("credentials", &self.credentials)
            .field("connect_timeout", &self.connect_timeout)
            .field("patience", &self.patience)
            .field("max_message_bytes", &self.max_message_bytes)
            .field("shutdown_grace", &self.shutdown_grace)
            .field("start_timeout", &self.start_timeout)
            .field("spare", &self.spare)
            .field("revision", &self.revision)
            .field("isolation", &self.isolation)
            .field("unavailable", &self.unavailable)
            .field("idle_timeout", &self.idle_timeout)
            .field("max_connections", &self.max_connections)
            .field("tool_changes", &self.tool_changes)
            .field("health_check", &self.health_check)
            .field("enabled", &self.enabled)
            .finish()
    }
}

impl UpstreamConfig {
    /// Returns the transport of the configuration. A server with a plain URL may turn out to
    /// support only HTTP+SSE.
    #[must_use]
    pub fn transport(&self) -> Transport {
        match &self.url {
            None => Transport::Stdio,
            Some(url) if split_prefix(url).0.is_empty() => Transport::StreamableHttp,
            Some(_) => Transport::Sse,
        }
    }

    /// Returns whether `max_connections` has an effect. Sessions at a URL are not connections, and
    /// a shared program has one process for each principal.
    #[must_use]
    pub fn bounds_connections(&self) -> bool {
        self.command.is_some() && self.isolation == Isolation::PerSession
    }

    /// Returns the limits of a connection.
    pub(super) fn limits(&self) -> UpstreamLimits {
        UpstreamLimits {
            connect_timeout: self.connect_timeout,
            patience: self.patience,
            max_message_bytes: self.max_message_bytes,
            shutdown_grace: self.shutdown_grace,
            ..UpstreamLimits::default()
        }
    }

    /// Returns the configured headers and token, marked as secrets.
    pub(super) fn header_map(&self) -> Result<HeaderMap, UpstreamConfigError> {
        let mut headers = HeaderMap::new();
        for (name, value) in &self.headers {
            let (name, value) = credential_header(name, value.expose_secret())?;
            headers.insert(name, value);
        }
        let Some(credentials) = &self.credentials else {
            return Ok(headers);
        };
        if let Some(token) = credentials.fixed_token() {
            let value = format!("Bearer {}", token.expose_secret());
            let (name, value) = credential_header(AUTHORIZATION.as_str(), &value)?;
            headers.insert(name, value);
        } else if headers.contains_key(AUTHORIZATION) {
            return Err(UpstreamConfigError::TwoTokens);
        }
        Ok(headers)
    }
}

/// Splits the prefix `sse+` from a URL.
pub(super) fn split_prefix(url: &str) -> (&str, &str) {
    match url.strip_prefix("sse+") {
        Some(rest) => url.split_at(url.len() - rest.len()),
        None => ("", url),
    }
}

/// Returns a header for requests to an upstream, whose value is marked as a secret.
pub(super) fn credential_header(
    name: &str,
    value: &str,
) -> Result<(HeaderName, HeaderValue), UpstreamConfigError> {
    let refused = || UpstreamConfigError::Header { name: name.into() };
    let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| refused())?;
    if RESERVED_HEADERS.contains(&parsed.as_str()) || parsed.as_str().starts_with(PARAM_PREFIX) {
        return Err(refused());
    }
    let mut value = HeaderValue::from_str(value).map_err(|_| refused())?;
    value.set_sensitive(true);
    Ok((parsed, value))
}

fn validate_transport(config: &UpstreamConfig) -> Result<(), ValidationError> {
    let complaint =
        |text: &'static str| Err(ValidationError::new("upstream").with_message(text.into()));
    match (&config.url, &config.command) {
        (None, None) | (Some(_), Some(_)) => {
            complaint("exactly one of url and command must be given")
        }
        (None, Some(argv)) if argv.first().is_none_or(String::is_empty) => {
            complaint("command must begin with a program")
        }
        (None, Some(_)) if !config.headers.is_empty() || config.credentials.is_some() => {
            complaint("headers and credentials need a url")
        }
        (Some(_), None) if !config.env.is_empty() || config.cwd.is_some() => {
            complaint("env and cwd need a command")
        }
        _ => match config
            .credentials
            .as_ref()
            .map(UpstreamCredentials::inconsistency)
        {
            Some(Some(text)) => complaint(text),
            Some(None) | None => Ok(()),
        },
    }
}

fn validate_not_zero(duration: &Duration) -> Result<(), ValidationError> {
    if duration.is_zero() {
        return Err(ValidationError::new("range").with_message("must be longer than 0s".into()));
    }
    Ok(())
}

fn validate_revision(revision: &Revision) -> Result<(), ValidationError> {
    if revision.is_known() {
        return Ok(());
    }
    let known = Revision::supported_revisions().join(", ");
    Err(ValidationError::new("revision").with_message(format!("must be one of {known}").into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(json: &str) -> UpstreamConfig {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn a_server_has_either_a_url_or_a_command() {
        for invalid in [
            "{}",
            r#"{"url":"http://a","command":["b"]}"#,
            r#"{"command":[]}"#,
            r#"{"command":["a"],"headers":{"X-A":"1"}}"#,
            r#"{"url":"http://a","cwd":"/"}"#,
            r#"{"url":"http://a","credentials":{"type":"bearer"}}"#,
            r#"{"url":"http://a","auth":{"type":"bearer"}}"#,
            r#"{"url":"http://a","connect_timeout":"0s"}"#,
            r#"{"command":["a"],"start_timeout":"0s"}"#,
            r#"{"command":["a"],"revision":"2026-07-27"}"#,
        ] {
            assert!(config(invalid).validate().is_err(), "{invalid}");
        }
        assert!(
            config(r#"{"url":"http://a","connect_timeout":"5s","revision":"2025-11-25"}"#)
                .validate()
                .is_ok()
        );
    }

    #[test]
    fn a_misspelt_key_is_named() {
        let error = serde_json::from_str::<UpstreamConfig>(r#"{"ulr":"x"}"#).unwrap_err();
        assert!(error.to_string().contains("`ulr`"), "{error}");
    }

    #[test]
    fn credentials_become_a_header_and_stay_out_of_debug_output() {
        let config = config(
            r#"{"url":"https://u:hunter2@h/p?t=hunter2","headers":{"X-Key":"hunter2"},
                "auth":{"type":"bearer","token":"hunter2"}}"#,
        );
        let headers = config.header_map().unwrap();
        assert_eq!(headers["authorization"], "Bearer hunter2");
        assert_eq!(headers["x-key"], "hunter2");
        assert!(!format!("{config:?} {headers:?}").contains("hunter2"));
    }

    #[test]
    fn authorization_headers_and_oauth_credentials_are_mutually_exclusive() {
        let config = config(
            r#"{"url":"http://h","headers":{"Authorization":"x"},"credentials":{"type":"oauth"}}"#,
        );
        let error = config.header_map().unwrap_err();
        assert!(matches!(error, UpstreamConfigError::TwoTokens), "{error}");
    }

    #[test]
    fn headers_of_the_protocol_cannot_be_configured() {
        let config = config(r#"{"url":"http://h","headers":{"MCP-Session-Id":"x"}}"#);
        assert_eq!(
            config.header_map().unwrap_err().to_string(),
            "upstream header \"MCP-Session-Id\" is not allowed or has an invalid value"
        );
    }
}
