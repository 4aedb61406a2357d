//! Messages of which it is not known where they go.

use std::sync::Arc;

use riglm_domain::message::Message;
use riglm_ports::upstream::{Sent, UpstreamError, UpstreamLink};

use super::super::detection::{
    Answer, DISCOVER, INITIALIZE, Verdict, discover_for_nobody, discover_id, has_method,
    is_modern_request, judge,
};
use super::super::legacy_client::LegacyClientLink;
use super::super::modern_client::ModernClientLink;
use super::junction::{Face, Inner, Junction, Place, closed};
use super::witness::WitnessConnector;

impl Junction {
    /// Sends a message when it is known where to. Messages that come meanwhile wait, in order.
    pub(super) async fn decide(self: &Arc<Self>, message: Message) -> Result<Sent, UpstreamError> {
        let place = Arc::clone(&self.place).lock_owned().await;
        let epoch = self.memory.epoch();
        let is_handshake = has_method(&message, INITIALIZE);
        let is_modern = is_modern_request(&message);
        match &*self.face.load_full() {
            // It was found out while this message waited.
            Face::Legacy(link) => return link.send(message).await,
            Face::LegacyClient(client) if !is_handshake => return client.send(message).await,
            Face::Modern { inner, epoch: then } if *then == epoch && !is_handshake => {
                inner.receiver.watch_discover(&message);
                return inner.link.send(message).await;
            }
            Face::ModernClient { link, epoch: then } if *then == epoch && !is_handshake => {
                return link.send(message).await;
            }
            // It concerns what is in flight there.
            Face::ModernClient { link, .. } if !is_handshake && !is_modern => {
                return link.send(message).await;
            }
            Face::Closed => return Err(closed()),
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

    /// Sends a modern request to whatever understands it.
    async fn place_modern(
        self: &Arc<Self>,
        mut place: Place,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
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
                self.events.lost(error.clone()).await;
                return Err(error);
            }
        };
        // The client's own question is as good as one of the bridge, unless it is refused.
        let is_discover = has_method(&message, DISCOVER);
        let own_id = message.single().and_then(|envelope| envelope.id().cloned());
        let limit = self.options.probe_timeout;
        let own = match own_id.filter(|_| is_discover) {
            Some(id) => {
                let answer = self.ask(&inner, &id, message.clone(), limit).await;
                Some((id, answer))
            }
            None => None,
        };
        let is_refused = |answer: &Option<Answer>| {
            matches!(answer, Some(Ok(_))) && matches!(judge(answer.as_ref()), Verdict::Legacy)
        };
        let probed = match &own {
            Some((_, answer)) if !is_refused(answer) => None,
            _ => discover_for_nobody(),
        };
        let answer = match (probed, &own) {
            (Some(probe), _) => self.ask(&inner, &discover_id(), probe, limit).await,
            (None, Some((_, answer))) => answer.clone(),
            (None, None) => return self.place_legacy(place, message).await,
        };
        if self.closing.is_cancelled() {
            return Err(closed()); // It says nothing of the upstream.
        }
        if inner.is_used
            && inner.receiver.is_over()
            && let Some(Err(error)) = answer
        {
            // More than this request is lost.
            self.events.lost(error.clone()).await;
            return Err(error);
        }
        match judge(answer.as_ref()) {
            Verdict::Modern => {
                self.memory.found_modern();
                let inner = self.open_for_client(&mut place).await?;
                match own {
                    Some((id, Some(Ok(answer)))) => {
                        self.settle(self.modern(inner));
                        drop(place);
                        self.events.received(answer, Some(id)).await;
                        Ok(Sent::Delivered)
                    }
                    _ => self.to_modern_server(inner, message).await,
                }
            }
            Verdict::Legacy => {
                tracing::debug!("the upstream speaks no modern revision");
                self.memory.found_unmodern();
                self.to_modern_client(place, message).await
            }
            Verdict::Unclear(error) => {
                if inner.receiver.is_over() {
                    self.events.lost(error.clone()).await;
                }
                Err(error)
            }
        }
    }

    /// Sends a message that says nothing of its era.
    async fn place_legacy(
        self: &Arc<Self>,
        mut place: Place,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
        let inner = self.open_for_client(&mut place).await?;
        if !self.memory.is_modern_only() {
            return inner.link.send(message).await;
        }
        let client = self.legacy_client(&inner);
        self.settle(Face::LegacyClient(Arc::clone(&client)));
        client.send(message).await
    }

    async fn to_modern_server(
        self: &Arc<Self>,
        inner: Inner,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
        inner.receiver.watch_discover(&message);
        let link = Arc::clone(&inner.link);
        self.settle(self.modern(inner));
        link.send(message).await
    }

    async fn to_modern_client(
        self: &Arc<Self>,
        mut place: Place,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
        if place.as_ref().is_some_and(|inner| !inner.is_used) {
            self.discard(&mut place).await;
        }
        let connector = WitnessConnector::new(&self.connector, &self.memory);
        let link: Arc<dyn UpstreamLink> = ModernClientLink::new(
            Arc::new(connector),
            self.principal.clone(),
            Arc::clone(&self.events),
            self.options.clone(),
        );
        self.settle(Face::ModernClient {
            link: Arc::clone(&link),
            epoch: self.memory.epoch(),
        });
        link.send(message).await
    }

    fn modern(&self, inner: Inner) -> Face {
        Face::Modern {
            inner,
            epoch: self.memory.epoch(),
        }
    }

    /// Returns the bridge for a legacy client over this connection, the one that is there if it
    /// stands on it.
    pub(super) fn legacy_client(&self, inner: &Inner) -> Arc<LegacyClientLink> {
        match &**self.face.load() {
            Face::LegacyClient(client) if client.stands_on(&inner.link) => Arc::clone(client),
            _ => Arc::new(LegacyClientLink::new(
                Arc::clone(&inner.link),
                Arc::clone(&self.events),
                self.options.clone(),
            )),
        }
    }
}
