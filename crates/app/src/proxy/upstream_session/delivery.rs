//! The delivery of messages to the upstream, over a connection that is opened on demand.

use std::future::poll_fn;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_domain::mcp::internal_id::InternalRequest;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::RpcError;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::observer::{Event, ResourceLimit};
use riglm_ports::tracer::SpanOperation;
use riglm_ports::upstream::{Exchange, SendOutcome, UpstreamError, UpstreamEvents};
use tokio::sync::oneshot;
use tracing::Instrument as _;

use super::UpstreamSession;
use super::connection::{LiveConnection, SetUp, answered_within};
use super::known_answers;
use super::response_pipeline::ConnectionEvents;
use super::upstream_requests::{Pending, SendState};
use crate::proxy::connection_permits::ConnectionPermit;
use crate::proxy::request_params::RequestParams;
use crate::proxy::request_permits::PermitRefusal;
use crate::proxy::request_tracing::call;

/// The time for the exchanges of a replaced connection to end.
const REPLACED_GRACE: Duration = Duration::from_secs(10);

impl UpstreamSession {
    /// Sends a message whose requests are registered as in flight.
    ///
    /// A message that the connection did not accept is sent once more over a new connection. A
    /// message that was accepted is never repeated.
    pub(super) async fn forward(
        self: &Arc<Self>,
        message: Message,
    ) -> Result<Option<Exchange>, RpcError> {
        if let Some(answer) = known_answers::answer(self, &message)
            && answer.await
        {
            return Ok(None);
        }
        let has_requests = message.request_ids().next().is_some();
        if !has_requests
            && self.connection.current().is_none()
            && self.scope.client_context.is_set_up()
        {
            // It concerns a connection that has ended. The handshake is replayed anyway.
            return Ok(None);
        }
        let is_handshake = message.has_method(method::INITIALIZE);
        let is_completion = message
            .single()
            .is_some_and(|part| part.method() == Some("notifications/initialized"));
        let message = self.in_span_of_upstream(message);
        let mut is_first = true;
        if !self.is_connected() {
            // Waiting for a connection counts as waiting for the upstream.
            self.note_sent(&message);
        }
        loop {
            let live = match self.live_connection(is_handshake).await {
                Ok(live) => live,
                Err(error) => {
                    return self
                        .fail_undeliverable(&message, &error)
                        .await
                        .map(|()| None);
                }
            };
            if !self.assign(&message, live.generation) && has_requests {
                // The requests were answered in the meantime, failed, timed out or were cancelled.
                return Ok(None);
            }
            if is_handshake {
                live.begin_handshake();
            }
            if is_completion && !live.takes_completion() {
                return Ok(None); // It was told when the connection was set up.
            }
            let error = match live.link.send(message.clone()).await {
                Ok(SendOutcome::UnderWay(exchange)) if has_requests => {
                    let exchange = self.noting_handover(&message, live.generation, exchange);
                    return Ok(Some(exchange));
                }
                Ok(SendOutcome::UnderWay(exchange)) => return Ok(Some(exchange)),
                Ok(SendOutcome::Delivered) => {
                    self.note_handover(message.request_ids(), live.generation);
                    if self.connection.is_dead(live.generation) {
                        // The loss may have been reported before the requests were assigned to the
                        // connection.
                        self.fail_lost(live.generation, &connection_lost()).await;
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
                return self
                    .fail_undeliverable(&message, &error)
                    .await
                    .map(|()| None);
            }
            self.replace(live.generation);
            if !has_requests {
                return Ok(None);
            }
            is_first = false;
        }
    }

    /// Starts the spans of the requests in a message at this upstream. Returns the message with the
    /// trace context: a single request carries it in `_meta`, and a batch carries the context of
    /// its first request in headers, if the transport has any.
    fn in_span_of_upstream(&self, message: Message) -> Message {
        if self.scope.shared.tracer.is_none() {
            return message;
        }
        let mut first = None;
        for part in message.envelopes() {
            let Some((method, id)) = part.as_request() else {
                continue;
            };
            let name = RequestParams::of(&message, part).name();
            let call = call(method, name.as_deref());
            let operation = SpanOperation::Upstream(self.scope.upstream(), call);
            let Some(span) = self.scope.shared.span(&operation, message.trace()) else {
                continue;
            };
            first.get_or_insert_with(|| Arc::new(span.context().clone()));
            if let Some(pending) = self.state.lock().get_mut(id) {
                // A present span belongs to an attempt on a connection whose session had expired.
                pending.end_span(Outcome::Error);
                pending.span = Some(span);
            }
        }
        match first {
            Some(first) => first.inject(&message).with_trace(Some(first)),
            None => message,
        }
    }

    /// Removes a connection from use and closes it when its exchanges have ended.
    pub(super) fn replace(self: &Arc<Self>, generation: u64) {
        let Some(old) = self.connection.drop_if(generation) else {
            return;
        };
        let upstream = Arc::clone(self);
        crate::proxy::log_spans::spawn(async move {
            upstream.drain_generation(generation, REPLACED_GRACE).await;
            old.link.close().await;
        });
    }

    /// Opens a connection if there is none, and sets it up with the client's handshake.
    pub(in crate::proxy) async fn connect(self: &Arc<Self>) -> Result<(), UpstreamError> {
        self.live_connection(false).await.map(|_| ())
    }

    /// Returns the open connection, or opens one. A connection for the client's own handshake is
    /// not set up first.
    async fn live_connection(
        self: &Arc<Self>,
        is_handshake: bool,
    ) -> Result<Arc<LiveConnection>, UpstreamError> {
        if let Some(live) = self.connection.current() {
            return Ok(live);
        }
        let _connecting = self.connection.lock().await;
        if let Some(live) = self.connection.current() {
            return Ok(live);
        }
        if self.is_closed() {
            return Err(connection_lost());
        }
        let events = |generation| -> Arc<dyn UpstreamEvents> {
            Arc::new(ConnectionEvents::new(Arc::downgrade(self), generation))
        };
        if self.scope.entry.starts_processes() {
            self.scope.entry.slots.close_left(0);
        }
        let slot = tokio::select! {
            slot = self.connection_permit() => slot?,
            () = self.closing.cancelled() => return Err(connection_lost()),
        };
        let set_up = if is_handshake {
            SetUp::ByClient
        } else {
            SetUp::ByProxy
        };
        let opened = tokio::select! {
            opened = self.connection.open(slot, set_up, events) => opened,
            () = self.closing.cancelled() => return Err(connection_lost()),
        };
        let live = opened.inspect_err(|error| self.note_trouble(error, true))?;
        if !is_handshake {
            let set_up = tokio::select! {
                set_up = self.set_up(&live) => set_up,
                () = self.closing.cancelled() => Err(connection_lost()),
            };
            if let Err(error) = set_up {
                self.connection.count_failure();
                self.note_trouble(&error, true);
                live.link.close().await;
                return Err(error);
            }
        }
        self.connection.publish(Arc::clone(&live));
        if self.connection.is_dead(live.generation) {
            self.connection.drop_if(live.generation);
            return Err(connection_lost());
        }
        if !is_handshake {
            // Covers a notification of the client that arrived just before the connection was
            // published.
            self.complete_handshake(&live).await?;
            if self.scope.is_merged() && self.scope.entry.starts_processes() {
                self.client.on_connected();
            }
        }
        Ok(live)
    }

    /// Registers a failed message, unless this session is ending. The upstream becomes unavailable
    /// if it is not reachable, or if the setup of a connection failed. A refusal may concern this
    /// client alone, so it only casts doubt.
    pub(super) fn note_trouble(&self, error: &UpstreamError, is_set_up: bool) {
        if self.closing.is_cancelled() {
            return;
        }
        let entry = &self.scope.entry;
        match error {
            UpstreamError::Busy { .. } => entry.note_no_capacity(error),
            UpstreamError::Refused { .. } => entry.note_refused_handshake(error),
            UpstreamError::Status { status: 400..=499 } if is_set_up => {
                entry.note_refused_handshake(error);
            }
            UpstreamError::NotStarted { .. }
            | UpstreamError::Unreachable { .. }
            | UpstreamError::Unauthorized { .. } => entry.note_failure(error),
            _ if is_set_up => entry.note_failure(error),
            UpstreamError::SessionExpired => {}
            _ => entry.note_request_failure(error),
        }
    }

    /// Sets up a new connection, and registers a delay beyond the time that sessions wait. After
    /// half that time, a check finds out whether other sessions get answers. The start of a process
    /// may take longer.
    async fn set_up(&self, live: &LiveConnection) -> Result<(), UpstreamError> {
        let begun = Instant::now();
        let playing_back = self.replay_handshake(live);
        if !self.scope.is_merged() || self.scope.entry.starts_processes() {
            return playing_back.await;
        }
        tokio::pin!(playing_back);
        let half = self.scope.shared.limits().unite_timeout / 2;
        if let Ok(set_up) = tokio::time::timeout(half, &mut playing_back).await {
            return set_up;
        }
        if !self.scope.entry.has_answered_since(begun) {
            self.scope.entry.request_check();
        }
        if let Ok(set_up) = tokio::time::timeout(half, &mut playing_back).await {
            return set_up;
        }
        self.scope.entry.note_late(begun);
        playing_back.await
    }

    /// Takes a connection permit of the upstream. Waits for it if all are in use.
    async fn connection_permit(self: &Arc<Self>) -> Result<ConnectionPermit, UpstreamError> {
        let principal = &self.scope.client_context.principal;
        let most = self.scope.entry.upstream.options.max_connections;
        let bounds = self.scope.shared.bounds(most.unwrap_or(usize::MAX));
        let limit = self.scope.shared.limits().handshake_timeout;
        let lack = match self.scope.entry.slots.take(principal, bounds, limit).await {
            Ok(slot) => {
                slot.set_holder(self);
                return Ok(slot);
            }
            Err(lack) => lack,
        };
        self.scope.shared.observe_from(
            &Event::LimitReached(ResourceLimit::Connections),
            &self.scope.client_context.origin(),
        );
        Err(UpstreamError::Busy {
            reason: match lack {
                PermitRefusal::Total => "its connection limit is reached (max_connections)",
                PermitRefusal::Share => {
                    "its connection limit for this principal is reached (limits.principal_share)"
                }
            },
        })
    }

    /// Replays the handshake of the client on a new connection.
    async fn replay_handshake(&self, live: &LiveConnection) -> Result<(), UpstreamError> {
        let Some(initialize) = &self.scope.client_context.handshake().initialize else {
            return Ok(());
        };
        let name = self.scope.upstream();
        tracing::debug!(upstream = %name, "upstream {name}: initializing a session");
        let answer = self
            .request_and_wait(live, initialize, InternalRequest::Initialize)
            .await?;
        let Some(result) = answer.single().and_then(|envelope| answer.result(envelope)) else {
            return Err(UpstreamError::from_refusal(&answer));
        };
        self.on_initialize_result(result);
        // The client continues in the meantime, so its present state counts.
        self.complete_handshake(live).await?;
        if let Some(log_level) = &self.scope.client_context.handshake().log_level {
            self.request_and_wait(live, log_level, InternalRequest::LogLevel)
                .await?;
        }
        Ok(())
    }

    /// Sends `notifications/initialized` on a connection that the proxy set up, if the client has
    /// sent it and the connection has not received it.
    async fn complete_handshake(&self, live: &LiveConnection) -> Result<(), UpstreamError> {
        let handshake = self.scope.client_context.handshake();
        if handshake.initialize.is_some()
            && let Some(initialized) = handshake.initialized
            && live.takes_completion()
        {
            // It is no request, so there is no exchange to drive.
            let (SendOutcome::Delivered | SendOutcome::UnderWay(_)) =
                live.link.send(initialized).await?;
        }
        Ok(())
    }

    /// Sends a request of the proxy, copied from a request of the client, and waits for its answer.
    async fn request_and_wait(
        &self,
        live: &LiveConnection,
        template: &Message,
        kind: InternalRequest,
    ) -> Result<Message, UpstreamError> {
        let id = kind.id(live.generation);
        let message = template.with_id(&id);
        let (answered, answer) = oneshot::channel();
        let pending = Pending::own(
            answered,
            message.clone(),
            live.generation,
            self.scope.shared.recorder.now(),
        );
        self.state.lock().insert(id.clone(), pending);
        let asked = async {
            if let SendOutcome::UnderWay(exchange) = live.link.send(message).await? {
                crate::proxy::log_spans::spawn(exchange.run);
            }
            answer.await.unwrap_or_else(|_| Err(connection_lost()))
        };
        let limit = self.scope.shared.limits().handshake_timeout;
        let result = answered_within(&*live.link, limit, asked).await;
        let result = result.unwrap_or(Err(UpstreamError::NoAnswer));
        self.state.lock().remove(&id);
        result
    }

    /// Sets the time since which the requests of a message are with the upstream.
    fn note_sent(&self, message: &Message) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for id in message.request_ids() {
            if let Some(pending) = state.get_mut(id) {
                pending.sent.get_or_insert(now);
            }
        }
    }

    /// Returns an exchange that registers when the upstream has the requests of the message.
    fn noting_handover(
        self: &Arc<Self>,
        message: &Message,
        generation: u64,
        exchange: Exchange,
    ) -> Exchange {
        let Exchange {
            mut run,
            on_its_way,
        } = exchange;
        let ids: Vec<RequestId> = message.request_ids().cloned().collect();
        let (note, noted) = oneshot::channel::<()>();
        let upstream = Arc::clone(self);
        let mut waiting = Some((on_its_way, note));
        let run = poll_fn(move |context| {
            // First, because it hands the message over, as a rule at once. The other future then
            // needs to wake nobody.
            let ended = run.as_mut().poll(context);
            if let Some((on_its_way, _)) = &mut waiting
                && on_its_way.as_mut().poll(context).is_ready()
            {
                upstream.note_handover(ids.iter(), generation);
                // Dropping the sender ends the wait.
                waiting = None;
            }
            if ended.is_ready() {
                waiting = None;
            }
            ended
        });
        Exchange {
            run: Box::pin(run.instrument(self.span.clone())),
            on_its_way: Box::pin(async move {
                // An error means that the exchange has noted it, or has ended.
                let _ = noted.await;
            }),
        }
    }

    /// Registers that the upstream has received these requests over this connection.
    fn note_handover<'a>(&self, ids: impl Iterator<Item = &'a RequestId>, generation: u64) {
        let now = Instant::now();
        let mut state = self.state.lock();
        for id in ids {
            if let Some(pending) = state.get_mut(id)
                && pending.generation == generation
            {
                pending.handover = SendState::Done(now);
            }
        }
    }

    /// Assigns the requests of a message to a connection. Returns whether any of them waits for its
    /// answer. If none does, the message is not sent and its requests are removed.
    fn assign(&self, message: &Message, generation: u64) -> bool {
        let now = Instant::now();
        let mut state = self.state.lock();
        let mut is_any_wanted = false;
        for id in message.request_ids() {
            if let Some(pending) = state.get_mut(id) {
                pending.generation = generation;
                pending.sent.get_or_insert(now);
                pending.handover = SendState::Sending(now);
                is_any_wanted |= !pending.is_cancelled;
            }
        }
        if !is_any_wanted {
            for id in message.request_ids() {
                state.remove(id);
            }
        }
        is_any_wanted
    }

    /// Answers the requests of a message that could not be sent.
    async fn fail_undeliverable(
        self: &Arc<Self>,
        message: &Message,
        error: &UpstreamError,
    ) -> Result<(), RpcError> {
        let (name, failure) = (self.scope.upstream(), self.failure_of(error));
        tracing::debug!(upstream = %name, "upstream {name}: failed to forward a message: {error}");
        self.note_trouble(error, false);
        let mut has_requests = false;
        for id in message.request_ids() {
            has_requests = true;
            let pending = self.state.lock().remove(id);
            if let Some(pending) = pending {
                self.fail_upstream(id, pending, error).await;
            }
        }
        if has_requests { Ok(()) } else { Err(failure) }
    }

    /// Fails every request on connections up to `generation`.
    pub(super) async fn fail_lost(self: &Arc<Self>, generation: u64, error: &UpstreamError) {
        let lost = {
            let mut state = self.state.lock();
            state.forget_server();
            state.remove_up_to(generation)
        };
        // All of them begin to end at once: a client that does not read must not keep the others.
        let endings = (lost.into_iter())
            .map(|(id, pending)| async move { self.fail_upstream(&id, pending, error).await });
        join_all(endings).await;
    }
}

fn connection_lost() -> UpstreamError {
    UpstreamError::Lost {
        reason: "the connection ended".into(),
    }
}
