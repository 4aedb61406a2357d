//! What one session holds of a shared connection.

use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::message::Message;
use riglm_ports::upstream::{Sent, UpstreamError, UpstreamLink};
use tokio_util::sync::CancellationToken;

use super::hub::Hub;
use super::requests::SeatNumber;

/// The sending half of a session's share in a connection.
#[derive(Debug)]
pub(super) struct SessionLink {
    hub: Arc<Hub>,
    link: Arc<dyn UpstreamLink>,
    seat: SeatNumber,
    left: CancellationToken,
}

impl SessionLink {
    /// Returns the link of the session with this seat.
    pub(super) fn new(
        hub: Arc<Hub>,
        link: Arc<dyn UpstreamLink>,
        (seat, left): (SeatNumber, CancellationToken),
    ) -> Self {
        Self {
            hub,
            link,
            seat,
            left,
        }
    }
}

#[async_trait]
impl UpstreamLink for SessionLink {
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        self.hub.pass_up(&self.link, self.seat, message).await
    }

    fn has_streams(&self) -> bool {
        self.link.has_streams()
    }

    /// Takes back what the session asked for. The connection itself stays for the others.
    async fn close(&self) {
        self.left.cancel();
        if let Some((_, leftover)) = self.hub.detach(self.seat) {
            self.hub.give_up(&self.link, leftover).await;
        }
    }
}

impl Drop for SessionLink {
    fn drop(&mut self) {
        self.left.cancel();
        let Some((_, leftover)) = self.hub.detach(self.seat) else {
            return;
        };
        if tokio::runtime::Handle::try_current().is_ok() {
            let (hub, link) = (Arc::clone(&self.hub), Arc::clone(&self.link));
            let tasks = self.hub.tasks.clone();
            tasks.spawn(async move { hub.give_up(&link, leftover).await });
        }
    }
}
