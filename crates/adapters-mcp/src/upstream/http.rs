//! Upstreams that speak Streamable HTTP (revisions 2025-03-26 to 2026-07-28).
//!
//! A connection has no socket of its own: each message is a POST, and what the server says on
//! its own account comes over one GET stream. The link holds what ties them together, the
//! session id and the revision (see [`session`]); one [`exchange`] follows one request to its
//! answer, whether that comes as events ([`event_stream`]) or as JSON ([`json_stream`]). Messages of the stateless revision 2026-07-28 are told apart by [`era`] and bring
//! their own headers ([`modern`]); of the session they know nothing.

pub(super) mod address;
pub(super) mod endpoint;
mod era;
pub(super) mod event_stream;
mod exchange;
mod json_stream;
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
use riglm_domain::message::{Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{
    self, Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};
use tokio_util::task::TaskTracker;

pub(super) use endpoint::Endpoint;
use era::Era;
use exchange::Exchange;
use open_exchanges::Cancelled;
use session::Session;

/// Connects to one Streamable HTTP endpoint; all connections share one pool of sockets.
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

    /// Never fails: a server that cannot be reached is reported with the first message.
    async fn connect(
        &self,
        _principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let closing = CancellationToken::new();
        let session = Arc::new(Session::new(self.endpoint.clone(), events, closing.clone()));
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
    session: Arc<Session>,
    tasks: TaskTracker,
    /// Ends every task when the link is dropped without a close.
    closing: DropGuard,
}

impl HttpLink {
    /// Returns the exchange of a message with requests in it, which its caller has to drive.
    fn exchange(&self, message: Message, requests: Vec<RequestId>) -> Result<Sent, UpstreamError> {
        let events = self.session.events()?;
        let (on_its_way, is_on_its_way) = oneshot::channel();
        let era = self.modern_headers(&message);
        let era = era.map_or(Era::Legacy, Era::Modern);
        let exchange = Exchange::new(self.session.clone(), events, requests, era);
        let run = self.tasks.track_future(exchange.run(message, on_its_way));
        let deadline = self.session.endpoint.limits.accept_timeout;
        let on_its_way = async move {
            // The other end is dropped when the request cannot be sent, which is reported as an
            // event.
            let _ = tokio::time::timeout(deadline, is_on_its_way).await;
        };
        Ok(Sent::UnderWay(upstream::Exchange {
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

    /// Has the server accept a notification or a response. The POST is a task of its own, so
    /// that a caller who goes away does not cut it short.
    async fn deliver(&self, message: Message) -> Result<(), UpstreamError> {
        let events = self.session.events()?;
        let modern = self.modern_headers(&message);
        let method = message.single().and_then(|envelope| envelope.method());
        let is_cancellation = method == Some("notifications/cancelled");
        if is_cancellation {
            match self.session.exchanges.cancelled_by(&message) {
                Cancelled::Modern => {
                    self.session.exchanges.note_cancelled(&message);
                    return Ok(());
                }
                // It came too late, and revision 2026-07-28 has no such message over HTTP.
                Cancelled::Unknown if modern.is_some() => return Ok(()),
                Cancelled::Legacy | Cancelled::Unknown => {}
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
        let outcome = outcome.await.unwrap_or_else(|_| Err(session::closed()));
        if is_cancellation {
            // Nobody waits for the request any more, whatever the server makes of that.
            self.session.exchanges.note_cancelled(&message);
        }
        outcome?;
        if method == Some("notifications/initialized")
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
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        let requests: Vec<RequestId> = message.request_ids().cloned().collect();
        if requests.is_empty() {
            self.deliver(message).await?;
            Ok(Sent::Delivered)
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
        self.closing.token().cancel();
        self.tasks.close();
        self.tasks.wait().await;
        self.session.delete().await;
    }
}
