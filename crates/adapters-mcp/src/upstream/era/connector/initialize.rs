//! Handshakes: sent to the upstream verbatim, and answered by the bridge if the upstream is a
//! modern server that refuses them.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamLink};

use super::super::detection::{
    EraVerdict, discover_for_initialize, discover_id, discover_result, era_verdict, tells_the_era,
};
use super::era_switch::{ConnectionSlot, EraSwitch, Mode};

/// The refusal of a handshake by a server.
#[derive(Debug)]
pub(super) enum Refusal {
    /// An error, on the stream of this request.
    Answered(Message, Option<RequestId>),
    Unanswered(RequestId, UpstreamError),
    /// The end of the connection.
    Lost(UpstreamError),
}

impl EraSwitch {
    /// Sends a handshake to the upstream, or answers it by the bridge.
    pub(super) async fn begin_handshake(
        self: &Arc<Self>,
        mut place: ConnectionSlot,
        initialize: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        if self.memory.is_modern_only() && !initialize.is_batch() {
            let junction = Arc::clone(self);
            self.tasks
                .spawn(async move { junction.answer_handshake(place, initialize).await });
            return Ok(SendOutcome::Delivered);
        }
        let inner = self.open_for_client(&mut place).await?;
        inner.receiver.watch_initialize(&initialize);
        let sent = inner.link.send(initialize).await;
        if sent.is_err() {
            inner.receiver.take_initialize();
        }
        sent
    }

    /// Registers that the upstream answered a handshake with a result.
    pub(super) fn handshake_succeeded(&self, link: Arc<dyn UpstreamLink>) {
        self.memory.found_legacy();
        self.settle(Mode::Legacy(link));
    }

    /// Probes whether a server that refused a handshake is a modern server.
    pub(super) fn handshake_refused(self: &Arc<Self>, initialize: Message, refusal: Refusal) {
        let tells = match &refusal {
            Refusal::Answered(..) => true,
            Refusal::Unanswered(_, error) => tells_the_era(error),
            // Known legacy servers sometimes fail for other reasons.
            Refusal::Lost(_) => !self.memory.speaks_legacy(),
        } && !self.memory.is_configured();
        let junction = Arc::clone(self);
        self.tasks.spawn(async move {
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
                junction.events.on_lost(connection_ended()).await;
            }
        });
    }

    /// Answers the handshake for a server that is known to be modern. If this proves wrong, the
    /// stored era is dropped and the handshake is sent to the server.
    async fn answer_handshake(self: &Arc<Self>, mut place: ConnectionSlot, initialize: Message) {
        let limit = self.options.handshake_timeout;
        if self.bridge(&mut place, &initialize, limit).await {
            return;
        }
        self.memory.forget();
        let ids: Vec<RequestId> = initialize.request_ids().cloned().collect();
        let error = match self.restart_handshake(place, initialize).await {
            Ok(SendOutcome::UnderWay(exchange)) => return self.tasks.drive(exchange),
            Ok(SendOutcome::Delivered) => return,
            Err(error) => error,
        };
        for id in ids {
            self.events.on_unanswered(id, error.clone()).await;
        }
    }

    async fn restart_handshake(
        self: &Arc<Self>,
        mut place: ConnectionSlot,
        initialize: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let inner = self.open_for_client(&mut place).await?;
        inner.receiver.watch_initialize(&initialize);
        inner.link.send(initialize).await
    }

    /// Sends a discovery request for a client that makes a handshake. If the server is modern,
    /// answers the handshake from the result. Returns whether it is.
    async fn bridge(
        self: &Arc<Self>,
        place: &mut ConnectionSlot,
        initialize: &Message,
        limit: Duration,
    ) -> bool {
        let Some(probe) = discover_for_initialize(initialize) else {
            return false;
        };
        let Ok(inner) = self.open(place).await else {
            return false;
        };
        let answer = self.probe(&inner, &discover_id(), probe, limit).await;
        let Some(result) = answer
            .as_ref()
            .and_then(|answer| answer.as_ref().ok())
            .and_then(discover_result)
        else {
            if answer.is_none() {
                // A late answer must not be matched with a later probe of the same id.
                self.discard(place).await;
                self.settle(Mode::Undecided(None));
            }
            if matches!(era_verdict(answer.as_ref()), EraVerdict::Legacy) {
                tracing::debug!(
                    "the upstream rejected the handshake, and supports no modern revision either"
                );
            }
            return false;
        };
        tracing::info!(
            "the upstream supports only modern revisions: a bridge translates for its client"
        );
        self.memory.found_modern_only();
        if let Some(inner) = place.as_mut() {
            inner.is_used = true;
        }
        let client = self.legacy_client(&inner);
        self.settle(Mode::LegacyClient(Arc::clone(&client)));
        client.welcome(initialize, result).await;
        true
    }

    async fn pass_refusal(&self, refusal: Refusal) {
        match refusal {
            Refusal::Answered(message, related) => self.events.on_message(message, related).await,
            Refusal::Unanswered(request, error) => self.events.on_unanswered(request, error).await,
            Refusal::Lost(error) => self.events.on_lost(error).await,
        }
    }
}

fn connection_ended() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}
