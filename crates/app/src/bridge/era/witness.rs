//! Learning from the handshakes that the bridge for modern clients makes by itself.
//!
//! A server that refuses them is not the legacy server that it was taken for: what is known of it
//! is forgotten, so that the next message finds it out.

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::message::{Kind, Message, RequestId};
use riglm_domain::principal::Principal;
use riglm_ports::upstream::{Sent, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink};

use super::super::detection::{INITIALIZE, tells_the_era};
use super::memory::Memory;

/// Connects as another connector does, and notes how handshakes end.
#[derive(Debug)]
pub(super) struct WitnessConnector {
    inner: Arc<dyn UpstreamConnector>,
    memory: Arc<Memory>,
}

impl WitnessConnector {
    /// Returns a connector that tells `memory` what it sees.
    pub(super) fn new(inner: &Arc<dyn UpstreamConnector>, memory: &Arc<Memory>) -> Self {
        Self {
            inner: Arc::clone(inner),
            memory: Arc::clone(memory),
        }
    }
}

#[async_trait]
impl UpstreamConnector for WitnessConnector {
    fn name(&self) -> &UpstreamName {
        self.inner.name()
    }

    async fn connect(
        &self,
        principal: &Principal,
        events: Arc<dyn UpstreamEvents>,
    ) -> Result<Arc<dyn UpstreamLink>, UpstreamError> {
        let handshakes = Arc::new(Handshakes {
            open: Mutex::default(),
            memory: Arc::clone(&self.memory),
        });
        let events = Arc::new(WitnessEvents {
            events,
            handshakes: Arc::clone(&handshakes),
        });
        let link = self.inner.connect(principal, events).await?;
        Ok(Arc::new(WitnessLink { link, handshakes }))
    }
}

/// The handshakes of one connection that are not answered.
#[derive(Debug)]
struct Handshakes {
    open: Mutex<HashSet<RequestId>>,
    memory: Arc<Memory>,
}

impl Handshakes {
    fn open(&self) -> MutexGuard<'_, HashSet<RequestId>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct WitnessLink {
    link: Arc<dyn UpstreamLink>,
    handshakes: Arc<Handshakes>,
}

#[async_trait]
impl UpstreamLink for WitnessLink {
    async fn send(&self, message: Message) -> Result<Sent, UpstreamError> {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((INITIALIZE, id)) = request {
            self.handshakes.open().insert(id.clone());
        }
        self.link.send(message).await
    }

    fn has_streams(&self) -> bool {
        self.link.has_streams()
    }

    async fn close(&self) {
        self.link.close().await;
    }
}

#[derive(Debug)]
struct WitnessEvents {
    events: Arc<dyn UpstreamEvents>,
    handshakes: Arc<Handshakes>,
}

#[async_trait]
impl UpstreamEvents for WitnessEvents {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        let answer = message.single().filter(|envelope| envelope.is_response());
        if let Some(envelope) = answer
            && let Some(id) = envelope.id().or(related.as_ref())
            && self.handshakes.open().remove(id)
        {
            match envelope.kind() {
                Kind::Success => self.handshakes.memory.found_legacy(),
                _ => self.handshakes.memory.forget(),
            }
        }
        self.events.received(message, related).await;
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        if self.handshakes.open().remove(&request) && tells_the_era(&error) {
            self.handshakes.memory.forget();
        }
        self.events.unanswered(request, error).await;
    }

    async fn lost(&self, error: UpstreamError) {
        if !std::mem::take(&mut *self.handshakes.open()).is_empty() {
            self.handshakes.memory.forget();
        }
        self.events.lost(error).await;
    }
}
