//! Logging in to an upstream: a person allows it in a browser, once, and the token is kept.

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
use super::authority::{Authority, Failure, within_limit};
use super::redirect::{Answer, Redirect, printable};
use super::section::{OAuthGrant, UpstreamCredentials};
use super::store::CredentialStoreError;

/// How long a person may take.
const LOGIN_TIMEOUT: Duration = Duration::from_mins(10);
/// What the proxy calls itself where it registers.
const CLIENT_NAME: &str = "riglm";

/// Why a login came to nothing.
#[derive(Debug, thiserror::Error)]
pub enum LoginError {
    /// The upstream cannot be used as it is configured.
    #[error(transparent)]
    Config(#[from] UpstreamConfigError),
    /// There is nothing to log in to.
    #[error(
        "upstream {name} needs no login: its credentials are not of type oauth with the grant authorization_code"
    )]
    NotNeeded {
        /// The upstream.
        name: UpstreamName,
    },
    /// The browser would find nobody.
    #[error("failed to listen for the browser")]
    Listen(#[source] io::Error),
    /// The authorization server could not be found, or did not do what it should.
    #[error("authorization server of the upstream: {reason}")]
    Server {
        /// What happened, cut and without control characters. It may repeat what the server said.
        reason: String,
    },
    /// The authorization server took too long.
    #[error("authorization server of the upstream took too long")]
    TimedOut,
    /// The person, or the server on its own, said no.
    #[error("login was denied: {reason}")]
    Denied {
        /// What the server calls it, cut and without control characters.
        reason: String,
    },
    /// Nobody came back from the browser.
    #[error("nobody logged in within {} minutes", LOGIN_TIMEOUT.as_secs() / 60)]
    Abandoned,
    /// The token cannot be kept.
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

impl From<Failure> for LoginError {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Store(error) => Self::Store(error),
            Failure::OAuth(error) => error.into(),
            Failure::TimedOut => Self::TimedOut,
            Failure::NeedsLogin => Self::Abandoned,
        }
    }
}

/// Logs in to the upstream `name`: has `opener` show an address to a person, waits for the browser
/// to come back to this machine, and keeps the token under `data_dir`, where a proxy finds it.
///
/// The address is `http` or `https` and percent-encoded; it comes from the authorization server all
/// the same, so that `opener` must not have a shell read it.
///
/// # Errors
///
/// Returns [`LoginError`]; what was stored before stays then.
pub async fn login(
    name: &UpstreamName,
    config: &UpstreamConfig,
    data_dir: &Path,
    opener: impl FnOnce(&str),
) -> Result<(), LoginError> {
    let authority = authority(name, config, data_dir)?;
    let redirect = Redirect::bind(authority.settings.redirect_port)
        .await
        .map_err(LoginError::Listen)?;
    let (session, registered_secret) = within_limit(begin(&authority, redirect.uri())).await?;
    let address = Url::parse(session.get_authorization_url()).ok();
    // Whoever opens it may run a program for any other kind of address.
    let address = address.filter(|address| authority.client.may_go_to(address));
    let begun = address.and_then(|address| Some((state_of(&address)?, address)));
    let (state, address) = begun.ok_or_else(|| LoginError::Server {
        reason: "the address for the browser is not allowed".into(),
    })?;
    opener(address.as_str());
    let answer = redirect.answer(state, LOGIN_TIMEOUT).await;
    let arrived_at = match answer.ok_or(LoginError::Abandoned)? {
        Answer::Allowed(url) => url,
        Answer::Denied(reason) => return Err(LoginError::Denied { reason }),
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
    let oauth = config
        .credentials
        .as_ref()
        .and_then(UpstreamCredentials::oauth);
    let settings = oauth.filter(|settings| settings.grant == OAuthGrant::AuthorizationCode);
    let (Some(settings), Some(url)) = (settings, &config.url) else {
        return Err(LoginError::NotNeeded { name: name.clone() });
    };
    let (_, url) = split_prefix(url);
    let url = Url::parse(url).map_err(UpstreamConfigError::Url)?;
    Ok(Authority::new(name.clone(), url, settings, data_dir)?)
}

/// Finds the authorization server and makes the proxy known to it. Returns the login that was
/// begun, and the secret of a client that was registered for it.
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
        && takes_metadata_urls(&metadata)
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

/// Registers the proxy; returns its id and its secret, if it was given one. rmcp would forget the
/// secret, without which a token could not be renewed.
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

/// Returns whether an authorization server takes the address of a document for the id of a client.
fn takes_metadata_urls(metadata: &AuthorizationMetadata) -> bool {
    const KEY: &str = "client_id_metadata_document_supported";
    metadata.additional_fields.get(KEY) == Some(&serde_json::Value::Bool(true))
}

fn state_of(address: &Url) -> Option<String> {
    let mut pairs = address.query_pairs();
    let (_, state) = pairs.find(|(key, _)| key == "state")?;
    Some(state.into_owned())
}
