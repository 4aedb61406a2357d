//! One upstream connection for all sessions of a principal, for servers that keep no state of their
//! clients: `isolation = "shared"`.
//!
//! To the sessions it looks like connections of their own. Between them and the one connection ids
//! and progress tokens are mapped in both directions (`rewriting`, `requests`), the handshake is made
//! once (`in_common`), subscriptions are counted (`subscriptions`), and what the server says to
//! nobody in particular is told to everyone whom it may concern (`incoming`). `hub` is the connection
//! with all that hangs on it; a lost connection is never repaired: the sessions are told, and the
//! next one to connect gets a new hub.
//!
//! What the server asks for cannot be attributed to a client, so clients are announced to it
//! without capabilities, and requests that it makes all the same are refused.

mod hub;
mod in_common;
mod incoming;
mod outgoing;
mod own_messages;
mod requests;
mod rewriting;
mod seat;
mod session_link;
mod subscriptions;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use hub::Hub;
use session_link::SessionLink;

/// The longest that connections may take to end when the connector is closed.
const CLOSE_WITHIN: Duration = Duration::from_secs(15);

/// Gives the sessions of one principal one connection of the connector behind it.
///
/// The connection is made when the first session connects, which sessions do at their first
/// message, and is closed when none has used it for a minute.
#[derive(Debug)]
pub struct SharedConnector {
    inner: Arc<dyn UpstreamConnector>,
    hubs: Hubs,
    tasks: TaskTracker,
    /// Cancelled when nobody will connect any more: what is unused is closed at once.
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

    /// Closes the connections that no session uses, and returns when that is done. To be called
    /// when all sessions are closed.
    pub async fn close(&self) {
        self.no_more.cancel();
        self.tasks.close();
        // A connection that cannot be closed in time ends with the process.
        let _ = tokio::time::timeout(CLOSE_WITHIN, self.tasks.wait()).await;
    }

    /// Returns the hub of a principal, a new one if there is none that takes sessions.
    fn hub(&self, principal: &Principal) -> Arc<Hub> {
        let mut hubs = self.hubs.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(hub) = hubs.get(principal).filter(|hub| hub.takes_sessions()) {
            return Arc::clone(hub);
        }
        let hub = Hub::new(Arc::clone(&self.inner), principal.clone(), &self.tasks);
        hubs.insert(principal.clone(), Arc::clone(&hub));
        self.tasks.spawn(watch_over(
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
        // A connection may end between being found and being joined; a new one does not so soon.
        for _ in 0..2 {
            let hub = self.hub(principal);
            let link = hub.opened().await?;
            if let Some(seat) = hub.attach(&events) {
                return Ok(Arc::new(SessionLink::new(hub, link, seat)));
            }
        }
        Err(hub::ended())
    }
}

/// Opens a connection, closes it when it is no longer used, and forgets it.
async fn watch_over(hub: Arc<Hub>, hubs: Hubs, principal: Principal, no_more: CancellationToken) {
    hub.live(&no_more).await;
    let mut hubs = hubs.lock().unwrap_or_else(PoisonError::into_inner);
    if hubs
        .get(&principal)
        .is_some_and(|known| Arc::ptr_eq(known, &hub))
    {
        hubs.remove(&principal);
    }
}
