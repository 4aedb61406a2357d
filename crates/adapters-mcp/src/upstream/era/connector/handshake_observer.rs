//! The observation of handshakes that the bridge for modern clients makes.
//!
//! A server that refuses them is not the legacy server that it was assumed to be. The stored era is
//! then dropped, and the next message triggers a new detection.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::upstream::{
    SendOutcome, UpstreamConnector, UpstreamError, UpstreamEvents, UpstreamLink,
};

use super::super::detection::tells_the_era;
use super::memory::EraMemory;

/// A connector that stores the outcome of handshakes.
#[derive(Debug)]
pub(super) struct HandshakeObserver {
    inner: Arc<dyn UpstreamConnector>,
    memory: Arc<EraMemory>,
}

impl HandshakeObserver {
    /// Returns a connector that reports to `memory`.
    pub(super) fn new(inner: &Arc<dyn UpstreamConnector>, memory: &Arc<EraMemory>) -> Self {
        Self {
            inner: Arc::clone(inner),
            memory: Arc::clone(memory),
        }
    }
}

#[async_trait]
impl UpstreamConnector for HandshakeObserver {
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
        let events = Arc::new(ObservedEvents {
            events,
            handshakes: Arc::clone(&handshakes),
        });
        let link = self.inner.connect(principal, events).await?;
        Ok(Arc::new(ObservedLink { link, handshakes }))
    }
}

/// The unanswered handshakes of one connection.
#[derive(Debug)]
struct Handshakes {
    open: Mutex<HashSet<RequestId>>,
    memory: Arc<EraMemory>,
}

impl Handshakes {}

#[derive(Debug)]
struct ObservedLink {
    link: Arc<dyn UpstreamLink>,
    handshakes: Arc<Handshakes>,
}

#[async_trait]
impl UpstreamLink for ObservedLink {
    async fn send(&self, message: Message) -> Result<SendOutcome, UpstreamError> {
        let request = message.single().and_then(|envelope| envelope.as_request());
        if let Some((method::INITIALIZE, id)) = request {
            self.handshakes.open.lock().insert(id.clone());
        }
        self.link.send(message).await
    }

    fn has_streams(&self) -> bool {
        self.link.has_streams()
    }

    fn time_to_start(&self) -> Option<Duration> {
        self.link.time_to_start()
    }

    async fn close(&self) {
        self.link.close().await;
    }
}

#[derive(Debug)]
struct ObservedEvents {
    events: Arc<dyn UpstreamEvents>,
    handshakes: Arc<Handshakes>,
}

#[async_trait]
impl UpstreamEvents for ObservedEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let answer = message.single().filter(|envelope| envelope.is_response());
        if let Some(envelope) = answer
            && let Some(id) = envelope.id().or(related.as_ref())
            && self.handshakes.open.lock().remove(id)
        {
            match envelope.kind() {
                MessageKind::Success => self.handshakes.memory.found_legacy(),
                _ => self.handshakes.memory.forget(),
            }
        }
        self.events.on_message(message, related).await;
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        if self.handshakes.open.lock().remove(&request) && tells_the_era(&error) {
            self.handshakes.memory.forget();
        }
        self.events.on_unanswered(request, error).await;
    }

    async fn on_lost(&self, error: UpstreamError) {
        if !std::mem::take(&mut *self.handshakes.open.lock()).is_empty() {
            self.handshakes.memory.forget();
        }
        self.events.on_lost(error).await;
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
        async fn on_message(&self, _message: Message, _related: Option<RequestId>) {}

        async fn on_unanswered(&self, _request: RequestId, _error: UpstreamError) {}

        async fn on_lost(&self, _error: UpstreamError) {}
    }

    /// Returns an upstream with a handshake in flight, and the stored era.
    async fn handshake_in_flight() -> (Arc<ScriptedUpstream>, Arc<EraMemory>, Arc<dyn UpstreamLink>)
    {
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        let memory = Arc::new(EraMemory::default());
        memory.found_unmodern();
        let inner: Arc<dyn UpstreamConnector> = upstream.clone();
        let witness = HandshakeObserver::new(&inner, &memory);
        let link = witness.connect(&Principal::local(), Arc::new(Deaf)).await;
        let link = link.unwrap();
        let hello = Message::from_text(HELLO.into()).unwrap();
        assert!(matches!(link.send(hello).await, Ok(SendOutcome::Delivered)));
        (upstream, memory, link)
    }

    #[tokio::test]
    async fn successful_handshakes_identify_legacy_servers() {
        let (upstream, memory, _link) = handshake_in_flight().await;
        upstream
            .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
            .await;
        assert!(memory.speaks_legacy() && memory.refuses_modern());
        let error = UpstreamError::Lost { reason: "x".into() };
        upstream.lose_connection(error).await;
        assert!(memory.speaks_legacy());
    }

    #[tokio::test]
    async fn failed_handshakes_make_the_era_uncertain() {
        for way in 0..3 {
            let (upstream, memory, _link) = handshake_in_flight().await;
            let error = UpstreamError::Lost { reason: "x".into() };
            match way {
                0 => {
                    let refused = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601}}"#;
                    upstream.send_to_client(refused, None).await;
                }
                1 => {
                    let id = RequestId::Number("1".into());
                    upstream.leave_unanswered(id, error).await;
                }
                _ => upstream.lose_connection(error).await,
            }
            assert!(!memory.refuses_modern(), "way {way}");
            assert_eq!(memory.epoch(), 1, "way {way}");
        }
    }
}
