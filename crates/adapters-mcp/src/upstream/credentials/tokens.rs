//! The credentials for the requests to one upstream, and their renewal.
//!
//! Requests take them from memory. When they expire, or a server refuses them, one request renews
//! them, and the others wait for the result.

use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use http::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use riglm_domain::id::UpstreamName;
use riglm_ports::upstream::UpstreamError;
use rmcp::transport::auth::AuthError;
use secrecy::ExposeSecret;
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::authority::{Authority, IssuedToken, TokenFailure};
use super::program::{CredentialProgram, ProgramFailure};

/// The time for which a failure is repeated to later requests without a new attempt.
const FAILURE_HOLDS: Duration = Duration::from_secs(5);
/// If a server refuses a token that is younger than this, another token will not help.
const MIN_AGE: Duration = Duration::from_secs(10);

/// The headers that authorize a request. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub(in super::super) struct CredentialHeaders(Arc<[(HeaderName, HeaderValue)]>);

impl CredentialHeaders {
    /// Returns headers whose values are marked as secrets.
    pub(super) fn new(headers: impl IntoIterator<Item = (HeaderName, HeaderValue)>) -> Self {
        let marked = headers.into_iter().map(|(name, mut value)| {
            value.set_sensitive(true);
            (name, value)
        });
        Self(marked.collect())
    }

    pub(in super::super) fn insert_into(&self, request: &mut HeaderMap) {
        for (name, value) in self.0.iter() {
            request.insert(name.clone(), value.clone());
        }
    }

    /// Returns the token of the header `Authorization`, if it is a bearer token.
    fn bearer(&self) -> Option<&str> {
        let (_, value) = self.0.iter().find(|(name, _)| *name == AUTHORIZATION)?;
        value.to_str().ok()?.strip_prefix(SCHEME)
    }
}

/// The place that credentials come from.
#[derive(Debug)]
pub(super) enum TokenSource {
    /// An authorization server.
    Authority(Authority),
    /// A program that prints them.
    Program(CredentialProgram),
}

pub(super) struct IssuedHeaders {
    pub(super) headers: CredentialHeaders,
    /// The time from now until they must be renewed; `None` if it is unknown.
    pub(super) good_for: Option<Duration>,
}

/// The reason why there are no credentials.
#[derive(Debug, thiserror::Error)]
enum CredentialFailure {
    #[error(transparent)]
    Token(#[from] TokenFailure),
    /// The token cannot be a part of a header.
    #[error("the authorization server issued an invalid token")]
    Malformed,
    #[error(transparent)]
    Program(#[from] ProgramFailure),
}

impl TokenSource {
    fn upstream(&self) -> &UpstreamName {
        match self {
            Self::Authority(authority) => &authority.upstream,
            Self::Program(program) => program.upstream(),
        }
    }

    /// Returns credentials with a token other than `refused`.
    async fn obtain(&self, refused: Option<&str>) -> Result<IssuedHeaders, CredentialFailure> {
        match self {
            Self::Authority(authority) => {
                let IssuedToken { token, good_for } = authority.obtain(refused).await?;
                let text = format!("{SCHEME}{}", token.expose_secret());
                let value =
                    HeaderValue::from_str(&text).map_err(|_| CredentialFailure::Malformed)?;
                Ok(IssuedHeaders {
                    headers: CredentialHeaders::new([(AUTHORIZATION, value)]),
                    good_for,
                })
            }
            Self::Program(program) => Ok(program.run().await?),
        }
    }
}

pub(in super::super) struct Tokens {
    source: TokenSource,
    current: ArcSwapOption<Token>,
    renewal: Mutex<Renewal>,
}

impl std::fmt::Debug for Tokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens")
            .field("source", &self.source)
            .finish_non_exhaustive()
    }
}

struct Token {
    headers: CredentialHeaders,
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
    pub(super) fn new(source: TokenSource) -> Self {
        Self {
            source,
            current: ArcSwapOption::empty(),
            renewal: Mutex::default(),
        }
    }

    /// Returns the headers for the next request.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Unauthorized`] when there are none and getting them needs a
    /// person, and [`UpstreamError::Unreachable`] when the authorization server does not answer.
    pub(in super::super) async fn current(
        self: &Arc<Self>,
    ) -> Result<CredentialHeaders, UpstreamError> {
        if let Some(token) = self.current.load().as_ref().filter(|token| !token.is_due()) {
            return Ok(token.headers.clone());
        }
        let token = self.renew_on_task(None).await?;
        token.ok_or_else(|| self.log_failure(&TokenFailure::NeedsLogin.into()))
    }

    /// Returns the replacement of headers that the server refused; `None` when others would not
    /// help.
    ///
    /// # Errors
    ///
    /// As [`Self::current`] does.
    pub(in super::super) async fn after_refusal(
        self: &Arc<Self>,
        refused: &CredentialHeaders,
    ) -> Result<Option<CredentialHeaders>, UpstreamError> {
        self.renew_on_task(Some(refused.clone())).await
    }

    /// Renews the token on a separate task. A refresh token may be valid only once, so a caller
    /// that is dropped during the renewal must not lose its result.
    async fn renew_on_task(
        self: &Arc<Self>,
        refused: Option<CredentialHeaders>,
    ) -> Result<Option<CredentialHeaders>, UpstreamError> {
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
        refused: Option<CredentialHeaders>,
        asked_at: Instant,
    ) -> Result<Option<CredentialHeaders>, UpstreamError> {
        let mut renewal = self.renewal.lock().await;
        // Another request may have renewed the token while this one waited for the lock.
        if let Some(token) = self.current.load().as_ref() {
            let is_new = token.taken_at >= asked_at;
            if Some(&token.headers) != refused.as_ref() && (is_new || !token.is_due()) {
                return Ok(Some(token.headers.clone()));
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
        let token = refused.as_ref().and_then(CredentialHeaders::bearer);
        match self.source.obtain(token).await {
            Ok(issued) => {
                renewal.failed = None;
                if refused.is_some() {
                    renewal.replaced_at = Some(Instant::now());
                }
                Ok(Some(self.set_current(issued)))
            }
            Err(failure) => {
                let error = self.log_failure(&failure);
                // Not remembered, so that a login takes effect at once.
                let needs_login =
                    matches!(failure, CredentialFailure::Token(TokenFailure::NeedsLogin));
                let may_pass = !needs_login;
                renewal.failed = may_pass.then(|| (Instant::now(), error.clone()));
                self.current.store(None);
                Err(error)
            }
        }
    }

    fn set_current(&self, issued: IssuedHeaders) -> CredentialHeaders {
        let now = Instant::now();
        self.current.store(Some(Arc::new(Token {
            headers: issued.headers.clone(),
            due_at: issued
                .good_for
                .and_then(|good_for| now.checked_add(good_for)),
            taken_at: now,
        })));
        issued.headers
    }

    /// Logs the reason why there is no token and returns it as an error. Neither contains texts of
    /// the authorization server.
    fn log_failure(&self, failure: &CredentialFailure) -> UpstreamError {
        let upstream = self.source.upstream();
        let unauthorized = |reason: String| UpstreamError::Unauthorized { reason };
        let (error, cause) = match failure {
            CredentialFailure::Malformed => (
                unauthorized("its authorization server issued an invalid token".into()),
                failure.to_string(),
            ),
            CredentialFailure::Program(failure) => {
                (unauthorized(failure.reason().into()), failure.to_string())
            }
            CredentialFailure::Token(TokenFailure::NeedsLogin) => {
                return unauthorized(format!("login needed: run `riglm login {upstream}`"));
            }
            CredentialFailure::Token(TokenFailure::Store(error)) => (
                unauthorized("failed to use the stored token".into()),
                error.to_string(),
            ),
            CredentialFailure::Token(TokenFailure::TimedOut) => (
                UpstreamError::Unreachable {
                    reason: "its authorization server did not answer in time",
                },
                "timeout".into(),
            ),
            CredentialFailure::Token(TokenFailure::OAuth(error)) => (
                UpstreamError::Unreachable {
                    reason: "its authorization server issued no token",
                },
                cause_of(error).into(),
            ),
        };
        tracing::warn!(%upstream, "failed to get credentials for upstream {upstream}: {cause}");
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
