//! Upstreams over Streamable HTTP (revisions 2025-03-26 to 2026-07-28).
//!
//! A connection has no socket of its own: each message is a POST, and messages of the server that
//! belong to no request come over one GET stream. The link holds the shared state, the session id
//! and the revision (see [`session`]). One [`exchange`] follows one request to its answer, which
//! comes as events ([`event_stream`]) or as JSON ([`json_stream`]). Messages of the stateless
//! revision 2026-07-28 are recognized by [`era`]. They carry their own headers ([`modern`]) and use
//! no session.

pub(super) mod address;
pub(super) mod endpoint;
mod era;
pub(super) mod event_stream;
mod exchange;
mod json_stream;
mod known_lists;
mod local_client;
pub(super) mod modern;
pub(super) mod open_exchanges;
mod post_body;
pub(super) mod reply;
mod session;
mod standalone;

use std::sync::Arc;

use ::http::header::HeaderMap;
use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    self, SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(super) use endpoint::Endpoint;
use era::Era;
use exchange::HttpExchange;
use open_exchanges::CancelledRequest;
use session::HttpSession;

/// Connects to one Streamable HTTP endpoint. All connections share one pool of sockets.
#[derive(Debug)]
pub struct HttpConnector {
    endpoint: Arc<Endpoint>,
}

impl HttpConnector {
    /// Returns a connector for the server at `endpoint`.
    pub(super) fn new(endpoint: Arc<Endpoint>) -> Self {
        Self { endpoint }
    }
}

#[async_trait]
impl UpstreamConnector for HttpConnector {
    fn name(&self) -> &UpstreamName {
        &self.endpoint.name
    }

    /// Never fails: an unreachable server is reported with the first message.
    async fn connect(
        &self,
        _principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let closing = CancellationToken::new();
        let session = Arc::new(HttpSession::new(
            self.endpoint.clone(),
            events,
            closing.clone(),
        ));
        Ok(Arc::new(HttpLink {
            session,
            tasks: TaskTracker::new(),
            closing: closing.drop_guard(),
        }))
    }
}

/// The sending half of a connection over Streamable HTTP.
#[derive(Debug)]
struct HttpLink {
    session: Arc<HttpSession>,
    tasks: TaskTracker,
    /// Ends every task when the link is dropped without a close.
    closing: DropGuard,
}

impl HttpLink {
    /// Returns the exchange of a message with requests, which its caller must poll to completion.
    fn exchange(
        &self,
        message: Message,
        requests: Vec<RequestId>,
    ) -> Result<SendOutcome, UpstreamError> {
        let events = self.session.events()?;
        let (on_its_way, is_on_its_way) = oneshot::channel();
        let era = self.modern_headers(&message);
        let era = era.map_or(Era::Legacy, Era::Modern);
        let exchange = HttpExchange::new(self.session.clone(), events, requests, era);
        let run = self.tasks.track_future(exchange.run(message, on_its_way));
        let deadline = self.session.endpoint.limits.accept_timeout;
        let on_its_way = async move {
            // The sender is dropped when the request cannot be sent, which is reported as an event.
            let _ = tokio::time::timeout(deadline, is_on_its_way).await;
        };
        Ok(SendOutcome::UnderWay(upstream::Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(on_its_way),
        }))
    }

    /// Returns the headers of a message that belongs to no session.
    fn modern_headers(&self, message: &Message) -> Option<HeaderMap> {
        let revision = self.session.eras.modern_revision(message)?;
        let base = &self.session.plain_headers;
        Some(modern::headers(base, message, &revision))
    }

    /// Sends a notification or a response and waits until the server accepts it. The POST runs on a
    /// separate task, so that it completes even if the caller is dropped.
    async fn deliver(&self, message: Message) -> Result<(), UpstreamError> {
        let events = self.session.events()?;
        let modern = self.modern_headers(&message);
        let method = message.single().and_then(|envelope| envelope.method());
        let is_cancellation = method == Some(method::NOTIFICATIONS_CANCELLED);
        if is_cancellation {
            match self.session.exchanges.cancelled_by(&message) {
                CancelledRequest::Modern => {
                    self.session.exchanges.note_cancelled(&message);
                    return Ok(());
                }
                // The request has ended, and revision 2026-07-28 has no cancellation message over
                // HTTP.
                CancelledRequest::Unknown if modern.is_some() => return Ok(()),
                CancelledRequest::Legacy | CancelledRequest::Unknown => {}
            }
        }
        let (report, outcome) = oneshot::channel();
        let session = self.session.clone();
        let body = message.clone();
        let headers = match modern {
            Some(headers) if !is_cancellation => Arc::new(headers),
            _ => session.post_headers(),
        };
        self.tasks
            .spawn(async move { session.deliver(body, headers, report).await });
        let outcome = outcome
            .await
            .unwrap_or_else(|_| Err(session::closed_error()));
        if is_cancellation {
            // The client waits for the request no longer, whatever the server does with the
            // cancellation.
            self.session.exchanges.note_cancelled(&message);
        }
        outcome?;
        if method == Some(method::NOTIFICATIONS_INITIALIZED)
            && let Some(ended) = self.session.claim_standalone()
        {
            let stream = standalone::run(self.session.clone(), events, ended);
            self.tasks.spawn(stream);
        }
        Ok(())
    }
}

#[async_trait]
impl UpstreamLink for HttpLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let requests: Vec<RequestId> = message.request_ids().cloned().collect();
        if requests.is_empty() {
            self.deliver(message).await?;
            Ok(SendOutcome::Delivered)
        } else {
            self.exchange(message, requests)
        }
    }

    fn has_streams(&self) -> bool {
        true
    }

    async fn close(&self) {
        if !self.session.take_events() {
            return;
        }
        // Ends the open exchanges, so that none runs when the session is deleted on the server.
        self.closing.token().cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.session.delete().await;
    }
}
