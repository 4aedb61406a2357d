//! Upstreams that speak Streamable HTTP (revisions 2025-03-26 to 2025-11-25).
//!
//! A connection has no socket of its own: each message is a POST, and what the server says on
//! its own account comes over one GET stream. The link holds what ties them together, the
//! session id and the revision (see [`session`]); one [`exchange`] follows one request to its
//! answer. The stateless revision 2026-07-28 differs in the headers of a request and has no
//! session; it belongs beside [`session`], the exchange stays.

mod address;
pub(super) mod endpoint;
pub(super) mod event_stream;
mod exchange;
mod open_exchanges;
mod post_body;
pub(super) mod reply;
mod session;
mod standalone;

use std::sync::Arc;

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
use exchange::Exchange;
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
        let exchange = Exchange::new(self.session.clone(), events, requests);
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

    /// Has the server accept a notification or a response. The POST is a task of its own, so
    /// that a caller who goes away does not cut it short.
    async fn deliver(&self, message: Message) -> Result<(), UpstreamError> {
        let events = self.session.events()?;
        let (report, outcome) = oneshot::channel();
        let session = self.session.clone();
        let body = message.clone();
        self.tasks
            .spawn(async move { session.deliver(body, report).await });
        let outcome = outcome.await.unwrap_or_else(|_| Err(session::closed()));
        let method = message.single().and_then(|envelope| envelope.method());
        if method == Some("notifications/cancelled") {
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
