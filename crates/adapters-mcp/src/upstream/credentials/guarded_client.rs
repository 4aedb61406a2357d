//! The HTTP client of OAuth: the addresses of an authorization server are named by the upstream
//! and by documents that it points to, so they are trusted as little as an upstream is.

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
use super::super::http::reply::{Content, collect};

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(15);
const MAX_BODY_BYTES: usize = 1024 * 1024;
const MAX_REDIRECTS: usize = 3;

/// Why a request of OAuth was not sent, or its answer not taken.
#[derive(Debug, thiserror::Error)]
enum Refused {
    #[error("the address is not allowed")]
    Address,
    #[error("the server names addresses without TLS")]
    Downgrade,
    #[error("the request failed: {0}")]
    Failed(riglm_ports::upstream::UpstreamError),
}

/// Sends the requests of OAuth to where the rules for the upstream let them go.
#[derive(Debug)]
pub(super) struct GuardedClient {
    client: Client,
    /// The upstream is reached over TLS, so what it points to has to be.
    needs_tls: bool,
    /// The upstream is on this machine, so what it points to may be.
    may_be_local: bool,
}

impl GuardedClient {
    /// Returns the client for the authorization servers that the server at `upstream` names.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamConfigError::Client`] when TLS cannot be set up.
    pub(super) fn new(upstream: &Url) -> Result<Self, UpstreamConfigError> {
        // Fails when a provider is installed already, which serves as well.
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

    /// Returns whether the upstream may point to `url`.
    pub(super) fn may_go_to(&self, url: &Url) -> bool {
        self.check(url).is_ok()
    }

    fn check(&self, url: &Url) -> Result<(), Refused> {
        if !matches!(url.scheme(), "http" | "https") {
            return Err(Refused::Address);
        }
        if self.needs_tls && url.scheme() != "https" {
            return Err(Refused::Downgrade);
        }
        let is_refused = match url.host() {
            Some(Host::Ipv4(v4)) => !is_allowed(v4.into()),
            Some(Host::Ipv6(v6)) => !is_allowed(v6.into()),
            Some(Host::Domain(_)) => false,
            None => true,
        };
        if is_refused || (is_local(url) && !self.may_be_local) {
            return Err(Refused::Address);
        }
        Ok(())
    }

    /// Sends `request`, and again where the server points to another path of its own, if
    /// `policy` lets it.
    async fn send(
        &self,
        request: Request,
        policy: OAuthHttpRedirectPolicy,
    ) -> Result<Response, Refused> {
        let mut request = request;
        let mut n_redirects = 0;
        loop {
            self.check(request.url())?;
            let again = request.try_clone();
            let response = self
                .client
                .execute(request)
                .await
                .map_err(|error| Refused::Failed(failure(&error)))?;
            let may_follow =
                policy == OAuthHttpRedirectPolicy::Follow && n_redirects < MAX_REDIRECTS;
            match (redirect(&response), again) {
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
    // The upstream itself is asked what it wants; one that opens a stream never ends it.
    let body = match Content::of(&response) {
        Content::Events => Vec::new(),
        Content::Json | Content::Unstated | Content::Other => collect(response, MAX_BODY_BYTES)
            .await
            .map_err(Refused::Failed)?
            .to_vec(),
    };
    Ok(head.body(body)?)
}
