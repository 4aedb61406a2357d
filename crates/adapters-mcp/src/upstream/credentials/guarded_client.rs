//! The HTTP client of OAuth. The URLs of an authorization server come from the upstream and from
//! documents that it refers to, so they are trusted as little as an upstream.

use std::time::Duration;

use reqwest::{Client, Request, Response};
use rmcp::transport::auth::{
    OAuthHttpClient, OAuthHttpClientError, OAuthHttpClientFuture, OAuthHttpRedirectPolicy,
    OAuthHttpRequest,
};
use url::{Host, Url};

use super::super::config::UpstreamConfigError;
use super::super::http::address::{GuardedResolver, is_allowed, is_local};
use super::super::http::endpoint::{failure, redirect};
use super::super::http::reply::{BodyKind, collect};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_BODY_BYTES: usize = 1024 * 1024;
const MAX_REDIRECTS: usize = 3;

/// The reason why an OAuth request was not sent, or its response was rejected.
#[derive(Debug, thiserror::Error)]
enum RequestRefused {
    #[error("the address is not allowed")]
    Address,
    #[error("the server names addresses without TLS")]
    Downgrade,
    #[error("the request failed: {0}")]
    Failed(riglm_ports::upstream::UpstreamError),
}

/// Sends OAuth requests to URLs that the rules for the upstream allow.
#[derive(Debug)]
pub(super) struct GuardedClient {
    client: Client,
    /// Whether TLS is mandatory, because the upstream itself is reached over TLS.
    needs_tls: bool,
    /// Whether local addresses are allowed, because the upstream itself is on this machine.
    may_be_local: bool,
}

impl GuardedClient {
    /// Returns the client for the authorization servers of the server at `upstream`.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamConfigError::Client`] when TLS cannot be set up.
    pub(super) fn new(upstream: &Url) -> Result<Self, UpstreamConfigError> {
        // Fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let may_be_local = is_local(upstream);
        let resolver = if may_be_local {
            GuardedResolver::Everywhere
        } else {
            GuardedResolver::NotLoopback
        };
        let mut builder = Client::builder()
            .dns_resolver(resolver)
            .connect_timeout(CONNECT_TIMEOUT)
            // `send` follows redirects itself, with a check of each target.
            .redirect(reqwest::redirect::Policy::none())
            .referer(false);
        if may_be_local {
            builder = builder.no_proxy();
        }
        Ok(Self {
            client: builder.build().map_err(UpstreamConfigError::Client)?,
            needs_tls: upstream.scheme() == "https",
            may_be_local,
        })
    }

    /// Returns whether the upstream may refer to `url`.
    pub(super) fn is_url_allowed(&self, url: &Url) -> bool {
        self.check(url).is_ok()
    }

    fn check(&self, url: &Url) -> Result<(), RequestRefused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(RequestRefused::Address);
        }
        if self.needs_tls && url.scheme() != "https" {
            return Err(RequestRefused::Downgrade);
        }
        let is_refused = match url.host() {
            Some(Host::Ipv4(v4)) => !is_allowed(v4.into()),
            Some(Host::Ipv6(v6)) => !is_allowed(v6.into()),
            Some(Host::Domain(_)) => false,
            None => true,
        };
        if is_refused || (is_local(url) && !self.may_be_local) {
            return Err(RequestRefused::Address);
        }
        Ok(())
    }

    /// Sends `request`, and follows redirects within the same origin if `policy` allows them.
    async fn send(
        &self,
        request: Request,
        policy: OAuthHttpRedirectPolicy,
    ) -> Result<Response, RequestRefused> {
        let mut request = request;
        let mut n_redirects = 0;
        loop {
            self.check(request.url())?;
            let again = request.try_clone();
            let response = self
                .client
                .execute(request)
                .await
                .map_err(|error| RequestRefused::Failed(failure(&error)))?;
            let may_follow =
                policy == OAuthHttpRedirectPolicy::Follow && n_redirects < MAX_REDIRECTS;
            match (redirect(&response, response.url()), again) {
                (Some(target), Some(mut next)) if may_follow => {
                    *next.url_mut() = target;
                    request = next;
                }
                _ => return Ok(response),
            }
            n_redirects += 1;
        }
    }
}

impl OAuthHttpClient for GuardedClient {
    fn execute(&self, request: OAuthHttpRequest) -> OAuthHttpClientFuture<'_> {
        Box::pin(async move {
            let mut sent = Request::try_from(request.request)?;
            *sent.timeout_mut() = Some(REQUEST_TIMEOUT);
            let response = self.send(sent, request.redirect_policy).await?;
            into_http(response).await
        })
    }
}

async fn into_http(response: Response) -> Result<http::Response<Vec<u8>>, OAuthHttpClientError> {
    let mut head = http::Response::builder().status(response.status());
    if let Some(headers) = head.headers_mut() {
        headers.clone_from(response.headers());
    }
    // The upstream itself is asked for its metadata. If it answers with a stream, the body never
    // ends.
    let body = match BodyKind::of(&response) {
        BodyKind::Events => Vec::new(),
        BodyKind::Json | BodyKind::Unstated | BodyKind::Other => collect(response, MAX_BODY_BYTES)
            .await
            .map_err(RequestRefused::Failed)?
            .to_vec(),
    };
    Ok(head.body(body)?)
}
