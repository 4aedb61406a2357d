//! Login to an upstream: a person authorizes the proxy once in a browser, and the token is stored.

use std::io;
use std::path::Path;
use std::time::Duration;

use riglm_domain::id::UpstreamName;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, AuthorizationRequest,
    AuthorizationSession,
};
use secrecy::{ExposeSecret, SecretString};
use url::Url;
use validator::Validate;

use super::super::config::{UpstreamConfig, UpstreamConfigError, split_prefix};
use super::authority::{Authority, TokenFailure, within_limit};
use super::redirect::{LoginAnswer, RedirectListener, printable};
use super::section::{OAuthGrant, UpstreamCredentials};
use super::store::CredentialStoreError;

/// The time limit for the person.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(10);
/// The name of the proxy in a client registration.
const CLIENT_NAME: &str = "riglm";

/// The reason why a login failed.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The upstream cannot be used with its configuration.
    #[error(transparent)]
    Config(#[from] UpstreamConfigError),
    /// The upstream needs no login.
    #[error(
        "upstream {name} needs no login: its credentials are not of type oauth with the grant authorization_code"
    )]
    NotNeeded {
        /// The name of the upstream.
        name: UpstreamName,
    },
    /// The local port for the browser cannot be opened.
    #[error("failed to listen for the browser")]
    Listen(#[source] io::Error),
    /// The authorization server could not be found, or returned an error.
    #[error("authorization server of the upstream: {reason}")]
    Server {
        /// The cause, truncated and without control characters. It may contain text of the server.
        reason: String,
    },
    /// The authorization server took too long.
    #[error("authorization server of the upstream did not answer in time")]
    TimedOut,
    /// The person or the server denied the login.
    #[error("login was denied: {reason}")]
    Denied {
        /// The error code of the server, truncated and without control characters.
        reason: String,
    },
    /// The browser did not come back in time.
    #[error("no login within {} minutes", LOGIN_TIMEOUT.as_secs() / 60)]
    Abandoned,
    /// The token cannot be stored.
    #[error(transparent)]
    Store(#[from] CredentialStoreError),
}

impl From<AuthError> for LoginError {
    fn from(error: AuthError) -> Self {
        Self::Server {
            reason: printable(&error.to_string()),
        }
    }
}

impl From<TokenFailure> for LoginError {
    fn from(failure: TokenFailure) -> Self {
        match failure {
            TokenFailure::Store(error) => Self::Store(error),
            TokenFailure::OAuth(error) => error.into(),
            TokenFailure::TimedOut => Self::TimedOut,
            TokenFailure::NeedsLogin => Self::Abandoned,
        }
    }
}

/// Logs in to the upstream `name`: `opener` shows a URL to a person, the browser is redirected to
/// this machine, and the token is stored under `data_dir`, where a proxy finds it.
///
/// The URL is `http` or `https` and percent-encoded. It comes from the authorization server all the
/// same, so `opener` must not pass it to a shell.
///
/// # Errors
///
/// Returns [`LoginError`]; stored credentials are unchanged then.
pub async fn login(
    name: &UpstreamName,
    config: &UpstreamConfig,
    data_dir: &Path,
    opener: impl FnOnce(&str),
) -> Result<(), LoginError> {
    let authority = authority(name, config, data_dir)?;
    let redirect = RedirectListener::bind(authority.settings.redirect_port)
        .await
        .map_err(LoginError::Listen)?;
    let (session, registered_secret) = within_limit(begin(&authority, redirect.uri())).await?;
    let address = Url::parse(session.get_authorization_url()).ok();
    // For other schemes, the program that opens the URL may run any other program.
    let address = address.filter(|address| authority.client.is_url_allowed(address));
    let begun = address.and_then(|address| Some((state_of(&address)?, address)));
    let (state, address) = begun.ok_or_else(|| LoginError::Server {
        reason: "its login URL is not allowed".into(),
    })?;
    opener(address.as_str());
    let answer = redirect.answer(state, LOGIN_TIMEOUT).await;
    let arrived_at = match answer.ok_or(LoginError::Abandoned)? {
        LoginAnswer::Allowed(url) => url,
        LoginAnswer::Denied(reason) => return Err(LoginError::Denied { reason }),
    };
    let _lock = authority.store.lock().await?;
    authority.store.set_registered_secret(registered_secret);
    within_limit(async {
        let exchanged = session.handle_callback_url(&arrived_at).await;
        exchanged.map(drop).map_err(LoginError::from)
    })
    .await
}

fn authority(
    name: &UpstreamName,
    config: &UpstreamConfig,
    data_dir: &Path,
) -> Result<Authority, LoginError> {
    config.validate().map_err(UpstreamConfigError::from)?;
    let oauth = (config.credentials.as_ref()).and_then(UpstreamCredentials::oauth);
    let settings = oauth.filter(|settings| settings.grant == OAuthGrant::AuthorizationCode);
    let (Some(settings), Some(url)) = (settings, &config.url) else {
        return Err(LoginError::NotNeeded { name: name.clone() });
    };
    let (_, url) = split_prefix(url);
    let url = Url::parse(url).map_err(UpstreamConfigError::Url)?;
    Ok(Authority::new(name.clone(), url, settings, data_dir)?)
}

/// Finds the authorization server and registers the proxy if necessary. Returns the started login,
/// and the secret of a new registration.
async fn begin(
    authority: &Authority,
    redirect: String,
) -> Result<(AuthorizationSession, Option<SecretString>), LoginError> {
    let settings = &authority.settings;
    let (mut manager, metadata) = authority.manager().await?;
    let mut secret = None;
    let mut request = AuthorizationRequest::new(&redirect)
        .with_scopes(settings.scopes.clone())
        .with_initial_scope_selection();
    if let Some(id) = &settings.client_id {
        request = request.with_preregistered_client(id);
        if let Some(secret) = &settings.client_secret {
            request = request.with_client_secret(secret.expose_secret());
        }
    } else if let Some(url) = &settings.client_metadata_url
        && supports_metadata_urls(&metadata)
    {
        request = request.with_client_metadata_url(url);
    } else {
        let registered = register(&mut manager, &settings.scopes, &redirect).await?;
        request = request.with_preregistered_client(registered.0);
        if let Some(text) = registered.1 {
            request = request.with_client_secret(&text);
            secret = Some(text.into());
        }
    }
    let session = AuthorizationSession::new(manager, request).await;
    Ok((session.map_err(|(_, error)| error)?, secret))
}

/// Registers the proxy; returns its id, and its secret if it got one. rmcp would lose the secret,
/// which is necessary to refresh the token.
async fn register(
    manager: &mut AuthorizationManager,
    scopes: &[String],
    redirect: &str,
) -> Result<(String, Option<String>), AuthError> {
    let mut scopes = scopes.to_vec();
    if scopes.is_empty() {
        scopes = manager.select_initial_scopes(&[]).await;
    }
    let scopes: Vec<&str> = scopes.iter().map(String::as_str).collect();
    let client = manager
        .register_client(CLIENT_NAME, redirect, &scopes)
        .await?;
    Ok((client.client_id, client.client_secret))
}

/// Returns whether an authorization server accepts the URL of a metadata document as a client id.
fn supports_metadata_urls(metadata: &AuthorizationMetadata) -> bool {
    const KEY: &str = "client_id_metadata_document_supported";
    metadata.additional_fields.get(KEY) == Some(&serde_json::Value::Bool(true))
}

fn state_of(address: &Url) -> Option<String> {
    let mut pairs = address.query_pairs();
    let (_, state) = pairs.find(|(key, _)| key == "state")?;
    Some(state.into_owned())
}
