//! Finding out which eras an upstream speaks, and choosing for each client session between passing
//! through and bridging.
//!
//! What a server speaks is a property of the server: it is remembered for all sessions, and
//! forgotten when it turns out wrong, so that an upgraded server is found out. Nothing is asked
//! before a client says something: an `initialize` goes to the upstream as it is, and only a server
//! that refuses it is probed.

mod deciding;
mod initialize;
mod junction;
mod memory;
mod receiver;
mod witness;

use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::Message;
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};
use tokio_util::sync::DropGuard;

use self::junction::{Face, Junction};
use self::memory::Memory;
use super::detection::{INITIALIZE, has_method};
use super::options::BridgeOptions;

/// Connects clients of either era to an upstream of either era.
#[derive(Debug)]
pub struct EraConnector {
    inner: Arc<dyn UpstreamConnector>,
    options: BridgeOptions,
    memory: Arc<Memory>,
}

impl EraConnector {
    /// Returns a connector that stands in front of `inner`, of which nothing is known.
    #[must_use]
    pub fn new(inner: Arc<dyn UpstreamConnector>, options: BridgeOptions) -> Self {
        Self {
            inner,
            options,
            memory: Arc::default(),
        }
    }
}

#[async_trait]
impl UpstreamConnector for EraConnector {
    fn name(&self) -> &UpstreamName {
        self.inner.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let junction = Arc::new(Junction::new(
            Arc::clone(&self.inner),
            Arc::clone(&self.memory),
            principal.clone(),
            events,
            self.options.clone(),
        ));
        let link = EraLink {
            closing: junction.closing.clone().drop_guard(),
            junction,
        };
        // A modern client of a legacy upstream gets connections of another kind.
        if !self.memory.refuses_modern() {
            let mut place = Arc::clone(&link.junction.place).lock_owned().await;
            link.junction.open(&mut place).await?;
        }
        Ok(Arc::new(link))
    }
}

/// The sending half of one client session.
#[derive(Debug)]
struct EraLink {
    junction: Arc<Junction>,
    /// Ends what runs for the link when it is dropped without a close.
    closing: DropGuard,
}

#[async_trait]
impl UpstreamLink for EraLink {
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        let junction = &self.junction;
        match &*junction.face.load_full() {
            Face::Legacy(link) => link.send(message).await,
            Face::Modern { inner, epoch }
                if junction.memory.epoch() == *epoch && !has_method(&message, INITIALIZE) =>
            {
                inner.receiver.watch_discover(&message);
                inner.link.send(message).await
            }
            Face::LegacyClient(client) if !has_method(&message, INITIALIZE) => {
                client.send(message).await
            }
            Face::ModernClient { link, epoch }
                if junction.memory.epoch() == *epoch && !has_method(&message, INITIALIZE) =>
            {
                link.send(message).await
            }
            Face::Closed => Err(junction::closed()),
            _ => junction.decide(message).await,
        }
    }

    fn has_streams(&self) -> bool {
        match &**self.junction.face.load() {
            Face::Undecided(link) => link.as_ref().is_some_and(|link| link.has_streams()),
            Face::Legacy(link) | Face::ModernClient { link, .. } => link.has_streams(),
            Face::Modern { inner, .. } => inner.link.has_streams(),
            Face::LegacyClient(client) => client.has_streams(),
            Face::Closed => false,
        }
    }

    fn is_needed(&self) -> bool {
        match &**self.junction.face.load() {
            Face::ModernClient { link, .. } => link.is_needed(),
            _ => false,
        }
    }

    async fn close(&self) {
        self.closing.token().cancel();
        self.junction.close().await;
    }
}
