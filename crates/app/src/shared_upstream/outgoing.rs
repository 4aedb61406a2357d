//! The way of a message from a session to the server.

use std::sync::Arc;

use futures_util::future::join_all;
use riglm_domain::edit::member;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::meta::RequestMeta;
use riglm_domain::scan::unescaped;
use riglm_ports::upstream::{Exchange, Sent, UpstreamError, UpstreamLink};

use super::hub::Hub;
use super::requests::{Cancelled, InFlight, Purpose, SeatNumber, Taker};
use super::rewriting::{id_member, id_of, members_of, numbered, token_of};
use super::rewriting::{with_id_member, without_capabilities};
use super::seat::{Report, Way};

pub(super) type Link = Arc<dyn UpstreamLink>;

impl Hub {
    /// Sends a message of a session.
    pub(super) async fn pass_up(
        self: &Arc<Self>,
        link: &Link,
        seat: SeatNumber,
        message: Message,
    ) -> Result<Sent, UpstreamError> {
        let Some(envelope) = message.single() else {
            return self.pass_batch(link, seat, &message).await;
        };
        match (envelope.kind(), envelope.method().unwrap_or_default()) {
            (Kind::Request, method) => {
                self.pass_request(link, seat, &message, envelope, method)
                    .await
            }
            (Kind::Notification, "notifications/initialized") => {
                let _order = self.in_order.lock().await;
                let was_told = std::mem::replace(&mut self.usable(seat)?.is_initialized, true);
                if was_told {
                    return Ok(Sent::Delivered);
                }
                let told = link.send(message.clone()).await;
                self.state().is_initialized = told.is_ok();
                told
            }
            (Kind::Notification, "notifications/cancelled") => {
                self.pass_cancelled(link, seat, &message, envelope).await
            }
            // They belong to requests of the server and to capabilities, neither of which a client
            // has here; the answers of a client do too.
            (Kind::Notification, "notifications/progress" | "notifications/roots/list_changed")
            | (Kind::Success | Kind::Failure, _) => Ok(Sent::Delivered),
            (Kind::Notification, _) => {
                drop(self.usable(seat)?);
                link.send(message.clone()).await
            }
        }
    }

    /// Sends the members of a batch one by one: their answers do not come together either.
    async fn pass_batch(
        self: &Arc<Self>,
        link: &Link,
        seat: SeatNumber,
        batch: &Message,
    ) -> Result<Sent, UpstreamError> {
        let mut exchanges = Vec::new();
        for member in members_of(batch) {
            let ids: Vec<RequestId> = member.request_ids().cloned().collect();
            match Box::pin(self.pass_up(link, seat, member)).await {
                Ok(Sent::Delivered) => {}
                Ok(Sent::UnderWay(exchange)) => exchanges.push(exchange),
                Err(error) => {
                    for id in ids {
                        let report = Report::Unanswered(id, error.clone());
                        self.report(seat, report, Way::Queued).await;
                    }
                }
            }
        }
        if exchanges.is_empty() {
            return Ok(Sent::Delivered);
        }
        let (runs, on_their_way): (Vec<_>, Vec<_>) = exchanges
            .into_iter()
            .map(|exchange| (exchange.run, exchange.on_its_way))
            .unzip();
        Ok(Sent::UnderWay(Exchange {
            run: Box::pin(async { drop(join_all(runs).await) }),
            on_its_way: Box::pin(async { drop(join_all(on_their_way).await) }),
        }))
    }

    async fn pass_request(
        self: &Arc<Self>,
        link: &Link,
        seat: SeatNumber,
        message: &Message,
        envelope: &Envelope,
        method: &str,
    ) -> Result<Sent, UpstreamError> {
        let Some(id) = envelope.id() else {
            return Ok(Sent::Delivered); // A request has one.
        };
        let taker = Taker {
            seat,
            id: id.clone(),
        };
        let params = message.params(envelope);
        let uri = || unescaped(member(params?, "uri")?);
        match (method, uri()) {
            ("initialize", _) => {
                let message = without_capabilities(message, envelope);
                let decide = || self.begin_handshake(&taker);
                return self.pass_shared(link, &taker, &message, decide).await;
            }
            ("resources/subscribe", Some(uri)) => {
                let decide = || self.subscribe(&taker, &uri);
                return self.pass_shared(link, &taker, message, decide).await;
            }
            ("resources/unsubscribe", Some(uri)) => {
                let decide = || self.unsubscribe(&taker, &uri);
                return self.pass_shared(link, &taker, message, decide).await;
            }
            _ => {}
        }
        if (method == "logging/setLevel" || RequestMeta::read(params).log_level.is_some())
            && let Some(seat) = self.seat(seat)
        {
            seat.want_log();
        }
        let token = token_of(message, envelope);
        let number = self.open(Purpose::Plain, &taker, token)?;
        let numbered = numbered(message, envelope, number);
        let result = link.send(numbered).await;
        if let Err(error) = &result {
            self.undelivered(number, &taker, error).await;
        }
        result
    }

    async fn pass_cancelled(
        self: &Arc<Self>,
        link: &Link,
        seat: SeatNumber,
        message: &Message,
        envelope: &Envelope,
    ) -> Result<Sent, UpstreamError> {
        let Some(id) = id_member(message, envelope, "requestId") else {
            return Ok(Sent::Delivered);
        };
        let cancelled = {
            let mut state = self.usable(seat)?;
            let cancelled = state.requests.cancel(&Taker { seat, id });
            if let Cancelled::Subscription(number, uri) = &cancelled {
                state.subscriptions.failed(uri, *number);
            }
            cancelled
        };
        if cancelled == Cancelled::HandshakeAbandoned {
            self.retire();
        }
        let Some(number) = cancelled.number() else {
            return Ok(Sent::Delivered);
        };
        let id = id_of(number);
        link.send(with_id_member(message, envelope, "requestId", &id))
            .await
    }

    fn open(
        &self,
        purpose: Purpose,
        taker: &Taker,
        token: Option<RequestId>,
    ) -> Result<u64, UpstreamError> {
        let mut state = self.usable(taker.seat)?;
        let opened = state.requests.open(purpose, Some(taker.clone()), token);
        opened.ok_or(TOO_MANY)
    }

    /// Takes out a request that could not be sent. Its own session is told by who called.
    pub(super) async fn undelivered(
        self: &Arc<Self>,
        number: u64,
        taker: &Taker,
        error: &UpstreamError,
    ) {
        let entry = self.state().requests.take(number);
        if let Some(mut entry) = entry {
            entry.takers.retain(|known| known != taker);
            self.unanswered(number, entry, error).await;
        }
    }

    /// Tells who waits for a request that it will get no answer.
    pub(super) async fn unanswered(
        self: &Arc<Self>,
        number: u64,
        entry: InFlight,
        error: &UpstreamError,
    ) {
        self.settle(number, &entry.purpose, None);
        if *error == UpstreamError::SessionExpired {
            self.retire();
        }
        let way = if self.has_streams() {
            Way::Direct
        } else {
            Way::Queued
        };
        for taker in entry.takers {
            let report = Report::Unanswered(taker.id, error.clone());
            self.report(taker.seat, report, way).await;
        }
    }
}

/// The error for a request that finds no place.
pub(super) const TOO_MANY: UpstreamError = UpstreamError::Busy {
    reason: "too many requests are in flight over the shared connection",
};
