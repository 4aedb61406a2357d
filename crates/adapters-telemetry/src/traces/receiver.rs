//! The program that spans are sent to: one POST for each batch.

use std::time::Duration;

use bytes::Bytes;
use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue, StatusCode};
use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceResponse;
use prost::Message;
use reqwest::redirect::Policy;
use reqwest::{Client, Response};
use url::{Host, Url};

use super::{TracesError, TracesOptions};

/// Where traces go, below the base URL of a receiver.
const PATH: &str = "v1/traces";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// The longest answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// How long a connection may take, at most as long as the request.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Why a batch was not taken. The texts name no address and nothing that the receiver said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Unsent {
    /// There was no answer.
    #[error("the receiver cannot be reached")]
    Unreachable,
    /// There was none in time.
    #[error("the receiver takes too long")]
    TooSlow,
    /// The answer says that it did not work.
    #[error("the receiver answered with status {0}")]
    Status(u16),
    /// The receiver took the batch, but not all of its spans.
    #[error("the receiver refused them")]
    Refused,
}

impl Unsent {
    /// Returns whether the same batch may be taken a moment later, as the protocol has it.
    pub(super) fn is_for_now(self) -> bool {
        match self {
            Self::Unreachable | Self::Status(429 | 502 | 503 | 504) => true,
            // Another attempt would take as long; what waits meanwhile is lost.
            Self::TooSlow | Self::Status(_) | Self::Refused => false,
        }
    }
}

/// A receiver of OTLP over HTTP.
#[derive(Clone)]
pub(super) struct Receiver {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl std::fmt::Debug for Receiver {
    /// Leaves out what may hold a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin = self.url.origin().ascii_serialization();
        f.debug_struct("Receiver")
            .field("origin", &origin)
            .finish_non_exhaustive()
    }
}

impl Receiver {
    /// Returns the receiver that the options name; nothing is sent yet.
    pub(super) fn new(options: TracesOptions) -> Result<Self, TracesError> {
        // Fails when a provider is installed already, which serves as well.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .timeout(options.timeout)
            .connect_timeout(options.timeout.min(CONNECT_WITHIN))
            .redirect(Policy::none())
            .referer(false);
        if options.endpoint.scheme() == "http" {
            // Loading the system's certificates takes time, memory, and an installed store.
            builder = builder.tls_certs_only([]);
        }
        if is_local(&options.endpoint) {
            builder = builder.no_proxy();
        }
        let mut headers = options.headers;
        headers.insert(CONTENT_TYPE, PROTOBUF);
        Ok(Self {
            client: builder.build().map_err(TracesError::Client)?,
            url: traces_url(options.endpoint),
            headers,
        })
    }

    /// Sends a batch. Returns how many of its spans the receiver did not want.
    pub(super) async fn send(&self, body: Bytes) -> Result<u64, Unsent> {
        let request = self.client.post(self.url.clone());
        let sent = request.headers(self.headers.clone()).body(body).send();
        let response = sent.await.map_err(|error| {
            if error.is_timeout() {
                Unsent::TooSlow
            } else {
                Unsent::Unreachable
            }
        })?;
        match response.status() {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                Ok(n_refused(response).await)
            }
            status => Err(Unsent::Status(status.as_u16())),
        }
    }
}

/// Returns how many spans an answer says were refused; an answer that cannot be read says nothing.
async fn n_refused(mut response: Response) -> u64 {
    let mut answer = Vec::new();
    while let Ok(Some(chunk)) = response.chunk().await {
        if answer.len() + chunk.len() > MAX_ANSWER_BYTES {
            return 0;
        }
        answer.extend_from_slice(&chunk);
    }
    ExportTraceServiceResponse::decode(answer.as_slice())
        .ok()
        .and_then(|answer| answer.partial_success)
        .and_then(|partial| u64::try_from(partial.rejected_spans).ok())
        .unwrap_or(0)
}

/// Returns the address for traces below a base URL; one that ends with it already is left alone.
fn traces_url(mut base: Url) -> Url {
    let path = base.path().trim_end_matches('/');
    if !path.ends_with(&format!("/{PATH}")) {
        let path = format!("{path}/{PATH}");
        base.set_path(&path);
    }
    base
}

fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Ipv4(v4)) => v4.is_loopback(),
        Some(Host::Ipv6(v6)) => v6.is_loopback(),
        Some(Host::Domain(name)) => name == "localhost",
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traces_have_an_address_below_that_of_the_receiver() {
        for (base, expected) in [
            ("http://h:4318", "http://h:4318/v1/traces"),
            ("http://h:4318/", "http://h:4318/v1/traces"),
            ("https://h/otlp/?k=v", "https://h/otlp/v1/traces?k=v"),
            ("https://h/otlp/v1/traces", "https://h/otlp/v1/traces"),
        ] {
            assert_eq!(traces_url(base.parse().unwrap()).as_str(), expected);
        }
    }

    #[test]
    fn only_what_may_pass_is_tried_again() {
        assert!(Unsent::Unreachable.is_for_now() && Unsent::Status(503).is_for_now());
        assert!(!Unsent::Status(400).is_for_now() && !Unsent::TooSlow.is_for_now());
    }
}
