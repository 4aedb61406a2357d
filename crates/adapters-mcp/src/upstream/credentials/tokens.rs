//! The token for the requests to one upstream, and its renewal.
//!
//! Requests take the token from memory. When it expires, or a server refuses it, one request renews
//! it, and the others wait for the result.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::HeaderValue;
use riglm_ports::upstream::UpstreamError;
use rmcp::transport::auth::AuthError;
use secrecy::ExposeSecret;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::authority::{Authority, IssuedToken, TokenFailure};

/// The time for which a failure is repeated to later requests without a new attempt.
const FAILURE_HOLDS: Duration = Duration::from_secs(5);
/// If a server refuses a token that is younger than this, another token will not help.
const MIN_AGE: Duration = Duration::from_secs(10);

pub(in super::super) struct Tokens {
    authority: Authority,
    current: ArcSwapOption<Token>,
    renewal: Mutex<Renewal>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("authority", &self.authority)
            .finish_non_exhaustive()
    }
}

struct Token {
    /// `Bearer` and the token, marked as a secret.
    header: HeaderValue,
    due_at: Option<Instant>,
    taken_at: Instant,
}

impl Token {
    fn is_due(&self) -> bool {
        self.due_at.is_some_and(|due_at| due_at <= Instant::now())
    }
}

#[derive(Default)]
struct Renewal {
    failed: Option<(Instant, UpstreamError)>,
    /// The time of the last replacement of a refused token.
    replaced_at: Option<Instant>,
}

const SCHEME: &str = "Bearer ";

impl Tokens {
    pub(super) fn new(authority: Authority) -> Self {
        Self {
            authority,
            current: ArcSwapOption::empty(),
            renewal: Mutex::default(),
        }
    }

    /// Returns the value of the header `Authorization` for the next request.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Unauthorized`] when there is no token and getting one needs a
    /// person, and [`UpstreamError::Unreachable`] when the authorization server does not answer.
    pub(in super::super) async fn current(self: &Arc<Self>) -> Result<HeaderValue, UpstreamError> {
        if let Some(token) = self.current.load().as_ref().filter(|token| !token.is_due()) {
            return Ok(token.header.clone());
        }
        let token = self.renew_on_task(None).await?;
        token.ok_or_else(|| self.log_failure(&TokenFailure::NeedsLogin))
    }

    /// Returns the replacement of a token that the server refused; `None` when another one would
    /// not help.
    ///
    /// # Errors
    ///
    /// As [`Self::current`] does.
    pub(in super::super) async fn after_refusal(
        self: &Arc<Self>,
        refused: &HeaderValue,
    ) -> Result<Option<HeaderValue>, UpstreamError> {
        self.renew_on_task(Some(refused.clone())).await
    }

    /// Renews the token on a separate task. A refresh token may be valid only once, so a caller
    /// that is dropped during the renewal must not lose its result.
    async fn renew_on_task(
        self: &Arc<Self>,
        refused: Option<HeaderValue>,
    ) -> Result<Option<HeaderValue>, UpstreamError> {
        let tokens = Arc::clone(self);
        let task = tokio::spawn(async move { tokens.renew(refused, Instant::now()).await });
        task.await.unwrap_or_else(|_| {
            Err(UpstreamError::Unreachable {
                reason: "the renewal of its token was interrupted",
            })
        })
    }

    async fn renew(
        &self,
        refused: Option<HeaderValue>,
        asked_at: Instant,
    ) -> Result<Option<HeaderValue>, UpstreamError> {
        let mut renewal = self.renewal.lock().await;
        // Another request may have renewed the token while this one waited for the lock.
        if let Some(token) = self.current.load().as_ref() {
            let is_new = token.taken_at >= asked_at;
            if Some(&token.header) != refused.as_ref() && (is_new || !token.is_due()) {
                return Ok(Some(token.header.clone()));
            }
        }
        if let Some((at, error)) = &renewal.failed
            && (*at >= asked_at || at.elapsed() < FAILURE_HOLDS)
        {
            return Err(error.clone());
        }
        let was_replaced = renewal.replaced_at.is_some_and(|at| at.elapsed() < MIN_AGE);
        if refused.is_some() && was_replaced {
            return Ok(None);
        }
        let refused = refused.as_ref().and_then(|value| value.to_str().ok());
        let refused = refused.and_then(|value| value.strip_prefix(SCHEME));
        match self.authority.obtain(refused).await {
            Ok(issued) => {
                renewal.failed = None;
                if refused.is_some() {
                    renewal.replaced_at = Some(Instant::now());
                }
                self.set_current(&issued).map(Some)
            }
            Err(failure) => {
                let error = self.log_failure(&failure);
                // Not remembered, so that a login takes effect at once.
                let may_pass = !matches!(failure, TokenFailure::NeedsLogin);
                renewal.failed = may_pass.then(|| (Instant::now(), error.clone()));
                self.current.store(None);
                Err(error)
            }
        }
    }

    fn set_current(&self, issued: &IssuedToken) -> Result<HeaderValue, UpstreamError> {
        let text = format!("{SCHEME}{}", issued.token.expose_secret());
        let Ok(mut header) = HeaderValue::from_str(&text) else {
            return Err(UpstreamError::Unauthorized {
                reason: "its authorization server issued an invalid token".into(),
            });
        };
        header.set_sensitive(true);
        let now = Instant::now();
        self.current.store(Some(Arc::new(Token {
            header: header.clone(),
            due_at: issued
                .good_for
                .and_then(|good_for| now.checked_add(good_for)),
            taken_at: now,
        })));
        Ok(header)
    }

    /// Logs the reason why there is no token and returns it as an error. Neither contains texts of
    /// the authorization server.
    fn log_failure(&self, failure: &TokenFailure) -> UpstreamError {
        let upstream = &self.authority.upstream;
        let unauthorized = |reason: String| UpstreamError::Unauthorized { reason };
        let (error, cause) = match failure {
            TokenFailure::NeedsLogin => {
                return unauthorized(format!("login needed: run `riglm login {upstream}`"));
            }
            TokenFailure::Store(error) => (
                unauthorized("failed to use the stored token".into()),
                error.to_string(),
            ),
            TokenFailure::TimedOut => (
                UpstreamError::Unreachable {
                    reason: "its authorization server did not answer in time",
                },
                "timeout".into(),
            ),
            TokenFailure::OAuth(error) => (
                UpstreamError::Unreachable {
                    reason: "its authorization server issued no token",
                },
                cause_of(error).into(),
            ),
        };
        tracing::warn!(%upstream, "failed to get a token for upstream {upstream}: {cause}");
        error
    }
}

/// Returns the cause of an error as a fixed text.
fn cause_of(error: &AuthError) -> &'static str {
    match error {
        AuthError::DiscoveryRequestFailed { .. } => "failed to fetch its OAuth metadata",
        AuthError::MetadataError(_)
        | AuthError::ProtectedResourceMetadataInvalid { .. }
        | AuthError::AuthorizationServersUnavailable { .. }
        | AuthError::AuthorizationServerMismatch { .. }
        | AuthError::AuthorizationServerMissingIssuer { .. }
        | AuthError::NoAuthorizationSupport => {
            "its OAuth metadata has no usable authorization server"
        }
        AuthError::TokenRefreshFailed(_) => "failed to refresh the token",
        AuthError::ClientCredentialsError(_) => "the grant client_credentials returned no token",
        AuthError::CredentialStoreError(_) => "failed to store the token",
        _ => "the authorization server issued no token",
    }
}
