//! HTTP client for model servers: a bearer key, JSON requests and JSON responses.
//!
//! A request is sent once, and a second time if the server asks for a retry. Both share one
//! deadline. The size of the response is limited. Errors contain neither the key nor text of the
//! server.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, InvalidHeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout_at};
use url::{Host, Url};

/// Common servers close an idle connection after 5 s. A shorter limit avoids requests on a
/// connection that is just being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Address and settings of a server.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndpointSettings<'a> {
    /// Base URL.
    pub(crate) url: &'a Url,
    /// Path below the base URL, with slashes between the parts and none around them.
    pub(crate) path: &'a str,
    /// Key for the header `Authorization: Bearer`.
    pub(crate) api_key: Option<&'a SecretString>,
    /// Timeout of a request, including a retry.
    pub(crate) timeout: Duration,
    /// Maximum size of a response in bytes.
    pub(crate) max_reply_bytes: usize,
}

/// The reason why a configured server cannot be used.
#[derive(Debug)]
pub(crate) enum EndpointSetupError {
    /// The scheme of the URL is neither http nor https.
    Scheme,
    /// The key has characters that a header cannot have.
    ApiKey(InvalidHeaderValue),
    /// The HTTP client cannot be set up, usually because of TLS.
    Client(reqwest::Error),
}

/// The reason why a request failed. No message contains text of the server, because it may repeat
/// the key.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EndpointError {
    /// The server cannot be reached, or the connection was lost. The error does not contain the
    /// URL.
    #[error("the server cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    #[error("the server took longer than {} ms", .limit.as_millis())]
    TooSlow { limit: Duration },
    /// The server returned an error status.
    #[error("the server answered with status {0}")]
    Status(StatusCode),
    #[error("the answer is longer than {limit} bytes")]
    TooLong {
        /// The maximum size in bytes.
        limit: usize,
    },
}

impl EndpointError {
    /// Returns whether the error probably affects all requests, and not only this one.
    pub(crate) fn is_outage(&self) -> bool {
        match self {
            Self::Unreachable(_) | Self::TooSlow { .. } => true,
            // These statuses concern the content of the request, so another request may succeed.
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

/// Client of one server.
#[derive(Debug)]
pub(crate) struct Endpoint {
    http: reqwest::Client,
    url: Url,
    timeout: Duration,
    max_reply_bytes: usize,
}

impl Endpoint {
    /// Returns a client of the server at an address. It connects at the first request.
    ///
    /// # Errors
    ///
    /// Returns [`EndpointSetupError`] when the address cannot be used.
    pub(crate) fn new(address: EndpointSettings<'_>) -> Result<Self, EndpointSetupError> {
        let mut url = address.url.clone();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(EndpointSetupError::Scheme);
        }
        url.path_segments_mut()
            .map_err(|()| EndpointSetupError::Scheme)?
            .pop_if_empty()
            .extend(address.path.split('/'));
        let mut headers = HeaderMap::new();
        if let Some(key) = address.api_key {
            let value = format!("Bearer {}", key.expose_secret());
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(EndpointSetupError::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // An error means that a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(address.timeout)
            .pool_idle_timeout(POOL_IDLE_TIMEOUT)
            // The key must not be sent to any other address than the configured one.
            .redirect(Policy::none())
            .referer(false);
        if url.scheme() == "http" {
            // Plain HTTP needs no certificates. Loading them takes time and memory and needs an
            // installed store.
            builder = builder.tls_certs_only([]);
        }
        if is_local(&url) {
            builder = builder.no_proxy();
        }
        Ok(Self {
            http: builder.build().map_err(EndpointSetupError::Client)?,
            url,
            timeout: address.timeout,
            max_reply_bytes: address.max_reply_bytes,
        })
    }

    /// Sends a body as JSON and returns the body of the response.
    ///
    /// # Errors
    ///
    /// Returns [`EndpointError`] when there is no response in time, or an error status.
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
        if let Some(wait) = retry_after(&response)
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

/// Returns the pause before a retry that the server requests.
fn retry_after(response: &Response) -> Option<Duration> {
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

// Removes the URL from the error, because it may contain a secret.
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
