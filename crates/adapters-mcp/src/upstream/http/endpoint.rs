//! One HTTP server: the client with its connection pool, and the rules for every request to it.

use std::error::Error as StdError;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{HeaderMap, LOCATION};
use http::{Method, StatusCode};
use reqwest::{Client, Request, Response};
use riglm_domain::id::UpstreamName;
use riglm_ports::upstream::UpstreamError;
use tokio::sync::oneshot;
use url::{Host, Url};

use super::super::config::UpstreamConfigError;
use super::super::credentials::Tokens;
use super::address::{AddressRefused, GuardedResolver, NotResolved, is_allowed, is_local};
use super::known_lists::KnownLists;
use super::local_client::LocalClient;
use super::post_body::PostBody;
use super::reply;
use riglm_adapters_programs::{REFUSED, UpstreamLimits};

/// Common servers close an idle connection after 5 s. Closing it earlier avoids sending a request
/// on a connection that the server is closing; such a request could not be repeated.
pub(super) const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);
pub(super) const MAX_IDLE_CONNECTIONS: usize = 256;
/// Detects peers that vanished silently, even below a stream that is silent for hours.
pub(super) const KEEPALIVE: Duration = Duration::from_secs(30);
const MAX_REDIRECTS: usize = 3;

pub(in super::super) struct Endpoint {
    pub(in super::super) name: UpstreamName,
    pub(in super::super) url: Url,
    pub(in super::super) limits: UpstreamLimits,
    /// The configured headers, including credentials.
    pub(in super::super) headers: HeaderMap,
    client: Client,
    pub(super) known_lists: KnownLists,
    /// The client for a server on this machine.
    local: Option<LocalClient>,
    /// The source of credentials that change, if the upstream has them.
    tokens: Option<Arc<Tokens>>,
}

impl std::fmt::Debug for Endpoint {
    /// Omits the headers and all of the URL but its origin, because they may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Endpoint")
            .field("name", &self.name)
            .field("origin", &self.url.origin().ascii_serialization())
            .field("limits", &self.limits)
            .finish_non_exhaustive()
    }
}

impl Endpoint {
    /// Returns the endpoint at `url`. Every request carries `headers` and, if there are `tokens`,
    /// one of them.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamConfigError`] for a URL that is not http or https or has an address that
    /// is not allowed, and when the TLS set-up of the system cannot be used.
    pub(in super::super) fn new(
        name: UpstreamName,
        url: Url,
        headers: HeaderMap,
        tokens: Option<Arc<Tokens>>,
        limits: UpstreamLimits,
    ) -> Result<Self, UpstreamConfigError> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(UpstreamConfigError::Scheme);
        }
        match url.host() {
            Some(Host::Ipv4(v4)) if !is_allowed(v4.into()) => {
                return Err(UpstreamConfigError::Address);
            }
            Some(Host::Ipv6(v6)) if !is_allowed(v6.into()) => {
                return Err(UpstreamConfigError::Address);
            }
            Some(_) => {}
            None => return Err(UpstreamConfigError::Scheme),
        }
        // Fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .dns_resolver(GuardedResolver::Everywhere)
            .connect_timeout(limits.connect_timeout)
            .tcp_nodelay(true)
            .tcp_keepalive(KEEPALIVE)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            .pool_max_idle_per_host(MAX_IDLE_CONNECTIONS)
            // `execute` follows redirects itself, within the same origin.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        if url.scheme() == "http" {
            // Without TLS, loading the certificates of the system would only cost time and memory,
            // and would need an installed store.
            builder = builder.tls_certs_only([]);
        }
        if is_local(&url) {
            builder = builder.no_proxy();
        }
        let client = builder.build().map_err(UpstreamConfigError::Client)?;
        Ok(Self {
            name,
            known_lists: KnownLists::default(),
            local: LocalClient::new(&url, limits.connect_timeout)
                .map(|local| local.with_patience(limits.patience)),
            url,
            limits,
            headers,
            client,
            tokens,
        })
    }

    /// Posts `message` to `url` and returns the head of the response, whatever its status. `taken`
    /// is signalled when the message has been handed to a connection, and dropped if it never is.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Unreachable`] when no connection could be made,
    /// [`UpstreamError::Lost`] when it broke before the response, and
    /// [`UpstreamError::Unauthorized`] when there is no token.
    pub(in super::super) async fn post(
        &self,
        url: &Url,
        headers: &HeaderMap,
        message: Bytes,
        mut taken: Option<oneshot::Sender<()>>,
    ) -> Result<Response, UpstreamError> {
        let body = || Some(PostBody::new(message.clone(), taken.take()));
        self.execute(Method::POST, url, headers, body).await
    }

    /// Sends a request without a body and returns the head of the response.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::post`] does.
    pub(in super::super) async fn request(
        &self,
        method: Method,
        headers: &HeaderMap,
    ) -> Result<Response, UpstreamError> {
        self.execute(method, &self.url, headers, || None).await
    }

    /// Sends a request. Retries it with a new token if the server refused the token, which means
    /// that the request was not processed. Follows redirects to another path.
    async fn execute(
        &self,
        method: Method,
        url: &Url,
        headers: &HeaderMap,
        mut body: impl FnMut() -> Option<PostBody>,
    ) -> Result<Response, UpstreamError> {
        let mut token = match &self.tokens {
            Some(tokens) => Some(tokens.current().await?),
            None => None,
        };
        let mut may_renew = true;
        let mut target = url.clone();
        let mut n_redirects = 0;
        loop {
            let mut headers = headers.clone();
            if let Some(token) = &token {
                token.insert_into(&mut headers);
            }
            let response = self.send(method.clone(), &target, headers, body()).await?;
            if response.status() == StatusCode::UNAUTHORIZED
                && std::mem::take(&mut may_renew)
                && let (Some(tokens), Some(refused)) = (&self.tokens, &token)
                && let Some(renewed) = tokens.after_refusal(refused).await?
            {
                reply::drain(response).await;
                token = Some(renewed);
                continue;
            }
            match redirect(&response, &target) {
                Some(next) if n_redirects < MAX_REDIRECTS => target = next,
                _ => return Ok(response),
            }
            n_redirects += 1;
        }
    }

    /// Sends a request once and returns the head of the response.
    async fn send(
        &self,
        method: Method,
        target: &Url,
        headers: HeaderMap,
        body: Option<PostBody>,
    ) -> Result<Response, UpstreamError> {
        if let Some(local) = &self.local {
            let body = body.unwrap_or_else(PostBody::empty);
            return local.execute(method, target, headers, body).await;
        }
        let mut request = Request::new(method, target.clone());
        *request.headers_mut() = headers;
        *request.body_mut() = body.map(reqwest::Body::wrap);
        let sent = self.client.execute(request).await;
        sent.map_err(|error| failure(&error))
    }
}

/// Returns the target of a redirect from `url`. Only targets within the same origin are allowed, because
/// credentials are sent there, and only the two statuses that keep the method and the body.
pub(in super::super) fn redirect(response: &Response, url: &Url) -> Option<Url> {
    let status = response.status();
    if status != StatusCode::TEMPORARY_REDIRECT && status != StatusCode::PERMANENT_REDIRECT {
        return None;
    }
    let location = response.headers().get(LOCATION)?.to_str().ok()?;
    let target = url.join(location).ok()?;
    (target.origin() == url.origin()).then_some(target)
}

/// Returns the error for a request without a response. The texts are fixed, because messages of the
/// libraries contain addresses and URLs.
pub(in super::super) fn failure(error: &reqwest::Error) -> UpstreamError {
    let failed = FailedRequest {
        is_connect: error.is_connect(),
        is_timeout: error.is_timeout(),
        source: error.source(),
    };
    failed.into_error()
}

/// A request without a response, as a client reports it.
pub(super) struct FailedRequest<'a> {
    /// Whether no connection could be made.
    pub(super) is_connect: bool,
    pub(super) is_timeout: bool,
    pub(super) source: Option<&'a (dyn StdError + 'static)>,
}

impl FailedRequest<'_> {
    pub(super) fn into_error(self) -> UpstreamError {
        if !self.is_connect {
            return UpstreamError::Lost {
                reason: "the connection ended before the answer".into(),
            };
        }
        let default = if self.is_timeout {
            "connection timeout"
        } else {
            "connection failed"
        };
        UpstreamError::Unreachable {
            reason: connect_failure(self.source).unwrap_or(default),
        }
    }
}

/// Returns why no connection could be made, by the causes of the error.
fn connect_failure(mut cause: Option<&(dyn StdError + 'static)>) -> Option<&'static str> {
    let mut reason = None;
    while let Some(error) = cause {
        if error.is::<AddressRefused>() {
            reason = Some("the address is not allowed");
        } else if error.is::<NotResolved>() {
            reason = Some("the name could not be resolved");
        } else if error.is::<rustls::Error>() {
            reason = Some("TLS failed");
        } else if let Some(error) = error.downcast_ref::<io::Error>() {
            match error.kind() {
                io::ErrorKind::ConnectionRefused => reason = Some(REFUSED),
                io::ErrorKind::TimedOut => reason = Some("connection timeout"),
                io::ErrorKind::HostUnreachable | io::ErrorKind::NetworkUnreachable => {
                    reason = Some("no route to the server");
                }
                _ => {}
            }
            // The error that an I/O error wraps is not among its sources.
            if error
                .get_ref()
                .is_some_and(<dyn StdError + Send + Sync>::is::<rustls::Error>)
            {
                reason = Some("TLS failed");
            }
        }
        cause = error.source();
    }
    reason
}
