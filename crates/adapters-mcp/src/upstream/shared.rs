//! The shared upstream: one upstream session for all sessions of a principal, for servers that keep
//! no state of their clients (`isolation = "shared"`).
//!
//! Each session sees a connection of its own. `rewriting` and `requests` map request ids and
//! progress tokens in both directions. The handshake is made once, subscriptions are counted
//! (`subscriptions`), and `incoming` sends a notification without an addressee to every session
//! that it may concern. `hub` owns the connection and its state. A lost connection is never
//! repaired: its sessions are notified, and the next session that connects gets a new hub.
//!
//! A request from the server cannot be attributed to one client. Clients are therefore announced
//! without capabilities, and requests from the server are refused.

mod hub;
mod incoming;
mod outgoing;
mod own_messages;
mod requests;
mod rewriting;
mod session_handle;
mod session_link;
mod shared_requests;
mod subscriptions;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use hub::Hub;
use session_link::SessionLink;

/// The timeout for closing all connections when the connector is closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);

/// A connector that gives all sessions of one principal the same connection of the inner connector.
///
/// The connection is opened when the first session connects, which sessions do with their first
/// message. It is closed when no session has used it for one minute.
#[derive(Debug)]
pub struct SharedConnector {
    inner: Arc<dyn UpstreamConnector>,
    hubs: Hubs,
    tasks: TaskTracker,
    // Cancelled when no more sessions will connect. Unused connections are then closed at once.
    no_more: CancellationToken,
}

type Hubs = Arc<Mutex<HashMap<Principal, Arc<Hub>>>>;

impl SharedConnector {
    /// Returns a connector whose sessions share the connections of `inner`.
    #[must_use]
    pub fn new(inner: Arc<dyn UpstreamConnector>) -> Self {
        Self {
            inner,
            hubs: Hubs::default(),
            tasks: TaskTracker::new(),
            no_more: CancellationToken::new(),
        }
    }

    /// Closes the connections that no session uses and waits until they are closed.
    ///
    /// Call it when all sessions are closed.
    pub async fn close(&self) {
        self.no_more.cancel();
        self.tasks.close();
        // A connection that does not close in time ends with the process.
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.tasks.wait()).await;
    }

    /// Returns the hub of a principal, or a new hub if no hub accepts sessions.
    fn hub(&self, principal: &Principal) -> Arc<Hub> {
        let mut hubs = self.hubs.lock();
        if let Some(hub) = hubs.get(principal).filter(|hub| hub.takes_sessions()) {
            return Arc::clone(hub);
        }
        let hub = Hub::new(Arc::clone(&self.inner), principal.clone(), &self.tasks);
        hubs.insert(principal.clone(), Arc::clone(&hub));
        self.tasks.spawn(run_hub(
            Arc::clone(&hub),
            Arc::clone(&self.hubs),
            principal.clone(),
            self.no_more.clone(),
        ));
        hub
    }
}

impl Drop for SharedConnector {
    fn drop(&mut self) {
        self.no_more.cancel();
    }
}

#[async_trait]
impl UpstreamConnector for SharedConnector {
    fn name(&self) -> &UpstreamName {
        self.inner.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        // A connection can end between lookup and attach. A new connection hardly ends that soon,
        // so one retry is enough.
        for _ in 0..2 {
            let hub = self.hub(principal);
            let link = hub.open_link().await?;
            if let Some(seat) = hub.attach(&events) {
                return Ok(Arc::new(SessionLink::new(hub, link, seat)));
            }
        }
        Err(hub::connection_ended())
    }
}

/// Runs a hub until its connection is closed, then removes the hub from the map.
async fn run_hub(hub: Arc<Hub>, hubs: Hubs, principal: Principal, no_more: CancellationToken) {
    hub.run(&no_more).await;
    let mut hubs = hubs.lock();
    // A newer hub of the same principal must stay in the map.
    if hubs
        .get(&principal)
        .is_some_and(|known| Arc::ptr_eq(known, &hub))
    {
        hubs.remove(&principal);
    }
}
