//! The decision about messages whose destination is not known yet.

use std::sync::Arc;

use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::meta::is_modern_request;
use riglm_domain::mcp::method;
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamLink};

use super::super::detection::{Answer, EraVerdict, discover_for_nobody, discover_id, era_verdict};
use super::super::legacy_client::LegacyClientLink;
use super::super::modern_client::ModernClientLink;
use super::era_switch::{ConnectionSlot, EraConnection, EraSwitch, Mode, link_closed};
use super::handshake_observer::HandshakeObserver;

impl EraSwitch {
    /// Sends a message once its destination is known. Messages that arrive in the meantime wait in
    /// order.
    pub(super) async fn decide(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let place = Arc::clone(&self.place).lock_owned().await;
        let epoch = self.memory.epoch();
        let is_handshake = message.has_method(method::INITIALIZE);
        let is_modern = is_modern_request(&message);
        match &*self.face.load_full() {
            // The era was detected while this message waited.
            Mode::Legacy(link) => return link.send(message).await,
            Mode::LegacyClient(client) if !is_handshake => return client.send(message).await,
            Mode::Modern { inner, epoch: then } if *then == epoch && !is_handshake => {
                inner.receiver.watch_discover(&message);
                return inner.link.send(message).await;
            }
            Mode::ModernClient { link, epoch: then } if *then == epoch && !is_handshake => {
                return link.send(message).await;
            }
            // The message concerns requests in flight on that link.
            Mode::ModernClient { link, .. } if !is_handshake && !is_modern => {
                return link.send(message).await;
            }
            Mode::Closed => return Err(link_closed()),
            _ => {}
        }
        if is_handshake {
            self.begin_handshake(place, message).await
        } else if is_modern {
            self.place_modern(place, message).await
        } else {
            self.place_legacy(place, message).await
        }
    }

    /// Sends a modern request to a server or bridge that accepts it.
    async fn place_modern(
        self: &Arc<Self>,
        mut place: ConnectionSlot,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        if self.memory.refuses_modern() {
            return self.to_modern_client(place, message).await;
        }
        if self.memory.speaks_modern() {
            let inner = self.open_for_client(&mut place).await?;
            return self.to_modern_server(inner, message).await;
        }
        let inner = match self.open(&mut place).await {
            Ok(inner) => inner,
            Err(error) => {
                self.events.on_lost(error.clone()).await;
                return Err(error);
            }
        };
        // A `server/discover` request of the client is as good as a probe, unless the server
        // refuses it.
        let is_discover = message.has_method(method::SERVER_DISCOVER);
        let own_id = message.single().and_then(|envelope| envelope.id().cloned());
        let limit = self.options.probe_timeout;
        let own = match own_id.filter(|_| is_discover) {
            Some(id) => {
                let answer = self.probe(&inner, &id, message.clone(), limit).await;
                Some((id, answer))
            }
            None => None,
        };
        let is_refused = |answer: &Option<Answer>| {
            matches!(answer, Some(Ok(_)))
                && matches!(era_verdict(answer.as_ref()), EraVerdict::Legacy)
        };
        let answer = match &own {
            Some((_, answer)) if !is_refused(answer) => answer.clone(),
            _ => {
                let probe = discover_for_nobody();
                self.probe(&inner, &discover_id(), probe, limit).await
            }
        };
        // An answer that the closing caused is no evidence about the era.
        if self.tasks.closing().is_cancelled() {
            return Err(link_closed()); // It says nothing of the upstream.
        }
        if inner.is_used
            && inner.receiver.is_over()
            && let Some(Err(error)) = answer
        {
            // The loss concerns more than this request, so the session must know.
            self.events.on_lost(error.clone()).await;
            return Err(error);
        }
        match era_verdict(answer.as_ref()) {
            EraVerdict::Modern => {
                self.memory.found_modern();
                let inner = self.open_for_client(&mut place).await?;
                match own {
                    Some((id, Some(Ok(answer)))) => {
                        self.settle(self.modern(inner));
                        drop(place);
                        self.events.on_message(answer, Some(id)).await;
                        Ok(SendOutcome::Delivered)
                    }
                    _ => self.to_modern_server(inner, message).await,
                }
            }
            EraVerdict::Legacy => {
                tracing::debug!("the upstream supports no modern revision");
                self.memory.found_unmodern();
                self.to_modern_client(place, message).await
            }
            EraVerdict::Unclear(error) => {
                if inner.receiver.is_over() {
                    self.events.on_lost(error.clone()).await;
                }
                Err(error)
            }
        }
    }

    /// Sends a message that does not show its era.
    async fn place_legacy(
        self: &Arc<Self>,
        mut place: ConnectionSlot,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let inner = self.open_for_client(&mut place).await?;
        if !self.memory.is_modern_only() {
            return inner.link.send(message).await;
        }
        let client = self.legacy_client(&inner);
        self.settle(Mode::LegacyClient(Arc::clone(&client)));
        client.send(message).await
    }

    async fn to_modern_server(
        self: &Arc<Self>,
        inner: EraConnection,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        inner.receiver.watch_discover(&message);
        let link = Arc::clone(&inner.link);
        self.settle(self.modern(inner));
        link.send(message).await
    }

    async fn to_modern_client(
        self: &Arc<Self>,
        mut place: ConnectionSlot,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        if place.as_ref().is_some_and(|inner| !inner.is_used) {
            self.discard(&mut place).await;
        }
        let connector = HandshakeObserver::new(&self.connector, &self.memory);
        let link: Arc<dyn UpstreamLink> = ModernClientLink::new(
            Arc::new(connector),
            self.principal.clone(),
            Arc::clone(&self.events),
            self.options.clone(),
        );
        self.settle(Mode::ModernClient {
            link: Arc::clone(&link),
            epoch: self.memory.epoch(),
        });
        link.send(message).await
    }

    fn modern(&self, inner: EraConnection) -> Mode {
        Mode::Modern {
            inner,
            epoch: self.memory.epoch(),
        }
    }

    /// Returns the bridge for a legacy client over this connection. Reuses the present bridge if it
    /// uses this connection.
    pub(super) fn legacy_client(&self, inner: &EraConnection) -> Arc<LegacyClientLink> {
        match &**self.face.load() {
            Mode::LegacyClient(client) if client.uses_link(&inner.link) => Arc::clone(client),
            _ => Arc::new(LegacyClientLink::new(
                Arc::clone(&inner.link),
                Arc::clone(&self.events),
                self.options.clone(),
            )),
        }
    }
}
