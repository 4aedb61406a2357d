//! One request to the server, and a second one when it asks for that.

use std::time::Duration;

use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::redirect::Policy;
use reqwest::{Response, StatusCode};
use secrecy::ExposeSecret;
use serde::Serialize;
use tokio::time::{Instant, sleep, timeout_at};
use url::{Host, Url};
use validator::Validate;

use super::config::{RemoteConfig, RemoteConfigError};
use super::error::RemoteError;

/// The most bytes of an answer: 64 vectors of 8,192 numbers fit.
const MAX_REPLY_BYTES: usize = 16 << 20;

/// Common servers close an idle connection after 5 s. Letting go of it earlier avoids writing
/// a request to a connection that is being closed.
const POOL_IDLE_TIMEOUT: Duration = Duration::from_secs(4);

/// Sends requests to one server.
pub(super) struct Client {
    http: reqwest::Client,
    /// Where vectors are asked for.
    url: Url,
    model: String,
    dimensions: Option<usize>,
    timeout: Duration,
}

#[derive(Serialize)]
struct Body<'a> {
    model: &'a str,
    input: &'a [String],
    encoding_format: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    dimensions: Option<usize>,
}

impl Client {
    /// Returns a client for the configured server.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteConfigError`] when the configuration cannot be used.
    pub(super) fn new(config: &RemoteConfig) -> Result<Self, RemoteConfigError> {
        config.validate()?;
        config.check_prefixes()?;
        let mut url = config.url.clone();
        if !matches!(url.scheme(), "http" | "https") {
            return Err(RemoteConfigError::Scheme);
        }
        url.path_segments_mut()
            .map_err(|()| RemoteConfigError::Scheme)?
            .pop_if_empty()
            .push("embeddings");
        let mut headers = HeaderMap::new();
        if let Some(key) = &config.api_key {
            let value = format!("Bearer {}", key.expose_secret());
            let value = HeaderValue::from_str(&value);
            let mut value = value.map_err(RemoteConfigError::ApiKey)?;
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        // Fails when a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = reqwest::Client::builder()
            .default_headers(headers)
            .connect_timeout(config.timeout)
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
            http: builder.build().map_err(RemoteConfigError::Client)?,
            url,
            model: config.model.clone(),
            dimensions: config.dimensions,
            timeout: config.timeout,
        })
    }

    /// Sends the texts and returns the body of the answer.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteError`] when there is no answer in time, or a refusal.
    pub(super) async fn post(&self, texts: &[String]) -> Result<Vec<u8>, RemoteError> {
        let deadline = Instant::now() + self.timeout;
        let answer = timeout_at(deadline, self.post_until(texts, deadline)).await;
        answer.unwrap_or(Err(RemoteError::TooSlow {
            limit: self.timeout,
        }))
    }

    async fn post_until(
        &self,
        texts: &[String],
        deadline: Instant,
    ) -> Result<Vec<u8>, RemoteError> {
        let mut response = self.send(texts).await?;
        if let Some(wait) = pause(&response)
            && Instant::now() + wait < deadline
        {
            drop(response);
            sleep(wait).await;
            response = self.send(texts).await?;
        }
        if response.status() != StatusCode::OK {
            return Err(RemoteError::Status(response.status()));
        }
        read(response).await
    }

    async fn send(&self, texts: &[String]) -> Result<Response, RemoteError> {
        let body = Body {
            model: &self.model,
            input: texts,
            encoding_format: "float",
            dimensions: self.dimensions,
        };
        let request = self.http.post(self.url.clone()).json(&body);
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

async fn read(mut response: Response) -> Result<Vec<u8>, RemoteError> {
    let mut body = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(unreachable)? {
        if body.len() + chunk.len() > MAX_REPLY_BYTES {
            return Err(RemoteError::TooLong {
                limit: MAX_REPLY_BYTES,
            });
        }
        body.extend_from_slice(&chunk);
    }
    Ok(body)
}

/// The URL may hold a secret.
fn unreachable(error: reqwest::Error) -> RemoteError {
    RemoteError::Unreachable(error.without_url())
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
