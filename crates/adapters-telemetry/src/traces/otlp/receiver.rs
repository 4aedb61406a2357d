//! The client for the OTLP receiver: one POST for each batch.

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

// The path for traces below the base URL of a receiver.
const PATH: &str = "v1/traces";
const PROTOBUF: HeaderValue = HeaderValue::from_static("application/x-protobuf");
/// The maximum size of an answer that is read.
const MAX_ANSWER_BYTES: usize = 64 << 10;
// The maximum connection timeout. It is at most as long as the timeout of the request.
const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// The reason why a batch was not accepted. The messages contain no address and nothing that the
/// receiver sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum SendError {
    /// No connection, or no answer.
    #[error("the receiver cannot be reached")]
    Unreachable,
    /// No answer within the timeout.
    #[error("the receiver did not answer in time")]
    TooSlow,
    /// The answer has an error status.
    #[error("the receiver answered with status {0}")]
    Status(u16),
    /// The receiver accepted the batch, but rejected some of its spans.
    #[error("the receiver rejected them")]
    Refused,
    /// The time limit at the end of the program has passed.
    #[error("the program ended before they were sent")]
    Ended,
}

impl SendError {
    /// Returns whether a retry of the same batch may succeed, according to the OTLP specification.
    pub(super) fn is_temporary(self) -> bool {
        match self {
            Self::Unreachable | Self::Status(429 | 502 | 503 | 504) => true,
            // Another attempt would take as long, and the spans that wait meanwhile are lost.
            Self::TooSlow | Self::Status(_) | Self::Refused | Self::Ended => false,
        }
    }
}

#[derive(Clone)]
pub(super) struct OtlpReceiver {
    client: Client,
    url: Url,
    headers: HeaderMap,
}

impl std::fmt::Debug for OtlpReceiver {
    /// Omits the path and the headers, which may contain a secret.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let origin = self.url.origin().ascii_serialization();
        f.debug_struct("Receiver")
            .field("origin", &origin)
            .finish_non_exhaustive()
    }
}

impl OtlpReceiver {
    /// Returns the receiver for the options. Sends nothing yet.
    pub(super) fn new(options: TracesOptions) -> Result<Self, TracesError> {
        // Fails if a provider is already installed, which is fine.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut builder = Client::builder()
            .timeout(options.timeout)
            .connect_timeout(options.timeout.min(CONNECT_WITHIN))
            // A redirect would send the headers, which may hold a secret, to another address.
            .redirect(Policy::none())
            .referer(false);
        if options.endpoint.scheme() == "http" {
            // Without TLS, loading the certificates of the system would only cost time and memory,
            // and would need an installed store.
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

    /// Sends a batch. Returns the number of spans that the receiver rejected.
    pub(super) async fn send(&self, body: Bytes) -> Result<u64, SendError> {
        let request = self.client.post(self.url.clone());
        let sent = request.headers(self.headers.clone()).body(body).send();
        let response = sent.await.map_err(|error| {
            if error.is_timeout() {
                SendError::TooSlow
            } else {
                SendError::Unreachable
            }
        })?;
        match response.status() {
            StatusCode::OK | StatusCode::ACCEPTED | StatusCode::NO_CONTENT => {
                Ok(n_refused(response).await)
            }
            status => Err(SendError::Status(status.as_u16())),
        }
    }
}

/// Returns the number of rejected spans in an answer; 0 for an answer that cannot be parsed.
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

/// Returns the URL for traces below a base URL. A URL that already ends with the path stays
/// unchanged.
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
    fn the_traces_url_extends_the_receiver_url() {
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
    fn only_temporary_errors_are_retried() {
        assert!(SendError::Unreachable.is_temporary() && SendError::Status(503).is_temporary());
        assert!(!SendError::Status(400).is_temporary() && !SendError::TooSlow.is_temporary());
    }
}
