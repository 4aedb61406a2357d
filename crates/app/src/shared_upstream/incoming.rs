//! The way of a message from the server to the sessions that it concerns.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use riglm_domain::edit::member;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::scan::unescaped;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};

use super::hub::{Handshake, Hub, State};
use super::requests::{Purpose, SeatNumber, Taker};
use super::rewriting::{id_member, members_of, number_of, subscription_of};
use super::rewriting::{with_id_member, with_subscription};
use super::seat::{Report, TooSlow, Way};

/// The longest that an answer to the server may take to be sent.
const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// Receives what the shared connection reports. It does not keep the hub alive.
#[derive(Debug)]
pub(super) struct HubEvents(Weak<Hub>);

impl HubEvents {
    /// Returns the receiver of a hub's connection.
    pub(super) fn new(hub: Weak<Hub>) -> Self {
        Self(hub)
    }
}

#[async_trait]
impl UpstreamEvents for HubEvents {
    async fn received(&self, message: Message, related: Option<RequestId>) {
        let Some(hub) = self.0.upgrade() else {
            return;
        };
        if message.is_batch() {
            for member in members_of(&message) {
                hub.take_in(&member, related.as_ref()).await;
            }
        } else {
            hub.take_in(&message, related.as_ref()).await;
        }
    }

    async fn unanswered(&self, request: RequestId, error: UpstreamError) {
        let Some(hub) = self.0.upgrade() else {
            return;
        };
        let Some(number) = number_of(&request) else {
            return;
        };
        let entry = hub.state().requests.take(number);
        if let Some(entry) = entry {
            hub.unanswered(number, entry, &error).await;
        }
    }

    async fn lost(&self, error: UpstreamError) {
        if let Some(hub) = self.0.upgrade() {
            hub.lose(&error);
        }
    }
}

/// A notification with those whom it concerns.
struct Addressed {
    message: Message,
    /// The sessions, each with the request of its own that it belongs to.
    to: Vec<(SeatNumber, Option<RequestId>)>,
}

impl Hub {
    async fn take_in(self: &Arc<Self>, message: &Message, related: Option<&RequestId>) {
        let Some(envelope) = message.single() else {
            return;
        };
        match envelope.kind() {
            Kind::Success | Kind::Failure => self.answered(message, envelope, related).await,
            Kind::Request => self.refuse(envelope).await,
            Kind::Notification => {
                let addressed = address(&mut self.state(), message, envelope, related);
                let way = way_of(related);
                let told = addressed.to.into_iter().map(|(seat, related)| {
                    let report = Report::Message(addressed.message.clone(), related);
                    self.report(seat, report, way)
                });
                join_all(told).await;
            }
        }
    }

    /// Passes an answer to everyone who waits for it.
    async fn answered(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
        related: Option<&RequestId>,
    ) {
        let number = envelope.id().or(related).and_then(number_of);
        let entry = number.and_then(|number| {
            let entry = self.state().requests.take(number)?;
            Some((number, entry))
        });
        let Some((number, entry)) = entry else {
            tracing::debug!("upstream {} answered what nobody asked", self.name);
            return;
        };
        self.settle(number, &entry.purpose, message.result(envelope));
        for (position, taker) in entry.takers.into_iter().enumerate() {
            // The stream that it came on is that of the first.
            let way = if position == 0 {
                way_of(related)
            } else {
                Way::Queued
            };
            let report = Report::Message(message.with_id(&taker.id), Some(taker.id));
            self.report(taker.seat, report, way).await;
        }
    }

    /// Notes what the end of a request means for what all sessions share. `result` is that of a
    /// request that succeeded.
    pub(super) fn settle(&self, number: u64, purpose: &Purpose, result: Option<&str>) {
        let mut state = self.state();
        match (purpose, result) {
            (Purpose::Initialize, Some(result)) => {
                state.handshake = Handshake::Done(result.into());
            }
            (Purpose::Initialize, None) => state.handshake = Handshake::None,
            (Purpose::Subscribe(uri), Some(_)) => state.subscriptions.agreed(uri, number),
            (Purpose::Subscribe(uri), None) => state.subscriptions.failed(uri, number),
            (Purpose::Plain | Purpose::Own, _) => {}
        }
    }

    /// Answers a request of the server: there is no telling which client it is meant for.
    async fn refuse(self: &Arc<Self>, envelope: &Envelope) {
        let Some((method, id)) = envelope.as_request() else {
            return;
        };
        let answer = if method == "ping" {
            format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{}}}}"#)
        } else {
            let text = "clients share this connection and take no requests over it";
            RpcError::new(RpcErrorCode::MethodNotFound, text).to_json(Some(id))
        };
        // A server that asks faster than it takes answers has to wait.
        let Ok(permit) = Arc::clone(&self.replies).acquire_owned().await else {
            return;
        };
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            let replied = async {
                if let Ok(link) = hub.opened().await {
                    hub.say(&link, answer).await;
                }
            };
            // An answer that the server does not take in time is of no use any more.
            let _ = tokio::time::timeout(REPLY_WITHIN, replied).await;
            drop(permit);
        });
    }

    /// Tells a session something. One that does not take it is told that it lost its connection.
    pub(super) async fn report(self: &Arc<Self>, number: SeatNumber, report: Report, way: Way) {
        let Some(seat) = self.seat(number) else {
            return;
        };
        if let Err(TooSlow) = seat.tell(report, way).await {
            self.throw_out(number);
        }
    }

    fn throw_out(self: &Arc<Self>, number: SeatNumber) {
        let owed = self.state().requests.ids_of(number);
        let Some((seat, leftover)) = self.detach(number) else {
            return;
        };
        tracing::warn!(
            "a session of the shared upstream {} takes no messages any more and loses it",
            self.name
        );
        let reason = "the session does not take its messages".into();
        seat.end(owed, UpstreamError::Lost { reason });
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Ok(link) = hub.opened().await {
                hub.give_up(&link, leftover).await;
            }
        });
    }
}

fn way_of(related: Option<&RequestId>) -> Way {
    if related.is_some() {
        Way::Direct
    } else {
        Way::Queued
    }
}

/// Returns a notification as those know it whom it concerns.
fn address(
    state: &mut State,
    message: &Message,
    envelope: &Envelope,
    related: Option<&RequestId>,
) -> Addressed {
    let related = related.and_then(number_of);
    let to_owner = |message: Message, owner: &Taker| Addressed {
        message,
        to: vec![(owner.seat, Some(owner.id.clone()))],
    };
    let nobody = || Addressed {
        message: message.clone(),
        to: Vec::new(),
    };
    match envelope.method().unwrap_or_default() {
        "notifications/progress" => {
            return progress(state, message, envelope, related).unwrap_or_else(nobody);
        }
        "notifications/cancelled" => {
            // The server takes back a request of its own, which was refused, or ends a subscription.
            let number = id_member(message, envelope, "requestId").and_then(|id| number_of(&id));
            let entry = number.and_then(|number| state.requests.take(number));
            let Some(owner) = entry.and_then(|entry| entry.takers.into_iter().next()) else {
                return nobody();
            };
            let message = with_id_member(message, envelope, "requestId", &owner.id);
            return to_owner(message, &owner);
        }
        _ => {}
    }
    if let Some(number) = subscription_of(message, envelope).and_then(|id| number_of(&id)) {
        return match state.requests.owner(number) {
            Some(owner) => to_owner(with_subscription(message, envelope, &owner.id), owner),
            None => nobody(),
        };
    }
    if let Some(owner) = related.and_then(|number| state.requests.owner(number)) {
        return to_owner(message.clone(), owner);
    }
    Addressed {
        message: message.clone(),
        to: concerned(state, message, envelope)
            .into_iter()
            .map(|seat| (seat, None))
            .collect(),
    }
}

fn progress(
    state: &State,
    message: &Message,
    envelope: &Envelope,
    related: Option<u64>,
) -> Option<Addressed> {
    let number = number_of(&id_member(message, envelope, "progressToken")?)?;
    let token = state.requests.token(number)?;
    let request = related
        .and_then(|number| state.requests.owner(number))
        .map(|owner| owner.id.clone());
    Some(Addressed {
        message: with_id_member(message, envelope, "progressToken", &token.id),
        to: vec![(token.seat, request)],
    })
}

/// Returns the sessions that a notification concerns which names no request.
fn concerned(state: &State, message: &Message, envelope: &Envelope) -> Vec<SeatNumber> {
    let all = || state.seats.keys().copied();
    match envelope.method().unwrap_or_default() {
        "notifications/resources/updated" => {
            let params = message.params(envelope);
            let uri = params
                .and_then(|params| member(params, "uri"))
                .and_then(unescaped);
            let uri = uri.unwrap_or_default();
            let subscribers = state.subscriptions.subscribers(&uri);
            subscribers.into_iter().collect()
        }
        "notifications/message" => {
            let listening = state.seats.iter().filter(|(_, seat)| seat.wants_log());
            listening.map(|(number, _)| *number).collect()
        }
        _ => all().collect(),
    }
}
