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

#[cfg(test)]
mod tests {
    use riglm_ports::fake::ScriptedUpstream;

    use super::*;

    const HELLO: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize"}"#;

    #[derive(Debug)]
    struct Deaf;

    #[async_trait]
    impl UpstreamEvents for Deaf {
        async fn received(&self, _message: Message, _related: Option<RequestId>) {}

        async fn unanswered(&self, _request: RequestId, _error: UpstreamError) {}

        async fn lost(&self, _error: UpstreamError) {}
    }

    /// Returns an upstream with a handshake in flight, and what is known of it.
    async fn shaking() -> (Arc<ScriptedUpstream>, Arc<Memory>, Arc<dyn UpstreamLink>) {
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        let memory = Arc::new(Memory::default());
        memory.found_unmodern();
        let inner: Arc<dyn UpstreamConnector> = upstream.clone();
        let witness = WitnessConnector::new(&inner, &memory);
        let link = witness.connect(&Principal::local(), Arc::new(Deaf)).await;
        let link = link.unwrap();
        let hello = Message::from_text(HELLO.into()).unwrap();
        assert!(matches!(link.send(hello).await, Ok(Sent::Delivered)));
        (upstream, memory, link)
    }

    #[tokio::test]
    async fn a_handshake_that_succeeds_is_that_of_a_legacy_server() {
        let (upstream, memory, _link) = shaking().await;
        upstream
            .say(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
            .await;
        assert!(memory.speaks_legacy() && memory.refuses_modern());
        let error = UpstreamError::Lost { reason: "x".into() };
        upstream.lose(error).await;
        assert!(memory.speaks_legacy());
    }

    #[tokio::test]
    async fn a_handshake_that_fails_makes_everything_uncertain() {
        for way in 0..3 {
            let (upstream, memory, _link) = shaking().await;
            let error = UpstreamError::Lost { reason: "x".into() };
            match way {
                0 => {
                    let refused = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}"#;
                    upstream.say(refused, None).await;
                }
                1 => {
                    let id = RequestId::Number("1".into());
                    upstream.leave_unanswered(id, error).await;
                }
                _ => upstream.lose(error).await,
            }
            assert!(!memory.refuses_modern(), "way {way}");
            assert_eq!(memory.epoch(), 1, "way {way}");
        }
    }
}
