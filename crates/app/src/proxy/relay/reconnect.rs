//! Handing a message to the upstream, over a connection that may have to be made first.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_domain::invocation::Outcome;
use riglm_domain::message::{Message, RequestId};
use riglm_domain::rpc_error::RpcError;
use riglm_ports::observer::{Event, Limit};
use riglm_ports::tracer::Operation;
use riglm_ports::upstream::{Exchange, Sent, UpstreamError, UpstreamEvents};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::Relay;
use super::connection::{Live, SetUp};
use super::from_upstream::Events;
use super::params::RequestParams;
use super::pending::{Handover, Pending};
use crate::proxy::places::Lack;
use crate::proxy::slots::Slot;
use crate::proxy::traces::call;

/// How long the exchanges of a connection that was replaced may take to end by themselves.
const REPLACED_GRACE: Duration = Duration::from_secs(10);

impl Relay {
    /// Sends a message whose requests are noted as in flight.
    ///
    /// A message that the connection did not take is sent once more over a new connection; a
    /// message that it took is never repeated.
    pub(super) async fn forward(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        let has_requests = message.request_ids().next().is_some();
        if !has_requests && self.connection.current().is_none() && self.caller.is_set_up() {
            // It concerns a connection that is gone; the handshake is played back by itself.
            return Ok(None);
        }
        let is_handshake = message.envelopes().iter().any(|part| {
            part.as_request()
                .is_some_and(|(method, _)| method == "initialize")
        });
        let is_completion = message
            .single()
            .is_some_and(|part| part.method() == Some("notifications/initialized"));
        let message = self.in_span_of_upstream(message);
        let mut is_first = true;
        if !self.is_connected() {
            // Who waits for a connection waits for the upstream.
            self.note_sent(&message);
        }
        loop {
            let live = match self.live(is_handshake).await {
                Ok(live) => live,
                Err(error) => {
                    return self.undeliverable(&message, &error).await.map(|()| None);
                }
            };
            if !self.assign(&message, live.generation) && has_requests {
                // They were answered meanwhile, with an error or by a deadline, or taken back.
                return Ok(None);
            }
            if is_handshake {
                live.begin_handshake();
            }
            if is_completion && !live.takes_completion() {
                return Ok(None); // It was told when the connection was set up.
            }
            let error = match live.link.send(message.clone()).await {
                Ok(Sent::UnderWay(exchange)) if has_requests => {
                    let exchange = self.noting_handover(&message, live.generation, exchange);
                    return Ok(Some(exchange));
                }
                Ok(Sent::UnderWay(exchange)) => return Ok(Some(exchange)),
                Ok(Sent::Delivered) => {
                    self.note_handover(message.request_ids(), live.generation);
                    if self.connection.is_dead(live.generation) {
                        // The loss may have been reported before the requests were assigned.
                        self.fail_lost(live.generation, &lost()).await;
                    }
                    return Ok(None);
                }
                Err(error) => error,
            };
            let is_gone = match error {
                UpstreamError::SessionExpired => true,
                UpstreamError::Lost { .. } => {
                    self.connection.is_replaced(live.generation)
                        || self.connection.is_dying(live.generation).await
                }
                _ => false,
            };
            if !is_first || !is_gone {
                return self.undeliverable(&message, &error).await.map(|()| None);
            }
            self.replace(live.generation);
            if !has_requests {
                return Ok(None);
            }
            is_first = false;
        }
    }

    /// Begins the spans of the requests in a message at this upstream. Returns the message as it is
    /// sent from there: a request on its own says so in its `_meta`, and the first of a batch on
    /// behalf of all, where there are headers.
    fn in_span_of_upstream(&self, message: Message) -> Message {
        if self.shared.tracer.is_none() {
            return message;
        }
        let mut first = None;
        for part in message.envelopes() {
            let Some((method, id)) = part.as_request() else {
                continue;
            };
            let name = RequestParams::read(message.params(part)).name();
            let call = call(method, name.as_deref());
            let operation = Operation::Upstream(self.upstream(), call);
            let Some(span) = self.shared.span(&operation, message.trace()) else {
                continue;
            };
            first.get_or_insert_with(|| Arc::new(span.context().clone()));
            if let Some(pending) = self.state().pending.get_mut(id) {
                // One that is there is of a connection whose session had expired.
                pending.end_span(Outcome::Error);
                pending.span = Some(span);
            }
        }
        match first {
            Some(first) => first.put_into(&message).with_trace(Some(first)),
            None => message,
        }
    }

    /// Takes a connection that no longer serves out of use and closes it when its exchanges ended.
    pub(super) fn replace(self: &Arc<Self>, generation: u64) {
        let Some(old) = self.connection.drop_if(generation) else {
            return;
        };
        let relay = Arc::clone(self);
        tokio::spawn(async move {
            relay.drain_generation(generation, REPLACED_GRACE).await;
            old.link.close().await;
        });
    }

    /// Makes a connection if there is none, and sets it up as the client did.
    pub(in crate::proxy) async fn connect(self: &Arc<Self>) -> Result<(), UpstreamError> {
        self.live(false).await.map(|_| ())
    }

    /// Returns the connection that is up, or makes one. One that is made for the client's handshake
    /// itself is not set up first.
    async fn live(self: &Arc<Self>, is_handshake: bool) -> Result<Arc<Live>, UpstreamError> {
        if let Some(live) = self.connection.current() {
            return Ok(live);
        }
        let _connecting = self.connection.lock().await;
        if let Some(live) = self.connection.current() {
            return Ok(live);
        }
        if self.is_closed() {
            return Err(lost());
        }
        let events = |generation| -> Arc<dyn UpstreamEvents> {
            Arc::new(Events::new(Arc::downgrade(self), generation))
        };
        let slot = tokio::select! {
            slot = self.slot() => slot?,
            () = self.closing.cancelled() => return Err(lost()),
        };
        let set_up = if is_handshake {
            SetUp::ByClient
        } else {
            SetUp::ByProxy
        };
        let opened = tokio::select! {
            opened = self.connection.open(slot, set_up, events) => opened,
            () = self.closing.cancelled() => return Err(lost()),
        };
        let live = opened.inspect_err(|error| self.note_trouble(error, true))?;
        if !is_handshake {
            let set_up = tokio::select! {
                set_up = self.set_up(&live) => set_up,
                () = self.closing.cancelled() => Err(lost()),
            };
            if let Err(error) = set_up {
                self.connection.failed();
                self.note_trouble(&error, true);
                live.link.close().await;
                return Err(error);
            }
        }
        self.connection.publish(Arc::clone(&live));
        if self.connection.is_dead(live.generation) {
            self.connection.drop_if(live.generation);
            return Err(lost());
        }
        if !is_handshake {
            // What the client said just before the connection was there for it.
            self.complete_handshake(&live).await?;
        }
        Ok(live)
    }

    /// Notes that a message came to nothing, unless that is because this session ends. The upstream is
    /// unavailable if nothing reaches it, or if the message was to set a connection up, unless that may
    /// be for what the client said or holds for this session alone.
    pub(super) fn note_trouble(&self, error: &UpstreamError, is_set_up: bool) {
        if self.closing.is_cancelled() {
            return;
        }
        let entry = &self.entry;
        match error {
            UpstreamError::Busy { .. } => entry.had_no_room(error),
            UpstreamError::Refused { .. } => entry.refused(error),
            UpstreamError::Status { status: 400..=499 } if is_set_up => entry.refused(error),
            UpstreamError::NotStarted { .. }
            | UpstreamError::Unreachable { .. }
            | UpstreamError::Unauthorized { .. } => entry.failed(error),
            _ if is_set_up => entry.failed(error),
            UpstreamError::SessionExpired => {}
            _ => entry.troubled(error),
        }
    }

    /// Sets a new connection up, and notes when that takes longer than sessions wait for it. A check
    /// finds out before that whether others are answered.
    async fn set_up(&self, live: &Live) -> Result<(), UpstreamError> {
        let begun = Instant::now();
        let playing_back = self.play_back(live);
        if !self.is_united() {
            return playing_back.await;
        }
        tokio::pin!(playing_back);
        let half = self.shared.limits().unite_timeout / 2;
        if let Ok(set_up) = tokio::time::timeout(half, &mut playing_back).await {
            return set_up;
        }
        if !self.entry.has_answered_since(begun) {
            self.entry.doubt();
        }
        if let Ok(set_up) = tokio::time::timeout(half, &mut playing_back).await {
            return set_up;
        }
        self.entry.is_late(begun);
        playing_back.await
    }

    /// Takes a place among the connections of the upstream, which is waited for where all are in use.
    async fn slot(self: &Arc<Self>) -> Result<Slot, UpstreamError> {
        let principal = &self.caller.principal;
        let most = self.entry.upstream.options.max_connections;
        let bounds = self.shared.bounds(most.unwrap_or(usize::MAX));
        let limit = self.shared.limits().handshake_timeout;
        let lack = match self.entry.slots.take(principal, bounds, limit).await {
            Ok(slot) => {
                slot.is_held_by(self);
                return Ok(slot);
            }
            Err(lack) => lack,
        };
        self.shared.observe_from(
            &Event::LimitReached(Limit::Connections),
            &self.caller.origin(),
        );
        Err(UpstreamError::Busy {
            reason: match lack {
                Lack::Total => "as many connections are in use as its max_connections allows",
                Lack::Share => {
                    "as many of its connections are in use by this principal as \
                     limits.principal_share allows"
                }
            },
        })
    }

    /// Sets a new connection up as the client set up the first one.
    async fn play_back(&self, live: &Live) -> Result<(), UpstreamError> {
        let Some(initialize) = &self.caller.handshake().initialize else {
            return Ok(());
        };
        let name = self.upstream();
        tracing::debug!(upstream = %name, "setting up upstream {name} for a session");
        let answer = self.ask(live, initialize, "initialize").await?;
        let Some(result) = answer.single().and_then(|envelope| answer.result(envelope)) else {
            return Err(UpstreamError::refused(&answer));
        };
        self.greeted(result);
        // The client goes on meanwhile: what counts is what it has said by now.
        self.complete_handshake(live).await?;
        if let Some(log_level) = &self.caller.handshake().log_level {
            self.ask(live, log_level, "log-level").await?;
        }
        Ok(())
    }

    /// Tells a connection that the proxy set up that the handshake is complete, if the client said
    /// so and it was not told yet.
    async fn complete_handshake(&self, live: &Live) -> Result<(), UpstreamError> {
        let handshake = self.caller.handshake();
        if handshake.initialize.is_some()
            && let Some(initialized) = handshake.initialized
            && live.takes_completion()
        {
            // Not a request, so there is no exchange to drive.
            let (Sent::Delivered | Sent::UnderWay(_)) = live.link.send(initialized).await?;
        }
        Ok(())
    }

    /// Sends a request of the proxy's own, made from one of the client's, and waits for its answer.
    async fn ask(
        &self,
        live: &Live,
        template: &Message,
        what: &str,
    ) -> Result<Message, UpstreamError> {
        let id = RequestId::Text(format!("riglm:{what}:{}", live.generation).into());
        let message = template.with_id(&id);
        let (answered, answer) = oneshot::channel();
        let pending = Pending::own(
            answered,
            message.clone(),
            live.generation,
            self.shared.recorder.now(),
        );
        self.state().pending.insert(id.clone(), pending);
        let asked = async {
            if let Sent::UnderWay(exchange) = live.link.send(message).await? {
                tokio::spawn(exchange.run);
            }
            answer.await.unwrap_or_else(|_| Err(lost()))
        };
        let limit = self.shared.limits().handshake_timeout;
        let result = tokio::time::timeout(limit, asked)
            .await
            .unwrap_or(Err(UpstreamError::NoAnswer));
        self.state().pending.remove(&id);
        result
    }

    /// Notes that the requests of a message are with the upstream from now on.
    fn note_sent(&self, message: &Message) {
        let now = Instant::now();
        let mut state = self.state();
        for id in message.request_ids() {
            if let Some(pending) = state.pending.get_mut(id) {
                pending.sent.get_or_insert(now);
            }
        }
    }

    /// Returns an exchange that notes when the upstream has the requests of the message.
    fn noting_handover(
        self: &Arc<Self>,
        message: &Message,
        generation: u64,
        exchange: Exchange,
    ) -> Exchange {
        let Exchange { run, on_its_way } = exchange;
        let ids: Vec<RequestId> = message.request_ids().cloned().collect();
        let noted = CancellationToken::new();
        let guard = noted.clone().drop_guard();
        let relay = Arc::clone(self);
        let noting = async move {
            on_its_way.await;
            relay.note_handover(ids.iter(), generation);
            drop(guard);
            std::future::pending::<()>().await;
        };
        let run = async move {
            tokio::select! {
                biased;
                () = noting => {}
                () = run => {}
            }
        };
        Exchange {
            run: Box::pin(run),
            on_its_way: Box::pin(noted.cancelled_owned()),
        }
    }

    /// Notes that the upstream has these requests, which went to this connection.
    fn note_handover<'a>(&self, ids: impl Iterator<Item = &'a RequestId>, generation: u64) {
        let now = Instant::now();
        let mut state = self.state();
        for id in ids {
            if let Some(pending) = state.pending.get_mut(id)
                && pending.generation == generation
            {
                pending.handover = Handover::Done(now);
            }
        }
    }

    /// Notes which connection the requests of a message go to. Returns whether the answer to one is
    /// still wanted; those of a message that is not sent are forgotten.
    fn assign(&self, message: &Message, generation: u64) -> bool {
        let now = Instant::now();
        let mut state = self.state();
        let mut is_any_wanted = false;
        for id in message.request_ids() {
            if let Some(pending) = state.pending.get_mut(id) {
                pending.generation = generation;
                pending.sent.get_or_insert(now);
                pending.handover = Handover::Sending(now);
                is_any_wanted |= !pending.is_cancelled;
            }
        }
        if !is_any_wanted {
            for id in message.request_ids() {
                state.pending.remove(id);
            }
        }
        is_any_wanted
    }

    /// Answers the requests of a message that could not be sent.
    async fn undeliverable(
        self: &Arc<Self>,
        message: &Message,
        error: &UpstreamError,
    ) -> Result<(), RpcError> {
        let (name, failure) = (self.upstream(), self.failure_of(error));
        tracing::debug!(upstream = %name, "a message could not be passed on to {name}: {error}");
        self.note_trouble(error, false);
        let mut has_requests = false;
        for id in message.request_ids() {
            has_requests = true;
            let pending = self.state().pending.remove(id);
            if let Some(pending) = pending {
                self.fail_by(id, pending, error).await;
            }
        }
        if has_requests { Ok(()) } else { Err(failure) }
    }

    /// Answers every request that went to connections up to `generation`.
    pub(super) async fn fail_lost(self: &Arc<Self>, generation: u64, error: &UpstreamError) {
        let lost = {
            let mut state = self.state();
            state.pending.forget_server();
            state.pending.remove_up_to(generation)
        };
        for (id, pending) in lost {
            self.fail_by(&id, pending, error).await;
        }
    }
}

fn lost() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}
