//! The detection of the eras of an upstream, and the choice between pass-through and bridge for
//! each client session.
//!
//! The era is a property of the server. It is stored for all sessions and dropped when it proves
//! wrong, so that an upgraded server is detected. No request is sent before the first message of a
//! client: an `initialize` request goes to the upstream verbatim, and only a server that refuses it
//! is probed.

mod deciding;
mod era_switch;
mod handshake_observer;
mod initialize;
mod memory;
mod receiver;

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::method;
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};
use tokio_util::sync::DropGuard;

use self::era_switch::{EraSwitch, Mode};
use self::memory::EraMemory;
use super::options::BridgeOptions;

/// Connects clients of either era to an upstream of either era.
#[derive(Debug)]
pub struct EraConnector {
    inner: Arc<dyn UpstreamConnector>,
    options: BridgeOptions,
    memory: Arc<EraMemory>,
}

impl EraConnector {
    /// Returns a connector that wraps `inner`. Nothing is known of its era yet.
    #[must_use]
    pub fn new(inner: Arc<dyn UpstreamConnector>, options: BridgeOptions) -> Self {
        Self {
            inner,
            options,
            memory: Arc::default(),
        }
    }

    /// Makes the upstream count as one of this era only. It is then never probed.
    #[must_use]
    pub fn with_era(self, era: Era) -> Self {
        Self {
            memory: Arc::new(EraMemory::of(era)),
            ..self
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
        let junction = Arc::new(EraSwitch::new(
            Arc::clone(&self.inner),
            Arc::clone(&self.memory),
            principal.clone(),
            events,
            self.options.clone(),
        ));
        let link = EraLink {
            closing: junction.tasks.closing().clone().drop_guard(),
            junction,
        };
        // A modern client of a legacy upstream gets connections of its own kind later.
        if !self.memory.refuses_modern() {
            let mut place = Arc::clone(&link.junction.place).lock_owned().await;
            link.junction.open(&mut place).await?;
        }
        Ok(Arc::new(link))
    }

    fn speaks_modern(&self) -> bool {
        self.memory.speaks_modern()
    }
}

/// The sending half of one client session.
#[derive(Debug)]
struct EraLink {
    junction: Arc<EraSwitch>,
    /// Stops the tasks of the link if it is dropped without `close`.
    closing: DropGuard,
}

#[async_trait]
impl UpstreamLink for EraLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let junction = &self.junction;
        match &*junction.face.load_full() {
            Mode::Legacy(link) => link.send(message).await,
            Mode::Modern { inner, epoch }
                if junction.memory.epoch() == *epoch && !message.has_method(method::INITIALIZE) =>
            {
                inner.receiver.watch_discover(&message);
                inner.link.send(message).await
            }
            Mode::LegacyClient(client) if !message.has_method(method::INITIALIZE) => {
                client.send(message).await
            }
            Mode::ModernClient { link, epoch }
                if junction.memory.epoch() == *epoch && !message.has_method(method::INITIALIZE) =>
            {
                link.send(message).await
            }
            Mode::Closed => Err(era_switch::link_closed()),
            _ => junction.decide(message).await,
        }
    }

    fn has_streams(&self) -> bool {
        match &**self.junction.face.load() {
            Mode::Undecided(link) => link.as_ref().is_some_and(|link| link.has_streams()),
            Mode::Legacy(link) | Mode::ModernClient { link, .. } => link.has_streams(),
            Mode::Modern { inner, .. } => inner.link.has_streams(),
            Mode::LegacyClient(client) => client.has_streams(),
            Mode::Closed => false,
        }
    }

    fn is_needed(&self) -> bool {
        match &**self.junction.face.load() {
            Mode::ModernClient { link, .. } => link.is_needed(),
            _ => false,
        }
    }

    fn time_to_start(&self) -> Option<Duration> {
        match &**self.junction.face.load() {
            Mode::Undecided(link) => link.as_ref()?.time_to_start(),
            Mode::Legacy(link) | Mode::ModernClient { link, .. } => link.time_to_start(),
            Mode::Modern { inner, .. } => inner.link.time_to_start(),
            Mode::LegacyClient(client) => client.time_to_start(),
            Mode::Closed => None,
        }
    }

    async fn close(&self) {
        self.closing.token().cancel();
        self.junction.close().await;
    }
}
