//! The messages that a hub sends to the server by itself.

use std::time::Duration;

use riglm_domain::mcp::message::Message;
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::outgoing::Link;

/// The timeout for sending a message of the hub.
pub(super) const OWN_LIMIT: Duration = Duration::from_secs(10);

/// Sends messages that no session sent.
#[derive(Debug)]
pub(super) struct OwnSender {
    upstream: Box<str>,
    tasks: TaskTracker,
    /// Cancelled when the connection has ended.
    is_over: CancellationToken,
}

impl OwnSender {
    pub(super) fn new(upstream: Box<str>, tasks: TaskTracker, is_over: CancellationToken) -> Self {
        Self {
            upstream,
            tasks,
            is_over,
        }
    }

    /// Sends a message of the hub. Errors are only logged.
    pub(super) async fn send_quietly(&self, link: &Link, message: Message) {
        if let Err(error) = self.send(link, message).await {
            tracing::debug!(
                "upstream {}: failed to send a message over the shared connection: {error}",
                self.upstream
            );
        }
    }

    /// Sends a message whose exchange no session drives, and waits until it has been sent.
    pub(super) async fn send(&self, link: &Link, message: Message) -> Result<(), UpstreamError> {
        if let SendOutcome::UnderWay(exchange) = link.send(message).await? {
            let run = self.is_over.clone().run_until_cancelled_owned(exchange.run);
            self.tasks.spawn(run);
            // A failure to send is reported through the events. The callers must not wait longer
            // than this for it.
            let _ = tokio::time::timeout(OWN_LIMIT, exchange.on_its_way).await;
        }
        Ok(())
    }
}
