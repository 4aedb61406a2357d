//! The upstream link of one session that uses a shared connection.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::mcp::message::Message;
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamLink};

use super::hub::{Hub, Seat};

/// The sending half of a shared connection for one session.
#[derive(Debug)]
pub(super) struct SessionLink {
    hub: Arc<Hub>,
    link: Arc<dyn UpstreamLink>,
    seat: Seat,
}

impl SessionLink {
    /// Returns the link of the session with this place at the hub.
    pub(super) fn new(hub: Arc<Hub>, link: Arc<dyn UpstreamLink>, seat: Seat) -> Self {
        Self { hub, link, seat }
    }
}

#[async_trait]
impl UpstreamLink for SessionLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        self.hub
            .send_from_session(&self.link, self.seat.number, message)
            .await
    }

    fn has_streams(&self) -> bool {
        self.link.has_streams()
    }

    fn time_to_start(&self) -> Option<Duration> {
        self.link.time_to_start()
    }

    /// Cancels the requests and subscriptions of the session. The connection stays open for other
    /// sessions.
    async fn close(&self) {
        self.seat.left.cancel();
        if let Some((_, leftover)) = self.hub.detach(self.seat.number) {
            self.hub.release(&self.link, leftover).await;
        }
    }
}

impl Drop for SessionLink {
    fn drop(&mut self) {
        self.seat.left.cancel();
        // A session that was closed is detached already. This covers links that are dropped without
        // `close`.
        let Some((_, leftover)) = self.hub.detach(self.seat.number) else {
            return;
        };
        // Outside a runtime, for example at the end of the process, no task can be spawned.
        if tokio::runtime::Handle::try_current().is_ok() {
            let (hub, link) = (Arc::clone(&self.hub), Arc::clone(&self.link));
            let tasks = self.hub.tasks.clone();
            tasks.spawn(async move { hub.release(&link, leftover).await });
        }
    }
}
