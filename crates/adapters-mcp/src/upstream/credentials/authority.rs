//! Obtains tokens from the credentials file, or from the authorization server of an upstream.
//!
//! rmcp implements the protocol: it finds the authorization server (RFC 9728, RFC 8414), names the
//! resource (RFC 8707), proves the possession of codes (RFC 7636), and refreshes tokens.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use oauth2::TokenResponse;
use riglm_app::clock::SystemClock;
use riglm_domain::id::UpstreamName;
use riglm_ports::clock::Clock;
use rmcp::transport::auth::{
    AuthError, AuthorizationManager, AuthorizationMetadata, ClientCredentialsConfig,
    CredentialStore, OAuthClientConfig,
};
use secrecy::{ExposeSecret, SecretString};
use tracing::instrument::WithSubscriber;
use tracing::subscriber::NoSubscriber;
use url::Url;

use super::super::config::UpstreamConfigError;
use super::guarded_client::GuardedClient;
use super::section::{OAuthGrant, OAuthSettings};
use super::store::{CredentialStoreError, FileCredentialStore, StoredFile};

/// The timeout for finding the authorization server and requesting a token.
const NETWORK_TIMEOUT: Duration = Duration::from_secs(45);
/// The maximum time before its expiry at which a token is renewed, because a request takes a while
/// to arrive.
const LONGEST_MARGIN: Duration = Duration::from_secs(30);
/// The fraction (1/n) of its lifetime before expiry at which a short-lived token is renewed.
const MARGIN_PART: u32 = 10;

/// Obtains the tokens for one upstream.
#[derive(Debug)]
pub(super) struct Authority {
    pub(super) upstream: UpstreamName,
    pub(super) resource: Url,
    pub(super) settings: OAuthSettings,
    pub(super) store: FileCredentialStore,
    pub(super) client: Arc<GuardedClient>,
}

/// A valid token.
#[derive(Debug)]
pub(super) struct IssuedToken {
    pub(super) token: SecretString,
    /// The time from now until it must be renewed; `None` if its lifetime is unknown.
    pub(super) good_for: Option<Duration>,
}

/// The reason why there is no token.
#[derive(Debug, thiserror::Error)]
pub(super) enum TokenFailure {
    /// A person must log in.
    #[error("login needed")]
    NeedsLogin,
    /// The credentials file cannot be used.
    #[error("failed to use the token file")]
    Store(#[from] CredentialStoreError),
    #[error("the authorization server issued no token")]
    OAuth(#[from] AuthError),
    /// The authorization server took too long.
    #[error("the authorization server did not answer in time")]
    TimedOut,
}

impl Authority {
    /// Returns the authority for tokens of the server at `resource`, which are stored under
    /// `data_dir`.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamConfigError::Client`] when the HTTP client cannot be set up.
    pub(super) fn new(
        upstream: UpstreamName,
        resource: Url,
        settings: OAuthSettings,
        data_dir: &Path,
    ) -> Result<Self, UpstreamConfigError> {
        Ok(Self {
            client: Arc::new(GuardedClient::new(&resource)?),
            store: FileCredentialStore::new(data_dir, &upstream, resource.as_str()),
            upstream,
            resource,
            settings,
        })
    }

    /// Returns a token other than `refused`: the stored one, or a new one.
    pub(super) async fn obtain(&self, refused: Option<&str>) -> Result<IssuedToken, TokenFailure> {
        let stored = self.store.read().await?;
        if let Some(issued) = self.usable_token(stored.as_ref(), refused) {
            return Ok(issued);
        }
        if stored.is_none() && self.settings.grant == OAuthGrant::AuthorizationCode {
            return Err(TokenFailure::NeedsLogin);
        }
        let _lock = self.store.lock().await?;
        // Another process may have renewed it while this one waited.
        let stored = self.store.read().await?;
        if let Some(issued) = self.usable_token(stored.as_ref(), refused) {
            return Ok(issued);
        }
        let renewal = async {
            match self.settings.grant {
                OAuthGrant::ClientCredentials => self.request_client_credentials().await,
                OAuthGrant::AuthorizationCode => match stored.filter(|found| self.is_own(found)) {
                    Some(stored) => self.refresh(stored).await,
                    None => Err(TokenFailure::NeedsLogin),
                },
            }
        };
        within_limit(renewal).await?;
        let renewed = self.store.read().await?;
        let issued = (renewed.as_ref()).and_then(|stored| self.issued_token(stored));
        issued.ok_or(TokenFailure::NeedsLogin)
    }

    /// Returns a manager for the authorization server, and the metadata of the server.
    pub(super) async fn manager(
        &self,
    ) -> Result<(AuthorizationManager, AuthorizationMetadata), AuthError> {
        let client = self.client.clone();
        let resource = self.resource.clone();
        let mut manager =
            AuthorizationManager::new_with_oauth_http_client(resource, client).await?;
        manager.set_credential_store(self.store.clone());
        let found = manager.resolve_metadata().await?;
        manager.set_metadata(found.metadata.clone());
        Ok((manager, found.metadata))
    }

    async fn refresh(&self, stored: StoredFile) -> Result<(), TokenFailure> {
        let (mut manager, _) = self.manager().await?;
        if !manager.initialize_from_store().await? {
            return Err(TokenFailure::NeedsLogin);
        }
        let configured = self.settings.client_secret.as_ref();
        let secret = configured.map(|secret| secret.expose_secret().to_owned());
        if let Some(secret) = secret.or(stored.client_secret) {
            // The redirect URI is not used, but it is mandatory.
            let client =
                OAuthClientConfig::new(stored.credentials.client_id, self.resource.as_str());
            manager.configure_client(client.with_client_secret(secret))?;
        }
        match manager.refresh_token().await {
            Ok(_) => Ok(()),
            Err(AuthError::TokenRefreshRejected(_)) => {
                // The token would be rejected each time.
                self.store.clear().await?;
                Err(TokenFailure::NeedsLogin)
            }
            Err(AuthError::AuthorizationRequired) => Err(TokenFailure::NeedsLogin),
            Err(error) => Err(error.into()),
        }
    }

    async fn request_client_credentials(&self) -> Result<(), TokenFailure> {
        let (mut manager, _) = self.manager().await?;
        let mut scopes = self.settings.scopes.clone();
        if scopes.is_empty() {
            scopes = manager.select_initial_scopes(&[]).await;
            // This grant has no refresh tokens.
            scopes.retain(|scope| scope != "offline_access");
        }
        let secret = self.settings.client_secret.as_ref();
        let config = ClientCredentialsConfig::ClientSecret {
            client_id: self.settings.client_id.clone().unwrap_or_default(),
            client_secret: secret.map_or_else(String::new, |text| text.expose_secret().to_owned()),
            scopes,
            resource: Some(self.resource.to_string()),
        };
        manager.validate_client_credentials_metadata(&config)?;
        manager.configure_client_credentials(&config)?;
        manager.exchange_client_credentials(&config).await?;
        Ok(())
    }

    /// Returns the stored token if it is neither `refused` nor about to expire.
    fn usable_token(
        &self,
        stored: Option<&StoredFile>,
        refused: Option<&str>,
    ) -> Option<IssuedToken> {
        let issued = self.issued_token(stored?)?;
        let is_good = issued.good_for.is_none_or(|good_for| !good_for.is_zero())
            && Some(issued.token.expose_secret()) != refused;
        is_good.then_some(issued)
    }

    fn issued_token(&self, stored: &StoredFile) -> Option<IssuedToken> {
        if !self.is_own(stored) {
            return None;
        }
        let response = stored.credentials.token_response.as_ref()?;
        let good_for = response.expires_in().map(|lifetime| {
            let received = stored.credentials.token_received_at.unwrap_or_default();
            let now = u64::try_from(SystemClock.now().as_second()).unwrap_or_default();
            let age = Duration::from_secs(now.saturating_sub(received));
            let margin = (lifetime / MARGIN_PART).min(LONGEST_MARGIN);
            lifetime.saturating_sub(age).saturating_sub(margin)
        });
        Some(IssuedToken {
            token: response.access_token().secret().as_str().into(),
            good_for,
        })
    }

    /// Returns whether the stored credentials belong to the configured client.
    fn is_own(&self, stored: &StoredFile) -> bool {
        let configured = self.settings.client_id.as_ref();
        configured.is_none_or(|id| *id == stored.credentials.client_id)
    }
}

/// Runs OAuth requests with a time limit.
///
/// Log output of rmcp is dropped: at debug level it contains codes and responses with tokens.
pub(super) async fn within_limit<T, E: From<TokenFailure>>(
    work: impl Future<Output = Result<T, E>>,
) -> Result<T, E> {
    let quiet = work.with_subscriber(NoSubscriber::default());
    tokio::time::timeout(NETWORK_TIMEOUT, quiet)
        .await
        .unwrap_or_else(|_| Err(TokenFailure::TimedOut.into()))
}
