//! The configuration section for the credentials of one upstream.

use std::time::Duration;

use secrecy::SecretString;
use serde::Deserialize;
use url::Url;

/// The default time limit of a program that prints credentials.
const DEFAULT_TIMEOUT: Duration = Duration::from_secs(10);
/// The default time for which printed credentials are used.
const DEFAULT_REFRESH: Duration = Duration::from_mins(5);

/// The credentials that the proxy itself presents to an upstream.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UpstreamCredentials {
    /// The type of the credentials.
    pub r#type: CredentialsType,
    /// The token, for `bearer`.
    pub token: Option<SecretString>,
    /// The grant for obtaining tokens, for `oauth`.
    pub grant: Option<OAuthGrant>,
    /// The requested scopes; by default the scopes that the server asks for.
    #[serde(default)]
    pub scopes: Vec<String>,
    /// The client id of the proxy at the authorization server. Without one the proxy registers
    /// itself if the server allows it.
    pub client_id: Option<String>,
    /// The secret for the client id.
    pub client_secret: Option<SecretString>,
    /// The URL of a document that describes the proxy, which some servers accept as a client id.
    pub client_metadata_url: Option<String>,
    /// The local port for the redirect of the browser; a free one by default.
    pub redirect_port: Option<u16>,
    /// The program that prints the credentials, and its arguments, for `command`. It is started
    /// without a shell.
    pub command: Option<Vec<String>>,
    /// The time limit of the program, as in `10s`.
    #[serde(with = "humantime_serde", default)]
    pub timeout: Option<Duration>,
    /// The time after which the program is run again, as in `5m`.
    #[serde(with = "humantime_serde", default)]
    pub refresh: Option<Duration>,
}

/// A type of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialsType {
    /// `Authorization: Bearer TOKEN`, with a configured token.
    Bearer,
    /// `Authorization: Bearer TOKEN`, with tokens obtained by OAuth 2.1.
    Oauth,
    /// Headers that a program prints.
    Command,
}

/// A grant of OAuth 2.1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OAuthGrant {
    /// A person logs in once, in a browser (`riglm login`).
    #[default]
    AuthorizationCode,
    /// The proxy has an account of its own.
    ClientCredentials,
}

/// The validated OAuth settings.
#[derive(Clone, Debug)]
pub(super) struct OAuthSettings {
    pub(super) grant: OAuthGrant,
    pub(super) scopes: Vec<String>,
    pub(super) client_id: Option<String>,
    pub(super) client_secret: Option<SecretString>,
    pub(super) client_metadata_url: Option<String>,
    pub(super) redirect_port: Option<u16>,
}

/// The validated settings of a program that prints credentials.
#[derive(Clone, Debug)]
pub(super) struct ProgramSettings {
    pub(super) command: Vec<String>,
    pub(super) timeout: Duration,
    pub(super) refresh: Duration,
}

impl UpstreamCredentials {
    /// Returns credentials with a fixed token.
    #[must_use]
    pub fn bearer(token: SecretString) -> Self {
        Self {
            r#type: CredentialsType::Bearer,
            token: Some(token),
            grant: None,
            scopes: Vec::new(),
            client_id: None,
            client_secret: None,
            client_metadata_url: None,
            redirect_port: None,
            command: None,
            timeout: None,
            refresh: None,
        }
    }

    /// Returns the token of credentials of type `bearer`.
    pub(in super::super) fn fixed_token(&self) -> Option<&SecretString> {
        match self.r#type {
            CredentialsType::Bearer => self.token.as_ref(),
            CredentialsType::Oauth | CredentialsType::Command => None,
        }
    }

    /// Returns the settings of credentials of type `oauth`.
    pub(super) fn oauth(&self) -> Option<OAuthSettings> {
        (self.r#type == CredentialsType::Oauth).then(|| OAuthSettings {
            grant: self.grant.unwrap_or_default(),
            scopes: self.scopes.clone(),
            client_id: self.client_id.clone(),
            client_secret: self.client_secret.clone(),
            client_metadata_url: self.client_metadata_url.clone(),
            redirect_port: self.redirect_port,
        })
    }

    /// Returns the settings of credentials of type `command`.
    pub(super) fn program(&self) -> Option<ProgramSettings> {
        (self.r#type == CredentialsType::Command).then(|| ProgramSettings {
            command: self.command.clone().unwrap_or_default(),
            timeout: self.timeout.unwrap_or(DEFAULT_TIMEOUT),
            refresh: self.refresh.unwrap_or(DEFAULT_REFRESH),
        })
    }

    /// Returns the first inconsistency of the section, as an error message.
    pub(in super::super) fn inconsistency(&self) -> Option<&'static str> {
        let is_bearer = self.r#type == CredentialsType::Bearer;
        let is_oauth = self.r#type == CredentialsType::Oauth;
        let is_command = self.r#type == CredentialsType::Command;
        let has_program = (self.command.as_ref())
            .is_some_and(|command| command.first().is_some_and(|program| !program.is_empty()));
        let is_for_command =
            self.command.is_some() || self.timeout.is_some() || self.refresh.is_some();
        let is_zero = |limit: Option<Duration>| limit.is_some_and(|limit| limit.is_zero());
        let has_id = self.client_id.is_some();
        let has_secret = self.client_secret.is_some();
        let is_for_oauth = self.grant.is_some()
            || !self.scopes.is_empty()
            || has_id
            || has_secret
            || self.client_metadata_url.is_some()
            || self.redirect_port.is_some();
        let is_account = self.grant == Some(OAuthGrant::ClientCredentials);
        let is_for_browser = self.client_metadata_url.is_some() || self.redirect_port.is_some();
        [
            (
                is_bearer && self.token.is_none(),
                "credentials of type bearer need a token",
            ),
            (
                is_bearer && is_for_oauth,
                "credentials of type bearer take only a token",
            ),
            (
                is_oauth && self.token.is_some(),
                "credentials of type oauth take no token",
            ),
            (
                is_command && !has_program,
                "credentials of type command need a command that begins with a program",
            ),
            (
                is_command && (self.token.is_some() || is_for_oauth),
                "credentials of type command take only command, timeout and refresh",
            ),
            (
                !is_command && is_for_command,
                "command, timeout and refresh need credentials of type command",
            ),
            (
                is_zero(self.timeout) || is_zero(self.refresh),
                "timeout and refresh must be longer than 0s",
            ),
            (
                is_account && !(has_id && has_secret),
                "the grant client_credentials needs client_id and client_secret",
            ),
            (
                is_account && is_for_browser,
                "client_metadata_url and redirect_port need the grant authorization_code",
            ),
            (has_secret && !has_id, "client_secret needs a client_id"),
            (
                self.client_metadata_url
                    .as_deref()
                    .is_some_and(is_no_client_id),
                "client_metadata_url must be an https URL with a path",
            ),
        ]
        .into_iter()
        .find_map(|(is_wrong, text)| is_wrong.then_some(text))
    }
}

fn is_no_client_id(url: &str) -> bool {
    let is_one = |url: Url| url.scheme() == "https" && url.path() != "/";
    !Url::parse(url).is_ok_and(is_one)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inconsistency_of(json: &str) -> Option<&'static str> {
        let section: UpstreamCredentials = serde_json::from_str(json).unwrap();
        section.inconsistency()
    }

    #[test]
    fn inconsistent_credentials_are_refused_with_the_reason() {
        for (json, expected) in [
            (r#"{"type":"bearer"}"#, "need a token"),
            (
                r#"{"type":"bearer","token":"t","client_id":"c"}"#,
                "take only a token",
            ),
            (r#"{"type":"oauth","token":"t"}"#, "take no token"),
            (
                r#"{"type":"oauth","grant":"client_credentials","client_id":"c"}"#,
                "needs client_id",
            ),
            (
                r#"{"type":"oauth","grant":"client_credentials","client_id":"c","client_secret":"s","redirect_port":1}"#,
                "need the grant",
            ),
            (
                r#"{"type":"oauth","client_secret":"s"}"#,
                "needs a client_id",
            ),
            (
                r#"{"type":"oauth","client_metadata_url":"http://a/b"}"#,
                "https URL",
            ),
            (
                r#"{"type":"oauth","client_metadata_url":"https://a/"}"#,
                "https URL",
            ),
            (r#"{"type":"command"}"#, "begins with a program"),
            (
                r#"{"type":"command","command":[]}"#,
                "begins with a program",
            ),
            (
                r#"{"type":"command","command":["a"],"token":"t"}"#,
                "take only command",
            ),
            (
                r#"{"type":"oauth","command":["a"]}"#,
                "need credentials of type command",
            ),
            (
                r#"{"type":"command","command":["a"],"refresh":"0s"}"#,
                "longer than 0s",
            ),
        ] {
            let text = inconsistency_of(json).unwrap();
            assert!(text.contains(expected), "{json}: {text}");
        }
    }

    #[test]
    fn each_kind_of_credentials_can_be_written_down() {
        for json in [
            r#"{"type":"bearer","token":"t"}"#,
            r#"{"type":"oauth"}"#,
            r#"{"type":"oauth","grant":"authorization_code","scopes":["a"],"client_metadata_url":"https://a/b","redirect_port":8123}"#,
            r#"{"type":"oauth","grant":"client_credentials","client_id":"c","client_secret":"s"}"#,
            r#"{"type":"command","command":["a","b"],"timeout":"3s","refresh":"1h"}"#,
        ] {
            assert_eq!(inconsistency_of(json), None, "{json}");
        }
    }

    #[test]
    fn secrets_stay_out_of_debug_output() {
        let json =
            r#"{"type":"oauth","client_id":"c","client_secret":"hunter2","token":"hunter2"}"#;
        let section: UpstreamCredentials = serde_json::from_str(json).unwrap();
        let text = format!("{section:?} {:?}", section.oauth());
        assert!(!text.contains("hunter2"), "{text}");
    }
}
