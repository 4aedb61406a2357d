//! A server of models over HTTP, as many have it: a key, JSON in, JSON out.
//!
//! One request, and a second one when the server asks for that; a deadline for both, and a bound for
//! the answer. Neither the key nor what a server writes is in any error.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, InvalidHeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout_at};
use url::{Host, Url};

/// Common servers close an idle connection after 5 s. Letting go of it earlier avoids writing
/// a request to a connection that is being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Where a server is, and how it is asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Address<'a> {
    /// The address below which its paths are.
    pub(crate) url: &'a Url,
    /// The path, without slashes around it; its parts are separated by slashes.
    pub(crate) path: &'a str,
    /// The key that is sent as `Authorization: Bearer`.
    pub(crate) api_key: Option<&'a SecretString>,
    /// How long a request may take, a second try included.
    pub(crate) timeout: Duration,
    /// The most bytes of an answer.
    pub(crate) max_reply_bytes: usize,
}

/// Why a server cannot be used as it is configured.
#[derive(Debug)]
pub(crate) enum AddressError {
    /// The URL is of another scheme than http and https.
    Scheme,
    /// The key has characters that a header cannot have.
    ApiKey(InvalidHeaderValue),
    /// The HTTP client cannot be set up, which mostly means TLS.
    Client(reqwest::Error),
}

/// Why there is no answer. What the server wrote is in none of the texts: it may repeat the key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    /// It cannot be reached, or the connection broke. The error has no URL.
    #[error("the server cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// It took longer than configured.
    #[error("the server took longer than {} ms", .limit.as_millis())]
    TooSlow {
        /// The configured time.
        limit: Duration,
    },
    /// It refused.
    #[error("the server answered with status {0}")]
    Status(StatusCode),
    /// Its answer is too long to be read.
    #[error("the answer is longer than {limit} bytes")]
    TooLong {
        /// The most bytes that are read.
        limit: usize,
    },
}

impl EndpointError {
    /// Returns whether the server does not serve anybody, as far as can be told: any other request
    /// would meet the same.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TooSlow { .. } => true,
            Self::Status(status) => !matches!(
                *status,
                StatusCode::BAD_REQUEST
                    | StatusCode::PAYLOAD_TOO_LARGE
                    | StatusCode::UNPROCESSABLE_ENTITY
            ),
            Self::TooLong { .. } => false,
        }
    }
}

/// Sends requests to one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    http: reqwest::Client,
    url: Url,
    timeout: Duration,
    max_reply_bytes: usize,
}

impl Endpoint {
    /// Returns what asks the server at an address; it is not reached before the first request.
    ///
    /// # Errors
    ///
    /// Returns [`AddressError`] when the address cannot be used.
    pub(crate) fn new(address: Address<'_>) -> Result<Self, AddressError> {
        let mut url = address.url.clone();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(AddressError::Scheme);
        }
        url.path_segments_mut()
            .map_err(|()| AddressError::Scheme)?
            .pop_if_empty()
            .extend(address.path.split('/'));
        let mut headers = HeaderMap::new();
        if let Some(key) = address.api_key {
            let value = format!("Bearer {}", key.expose_secret());
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(AddressError::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // Fails when a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(address.timeout)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            // The key goes to no other address than the configured one.
            .redirect(Policy::none())
            .referer(false);
        if url.scheme() == "http" {
            // Loading the system's certificates takes time, memory, and an installed store.
            builder = builder.tls_certs_only([]);
        }
        if is_local(&url) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build().map_err(AddressError::Client)?,
            url,
            timeout: address.timeout,
            max_reply_bytes: address.max_reply_bytes,
        })
    }

    /// Sends a body as JSON and returns the body of the answer.
    ///
    /// # Errors
    ///
    /// Returns [`EndpointError`] when there is no answer in time, or a refusal.
    pub(crate) async fn post(
        &self,
        body: &(impl Serialize + Sync),
    ) -> Result<Vec<u8>, EndpointError> {
        let deadline = Instant::now() + self.timeout;
        let answer = timeout_at(deadline, self.post_until(body, deadline)).await;
        answer.unwrap_or(Err(EndpointError::TooSlow {
            limit: self.timeout,
        }))
    }

    async fn post_until(
        &self,
        body: &(impl Serialize + Sync),
        deadline: Instant,
    ) -> Result<Vec<u8>, EndpointError> {
        let mut response = self.send(body).await?;
        if let Some(wait) = pause(&response)
            && Instant::now() + wait < deadline
        {
            drop(response);
            sleep(wait).await;
            response = self.send(body).await?;
        }
        if response.status() != StatusCode::OK {
            return Err(EndpointError::Status(response.status()));
        }
        read(response, self.max_reply_bytes).await
    }

    async fn send(&self, body: &(impl Serialize + Sync)) -> Result<Response, EndpointError> {
        let request = self.http.post(self.url.clone()).json(body);
        request.send().await.map_err(unreachable)
    }
}

/// Returns how long the server asks to wait before a second request.
fn pause(response: &Response) -> Option<Duration> {
    let status = response.status();
    if status != StatusCode::TOO_MANY_REQUESTS && status != StatusCode::SERVICE_UNAVAILABLE {
        return None;
    }
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?;
    Some(Duration::from_secs(
        seconds.trim().parse::<u32>().ok()?.into(),
    ))
}

async fn read(mut response: Response, limit: usize) -> Result<Vec<u8>, EndpointError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > limit {
            return Err(EndpointError::TooLong { limit });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The URL may hold a secret.
fn unreachable(error: reqwest::Error) -> EndpointError {
    EndpointError::Unreachable(error.without_url())
}

/// Returns whether the host is this machine.
fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(v4)) => v4.is_loopback(),
        Some(Host::Ipv6(v6)) => v6.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        None => false,
    }
}
