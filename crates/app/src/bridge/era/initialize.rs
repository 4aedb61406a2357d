//! Handshakes: to the upstream as they are, and answered by the bridge if the upstream is a modern
//! server that refuses them.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::message::{Message, RequestId};
use riglm_ports::upstream::{Sent, UpstreamError, UpstreamLink};

use super::super::detection::{
    Verdict, discover_for_initialize, discover_id, discovered, judge, tells_the_era,
};
use super::junction::{Face, Junction, Place};

/// How a server refused a handshake.
#[derive(Debug)]
pub(super) enum Refusal {
    /// With an error, on the stream of this request.
    Answered(Message, Option<RequestId>),
    /// Without an answer.
    Unanswered(RequestId, UpstreamError),
    /// By ending the connection.
    Lost(UpstreamError),
}

impl Junction {
    /// Sends a handshake to the upstream, or has the bridge answer it.
    pub(super) async fn begin_handshake(
        self: &Arc<Self>,
        mut place: Place,
        initialize: Message,
    ) -> Result<Sent, UpstreamError> {
        if self.memory.is_modern_only() && !initialize.is_batch() {
            let junction = Arc::clone(self);
            self.spawn(async move { junction.answer_handshake(place, initialize).await });
            return Ok(Sent::Delivered);
        }
        let inner = self.open_for_client(&mut place).await?;
        inner.receiver.watch_initialize(&initialize);
        let sent = inner.link.send(initialize).await;
        if sent.is_err() {
            inner.receiver.take_initialize();
        }
        sent
    }

    /// Takes note that the upstream answered a handshake with a result.
    pub(super) fn handshake_succeeded(&self, link: Arc<dyn UpstreamLink>) {
        self.memory.found_legacy();
        self.settle(Face::Legacy(link));
    }

    /// Finds out whether a server that refused a handshake is a modern one.
    pub(super) fn handshake_refused(self: &Arc<Self>, initialize: Message, refusal: Refusal) {
        let tells = match &refusal {
            Refusal::Answered(..) => true,
            Refusal::Unanswered(_, error) => tells_the_era(error),
            // Servers that take sessions fail now and then.
            Refusal::Lost(_) => !self.memory.speaks_legacy(),
        };
        let junction = Arc::clone(self);
        self.spawn(async move {
            let mut place = Arc::clone(&junction.place).lock_owned().await;
            if tells {
                let limit = junction.options.probe_timeout;
                if junction.bridge(&mut place, &initialize, limit).await {
                    return;
                }
            }
            let is_over = place.as_ref().is_some_and(|inner| inner.receiver.is_over());
            drop(place);
            let is_reported = matches!(refusal, Refusal::Lost(_));
            junction.pass_refusal(refusal).await;
            if is_over && !is_reported {
                junction.events.lost(ended()).await;
            }
        });
    }

    /// Answers the handshake with a server that is known to be a modern one; if it is none any
    /// more, what was known is forgotten and the handshake goes to the server.
    async fn answer_handshake(self: &Arc<Self>, mut place: Place, initialize: Message) {
        let limit = self.options.handshake_timeout;
        if self.bridge(&mut place, &initialize, limit).await {
            return;
        }
        self.memory.forget();
        let ids: Vec<RequestId> = initialize.request_ids().cloned().collect();
        let error = match self.begin_handshake_anew(place, initialize).await {
            Ok(Sent::UnderWay(exchange)) => return self.drive(exchange),
            Ok(Sent::Delivered) => return,
            Err(error) => error,
        };
        for id in ids {
            self.events.unanswered(id, error.clone()).await;
        }
    }

    async fn begin_handshake_anew(
        self: &Arc<Self>,
        mut place: Place,
        initialize: Message,
    ) -> Result<Sent, UpstreamError> {
        let inner = self.open_for_client(&mut place).await?;
        inner.receiver.watch_initialize(&initialize);
        inner.link.send(initialize).await
    }

    /// Asks the server who it is, on behalf of a client that wants a handshake, and answers that if
    /// the server is a modern one. Returns whether it is.
    async fn bridge(
        self: &Arc<Self>,
        place: &mut Place,
        initialize: &Message,
        limit: Duration,
    ) -> bool {
        let Some(probe) = discover_for_initialize(initialize) else {
            return false;
        };
        let Ok(inner) = self.open(place).await else {
            return false;
        };
        let answer = self.ask(&inner, &discover_id(), probe, limit).await;
        let Some(result) = answer
            .as_ref()
            .and_then(|answer| answer.as_ref().ok())
            .and_then(discovered)
        else {
            if answer.is_none() {
                // A late answer must not meet another question with the same id.
                self.discard(place).await;
                self.settle(Face::Undecided(None));
            }
            if matches!(judge(answer.as_ref()), Verdict::Legacy) {
                tracing::debug!("the upstream refused a handshake and is no modern server either");
            }
            return false;
        };
        tracing::info!("the upstream speaks modern revisions only: its client is bridged");
        self.memory.found_modern_only();
        if let Some(inner) = place.as_mut() {
            inner.is_used = true;
        }
        let client = self.legacy_client(&inner);
        self.settle(Face::LegacyClient(Arc::clone(&client)));
        client.welcome(initialize, result).await;
        true
    }

    async fn pass_refusal(&self, refusal: Refusal) {
        match refusal {
            Refusal::Answered(message, related) => self.events.received(message, related).await,
            Refusal::Unanswered(request, error) => self.events.unanswered(request, error).await,
            Refusal::Lost(error) => self.events.lost(error).await,
        }
    }
}

fn ended() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}
