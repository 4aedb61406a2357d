//! The path of a message from a session to the server.

use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::meta::RequestMeta;
use riglm_domain::mcp::method;
use riglm_domain::mcp::scan::unescape;
use riglm_ports::upstream::{Exchange, SendOutcome, UpstreamError};

use super::hub::{Hub, HubState};
use super::requests::{CancelEffect, InFlight, Purpose, SharedSessionNumber, Waiter};
use super::rewriting::{id_member, id_of, members_of, token_of, with_number};
use super::rewriting::{with_id_member, without_capabilities};
use super::session_handle::{DeliveryPath, Report};
use super::shared_requests::SharedStep;

pub(super) use riglm_adapters_programs::Link;

impl Hub {
    pub(super) async fn send_from_session(
        self: &Arc<Self>,
        link: &Link,
        seat: SharedSessionNumber,
        message: Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let Some(envelope) = message.single() else {
            return self.pass_batch(link, seat, &message).await;
        };
        match (envelope.kind(), envelope.method().unwrap_or_default()) {
            (MessageKind::Request, method) => {
                self.pass_request(link, seat, &message, envelope, method)
                    .await
            }
            (MessageKind::Notification, method::NOTIFICATIONS_INITIALIZED) => {
                let _order = self.in_order.lock().await;
                let was_told =
                    std::mem::replace(&mut self.usable_state(seat)?.is_initialized, true);
                if was_told {
                    return Ok(SendOutcome::Delivered);
                }
                let told = link.send(message.clone()).await;
                self.state.lock().is_initialized = told.is_ok();
                told
            }
            (MessageKind::Notification, method::NOTIFICATIONS_CANCELLED) => {
                self.pass_cancelled(link, seat, &message, envelope).await
            }
            // They belong to requests of the server and to capabilities, neither of which a client
            // has here; the answers of a client do too.
            (
                MessageKind::Notification,
                method::NOTIFICATIONS_PROGRESS | method::NOTIFICATIONS_ROOTS_LIST_CHANGED,
            )
            | (MessageKind::Success | MessageKind::Failure, _) => Ok(SendOutcome::Delivered),
            // Progress and `roots/list_changed` belong to requests of the server and to
            // capabilities. A client has neither here, and so its answers are dropped too.
            (MessageKind::Notification, _) => {
                drop(self.usable_state(seat)?);
                link.send(message.clone()).await
            }
        }
    }

    /// Sends the members of a batch one by one, because their answers do not arrive together
    /// either.
    async fn pass_batch(
        self: &Arc<Self>,
        link: &Link,
        seat: SharedSessionNumber,
        batch: &Message,
    ) -> Result<SendOutcome, UpstreamError> {
        let mut exchanges = Vec::new();
        for member in members_of(batch) {
            let ids: Vec<RequestId> = member.request_ids().cloned().collect();
            match Box::pin(self.send_from_session(link, seat, member)).await {
                Ok(SendOutcome::Delivered) => {}
                Ok(SendOutcome::UnderWay(exchange)) => exchanges.push(exchange),
                Err(error) => {
                    for id in ids {
                        let report = Report::Unanswered(id, error.clone());
                        self.report(seat, report, DeliveryPath::Queued).await;
                    }
                }
            }
        }
        if exchanges.is_empty() {
            return Ok(SendOutcome::Delivered);
        }
        let (runs, on_their_way): (Vec<_>, Vec<_>) = exchanges
            .into_iter()
            .map(|exchange| (exchange.run, exchange.on_its_way))
            .unzip();
        Ok(SendOutcome::UnderWay(Exchange {
            run: Box::pin(async { drop(join_all(runs).await) }),
            on_its_way: Box::pin(async { drop(join_all(on_their_way).await) }),
        }))
    }

    async fn pass_request(
        self: &Arc<Self>,
        link: &Link,
        seat: SharedSessionNumber,
        message: &Message,
        envelope: &Envelope,
        method: &str,
    ) -> Result<SendOutcome, UpstreamError> {
        let Some(id) = envelope.id() else {
            return Ok(SendOutcome::Delivered); // A request has one.
        };
        let taker = Waiter {
            seat,
            id: id.clone(),
        };
        let params = message.params(envelope);
        let uri = || unescape(member(params?, "uri")?);
        match (method, uri()) {
            (method::INITIALIZE, _) => {
                let message = without_capabilities(message, envelope);
                let decide = |state: &mut HubState| state.begin_handshake(&taker);
                return self.send_shared(link, &taker, &message, decide).await;
            }
            (method::RESOURCES_SUBSCRIBE, Some(uri)) => {
                let decide = |state: &mut HubState| state.subscribe(&taker, &uri);
                return self.send_shared(link, &taker, message, decide).await;
            }
            (method::RESOURCES_UNSUBSCRIBE, Some(uri)) => {
                let decide = |state: &mut HubState| state.unsubscribe(&taker, &uri);
                return self.send_shared(link, &taker, message, decide).await;
            }
            _ => {}
        }
        if (method == method::LOGGING_SET_LEVEL || RequestMeta::read(params).log_level.is_some())
            && let Some(seat) = self.seat(seat)
        {
            seat.want_log();
        }
        let token = token_of(message, envelope);
        let number = self.open(Purpose::Plain, &taker, token)?;
        let numbered = with_number(message, envelope, number);
        let result = link.send(numbered).await;
        if let Err(error) = &result {
            self.drop_undelivered(number, &taker, error).await;
        }
        result
    }

    /// Sends a request that concerns all sessions if the server has to know of it. Once sent, the
    /// request does not depend on its session any more.
    async fn send_shared(
        self: &Arc<Self>,
        link: &Link,
        taker: &Waiter,
        message: &Message,
        decide: impl FnOnce(&mut HubState) -> Result<SharedStep, UpstreamError>,
    ) -> Result<SendOutcome, UpstreamError> {
        // Decision and sending are one step. Otherwise `subscribe` and `unsubscribe` of two
        // sessions could reach the server in the wrong order.
        let _order = self.in_order.lock().await;
        let step = decide(&mut *self.usable_state(taker.seat)?)?;
        let number = match step {
            SharedStep::Wait => return Ok(SendOutcome::Delivered),
            SharedStep::Answer(answer) => {
                let report = Report::Message(answer, Some(taker.id.clone()));
                self.report(taker.seat, report, DeliveryPath::Queued).await;
                return Ok(SendOutcome::Delivered);
            }
            SharedStep::GiveUp => {
                self.retire();
                return Err(UpstreamError::SessionExpired);
            }
            SharedStep::Send(number) => number,
        };
        let sent = match message.single() {
            Some(envelope) => {
                let message = with_number(message, envelope, number);
                self.own.send(link, message).await
            }
            None => Ok(()),
        };
        if let Err(error) = sent {
            self.drop_undelivered(number, taker, &error).await;
            return Err(error);
        }
        Ok(SendOutcome::Delivered)
    }

    async fn pass_cancelled(
        self: &Arc<Self>,
        link: &Link,
        seat: SharedSessionNumber,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<SendOutcome, UpstreamError> {
        let Some(id) = id_member(message, envelope, "requestId") else {
            return Ok(SendOutcome::Delivered);
        };
        let cancelled = {
            let mut state = self.usable_state(seat)?;
            let cancelled = state.requests.cancel(&Waiter { seat, id });
            if let CancelEffect::Subscription(number, uri) = &cancelled {
                state.subscriptions.reject(uri, *number);
            }
            cancelled
        };
        if cancelled == CancelEffect::HandshakeAbandoned {
            self.retire();
        }
        let Some(number) = cancelled.number() else {
            return Ok(SendOutcome::Delivered);
        };
        let id = id_of(number);
        link.send(with_id_member(message, envelope, "requestId", &id))
            .await
    }

    fn open(
        &self,
        purpose: Purpose,
        taker: &Waiter,
        token: Option<RequestId>,
    ) -> Result<u64, UpstreamError> {
        let mut state = self.usable_state(taker.seat)?;
        let opened = state.requests.open(purpose, Some(taker.clone()), token);
        opened.ok_or(TOO_MANY)
    }

    /// Removes a request that could not be sent and reports this to the other waiters. The caller
    /// reports it to its own session.
    async fn drop_undelivered(
        self: &Arc<Self>,
        number: u64,
        taker: &Waiter,
        error: &UpstreamError,
    ) {
        let entry = self.state.lock().requests.take(number);
        if let Some(mut entry) = entry {
            entry.takers.retain(|known| known != taker);
            self.report_unanswered(number, entry, error).await;
        }
    }

    /// Reports to all waiters of a request that it will not be answered.
    pub(super) async fn report_unanswered(
        self: &Arc<Self>,
        number: u64,
        entry: InFlight,
        error: &UpstreamError,
    ) {
        (self.state.lock()).settle(number, &entry.purpose, None);
        // The server forgot the handshake that all sessions share, so the connection is of no more
        // use.
        if *error == UpstreamError::SessionExpired {
            self.retire();
        }
        let way = if self.has_streams() {
            DeliveryPath::Direct
        } else {
            DeliveryPath::Queued
        };
        for taker in entry.takers {
            let report = Report::Unanswered(taker.id, error.clone());
            self.report(taker.seat, report, way).await;
        }
    }
}

/// The error for requests beyond the limit of requests in flight.
pub(super) const TOO_MANY: UpstreamError = UpstreamError::Busy {
    reason: "too many requests are in flight over the shared connection",
};
