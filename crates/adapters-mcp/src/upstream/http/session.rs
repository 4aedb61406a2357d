//! The shared state of the requests of one connection: session id and revision.

use std::borrow::Cow;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use http::header::{ACCEPT, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue};
use http::{Method, StatusCode};
use parking_lot::Mutex;
use reqwest::Response;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind};
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};
use serde::Deserialize;
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::endpoint::Endpoint;
use super::era::EraDetector;
use super::open_exchanges::OpenExchanges;
use super::reply;
use crate::trace_headers::with_trace;

const SESSION_ID: HeaderName = HeaderName::from_static("mcp-session-id");
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static("mcp-protocol-version");
const LAST_EVENT_ID: HeaderName = HeaderName::from_static("last-event-id");
const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(in super::super) const EVENT_STREAM: HeaderValue =
    HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
/// The timeout for the server to delete the session.
const DELETE_TIMEOUT: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct HttpSession {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) closing: CancellationToken,
    /// `None` after the connection is closed.
    events: Mutex<Option<Arc<dyn UpstreamEvents>>>,
    /// The headers of a POST. Rebuilt only when the session id or the revision changes.
    headers: ArcSwap<HeaderMap>,
    /// Ends the standalone stream of the server, if it was requested.
    standalone: Mutex<Option<CancellationToken>>,
    pub(super) exchanges: OpenExchanges,
    /// The headers of a POST that belongs to no session.
    pub(super) plain_headers: HeaderMap,
    pub(super) eras: EraDetector,
}

impl HttpSession {
    /// Returns a connection that has not sent anything yet.
    pub(super) fn new(
        endpoint: Arc<Endpoint>,
        events: Arc<dyn UpstreamEvents>,
        closing: CancellationToken,
    ) -> Self {
        let mut headers = endpoint.headers.clone();
        headers.insert(ACCEPT, BOTH);
        headers.insert(CONTENT_TYPE, JSON);
        Self {
            endpoint,
            closing,
            events: Mutex::new(Some(events)),
            headers: ArcSwap::from_pointee(headers.clone()),
            standalone: Mutex::new(None),
            exchanges: OpenExchanges::default(),
            plain_headers: headers,
            eras: EraDetector::default(),
        }
    }

    /// Returns the receiver of events.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::Lost`] once the connection is closed.
    pub(super) fn events(&self) -> Result<Arc<dyn UpstreamEvents>, UpstreamError> {
        let events = self.events.lock();
        events.clone().ok_or_else(closed_error)
    }

    /// Marks the connection closed; returns whether it was open.
    pub(super) fn take_events(&self) -> bool {
        let mut events = self.events.lock();
        events.take().is_some()
    }

    pub(super) fn post_headers(&self) -> Arc<HeaderMap> {
        self.headers.load_full()
    }

    /// Returns whether `headers` name a session, so that status 404 means its end.
    pub(super) fn names_session(headers: &HeaderMap) -> bool {
        headers.contains_key(SESSION_ID)
    }

    /// Stores the session id in the response to `initialize`.
    pub(super) fn learn_session(&self, response: &Response) {
        if let Some(id) = response.headers().get(SESSION_ID) {
            let mut id = copied_header(id);
            // Whoever knows the id can use the session.
            id.set_sensitive(true);
            self.set_header(&SESSION_ID, &id);
        }
    }

    /// Stores the revision in the answer to `initialize`.
    pub(super) fn learn_revision(&self, message: &Message, envelope: &Envelope) {
        #[derive(Deserialize)]
        struct InitializeResult<'a> {
            #[serde(borrow, rename = "protocolVersion")]
            protocol_version: Cow<'a, str>,
        }
        if envelope.kind() != MessageKind::Success {
            return;
        }
        let found = message.result(envelope).map(serde_json::from_str);
        if let Some(Ok(InitializeResult { protocol_version })) = found
            && let Ok(revision) = HeaderValue::from_str(&protocol_version)
        {
            self.set_header(&PROTOCOL_VERSION, &revision);
            self.eras.begin_session();
        }
    }

    fn set_header(&self, name: &HeaderName, value: &HeaderValue) {
        self.headers.rcu(|headers| {
            let mut headers = HeaderMap::clone(headers);
            headers.insert(name, value.clone());
            headers
        });
    }

    /// Opens an event stream, after the event `last_event` if one is given.
    ///
    /// # Errors
    ///
    /// As [`Endpoint::request`] does, and [`UpstreamError::SessionExpired`] for status 404.
    pub(super) async fn open_stream(
        &self,
        last_event: Option<&str>,
    ) -> Result<Response, UpstreamError> {
        let mut headers = HeaderMap::clone(&self.post_headers());
        headers.remove(CONTENT_TYPE);
        headers.insert(ACCEPT, EVENT_STREAM);
        if let Some(id) = last_event
            && let Ok(id) = HeaderValue::from_bytes(id.as_bytes())
        {
            headers.insert(LAST_EVENT_ID, id);
        }
        let names_session = Self::names_session(&headers);
        let response = self.endpoint.request(Method::GET, &headers).await?;
        if response.status() == StatusCode::NOT_FOUND && names_session {
            return Err(UpstreamError::SessionExpired);
        }
        Ok(response)
    }

    /// Posts a notification or a response, and reports whether the server accepted it. Then reads
    /// the small body, so that the connection can be reused.
    pub(super) async fn deliver(
        &self,
        message: Message,
        headers: Arc<HeaderMap>,
        report: oneshot::Sender<Result<(), UpstreamError>>,
    ) {
        let names_session = Self::names_session(&headers);
        let headers = with_trace(headers, &message);
        let endpoint = &self.endpoint;
        let accepted = async {
            let body = message.raw().clone();
            let posting = endpoint.post(&endpoint.url, &headers, body, None);
            tokio::time::timeout(endpoint.limits.accept_timeout, posting)
                .await
                .unwrap_or(Err(UpstreamError::NoAnswer))
        };
        let response = tokio::select! {
            biased;
            () = self.closing.cancelled() => Err(closed_error()),
            response = accepted => response,
        };
        let (outcome, response) = match response {
            Err(error) => (Err(error), None),
            Ok(response) => (reply::acceptance(&response, names_session), Some(response)),
        };
        // The receiver may be gone.
        let _ = report.send(outcome);
        if let Some(response) = response {
            reply::drain(response).await;
        }
    }

    /// Returns the token that ends the standalone stream, for the first caller in this session
    /// only.
    pub(super) fn claim_standalone(&self) -> Option<CancellationToken> {
        let mut standalone = self.standalone.lock();
        if standalone.is_some() {
            return None;
        }
        let ended = self.closing.child_token();
        *standalone = Some(ended.clone());
        Some(ended)
    }

    /// Removes the session and the revision: a client that initializes again, after its session
    /// expired, must not send the old ones.
    pub(super) fn reset(&self) {
        self.eras.end_session();
        let mut standalone = self.standalone.lock();
        if let Some(ended) = standalone.take() {
            ended.cancel();
        }
        self.headers.rcu(|headers| {
            let mut headers = HeaderMap::clone(headers);
            headers.remove(SESSION_ID);
            headers.remove(PROTOCOL_VERSION);
            headers
        });
    }

    /// Ends the session on the server. A server that does not answer is ignored.
    pub(super) async fn delete(&self) {
        let mut headers = HeaderMap::clone(&self.post_headers());
        if !Self::names_session(&headers) {
            return;
        }
        headers.remove(CONTENT_TYPE);
        let request = self.endpoint.request(Method::DELETE, &headers);
        match tokio::time::timeout(DELETE_TIMEOUT, request).await {
            Ok(Ok(response)) => tracing::debug!(
                upstream = %self.endpoint.name,
                http.status = response.status().as_u16(),
                "ended the session on upstream {}",
                self.endpoint.name
            ),
            Ok(Err(error)) => tracing::debug!(
                upstream = %self.endpoint.name,
                %error,
                "failed to end the session on upstream {}",
                self.endpoint.name
            ),
            Err(_) => tracing::debug!(
                upstream = %self.endpoint.name,
                "timeout while ending the session on upstream {}",
                self.endpoint.name
            ),
        }
    }
}

/// Returns the error for a closed connection.
pub(super) fn closed_error() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection is closed".into(),
    }
}

/// Returns a copy of the value of a header. The value that was received is a slice of the read buffer
/// of its connection, which may have hundreds of kilobytes.
fn copied_header(value: &HeaderValue) -> HeaderValue {
    // A value that was valid stays valid.
    HeaderValue::from_bytes(value.as_bytes()).unwrap_or_else(|_| value.clone())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn a_copied_header_keeps_no_buffer() {
        let buffer = Bytes::from(vec![b'x'; 1 << 20]);
        let value = HeaderValue::from_maybe_shared(buffer.slice(..100)).unwrap();
        assert_eq!(value.as_bytes().as_ptr(), buffer.as_ptr());
        let copied = copied_header(&value);
        assert_eq!(copied, value);
        assert_ne!(copied.as_bytes().as_ptr(), buffer.as_ptr());
    }
}
