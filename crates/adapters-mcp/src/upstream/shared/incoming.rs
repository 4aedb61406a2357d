//! The path of a message from the server to the sessions that it concerns.

use std::sync::{Arc, Weak};
use std::time::Duration;

use async_trait::async_trait;
use futures_util::future::join_all;
use riglm_domain::mcp::edit::member;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::{RpcError, RpcErrorCode};
use riglm_domain::mcp::scan::unescape;
use riglm_ports::upstream::{UpstreamError, UpstreamEvents};

use super::hub::{Hub, HubState};
use super::requests::{SharedSessionNumber, Waiter};
use super::rewriting::{id_member, members_of, number_of, subscription_of};
use super::rewriting::{with_id_member, with_subscription};
use super::session_handle::{DeliveryPath, Report, TooSlow};

/// The timeout for sending an answer to a request of the server.
const REPLY_WITHIN: Duration = Duration::from_secs(10);

/// The receiver of messages from the shared connection. Its reference to the hub is weak, so that
/// it does not keep the hub alive.
#[derive(Debug)]
pub(super) struct HubEvents(Weak<Hub>);

impl HubEvents {
    pub(super) fn new(hub: Weak<Hub>) -> Self {
        Self(hub)
    }
}

#[async_trait]
impl UpstreamEvents for HubEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let Some(hub) = self.0.upgrade() else {
            return;
        };
        if message.is_batch() {
            for member in members_of(&message) {
                hub.dispatch(&member, related.as_ref()).await;
            }
        } else {
            hub.dispatch(&message, related.as_ref()).await;
        }
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        let Some(hub) = self.0.upgrade() else {
            return;
        };
        let Some(number) = number_of(&request) else {
            return;
        };
        let entry = hub.state.lock().requests.take(number);
        if let Some(entry) = entry {
            hub.report_unanswered(number, entry, &error).await;
        }
    }

    async fn on_lost(&self, error: UpstreamError) {
        if let Some(hub) = self.0.upgrade() {
            hub.connection_lost(&error);
        }
    }
}

struct AddressedNotification {
    message: Message,
    /// The sessions, each with the id of its own request to which the notification belongs.
    to: Vec<(SharedSessionNumber, Option<RequestId>)>,
}

impl Hub {
    async fn dispatch(self: &Arc<Self>, message: &Message, related: Option<&RequestId>) {
        let Some(envelope) = message.single() else {
            return;
        };
        match envelope.kind() {
            MessageKind::Success | MessageKind::Failure => {
                self.on_answer(message, envelope, related).await;
            }
            MessageKind::Request => self.refuse(envelope).await,
            MessageKind::Notification => {
                let addressed =
                    address_notification(&mut self.state.lock(), message, envelope, related);
                let way = delivery_path(related);
                let told = addressed.to.into_iter().map(|(seat, related)| {
                    let report = Report::Message(addressed.message.clone(), related);
                    self.report(seat, report, way)
                });
                join_all(told).await;
            }
        }
    }

    /// Passes an answer to all sessions that wait for it.
    async fn on_answer(
        self: &Arc<Self>,
        message: &Message,
        envelope: &Envelope,
        related: Option<&RequestId>,
    ) {
        let number = envelope.id().or(related).and_then(number_of);
        let entry = number.and_then(|number| {
            let entry = self.state.lock().requests.take(number)?;
            Some((number, entry))
        });
        let Some((number, entry)) = entry else {
            tracing::debug!(
                "upstream {}: dropped an answer to an unknown request",
                self.name
            );
            return;
        };
        let result = message.result(envelope);
        (self.state.lock()).settle(number, &entry.purpose, result);
        for (position, taker) in entry.takers.into_iter().enumerate() {
            // The answer arrived on the stream of the first waiter, so only the first is served
            // directly.
            let way = if position == 0 {
                delivery_path(related)
            } else {
                DeliveryPath::Queued
            };
            let report = Report::Message(message.with_id(&taker.id), Some(taker.id));
            self.report(taker.seat, report, way).await;
        }
    }

    /// Answers a request of the server with an error (`ping` with success), because it cannot be
    /// attributed to one client.
    async fn refuse(self: &Arc<Self>, envelope: &Envelope) {
        let Some((method, id)) = envelope.as_request() else {
            return;
        };
        let answer = if method == method::PING {
            Message::success(id, "{}")
        } else {
            let text = "requests to the client are not supported: clients share this connection";
            RpcError::new(RpcErrorCode::MethodNotFound, text).to_message(Some(id))
        };
        // At most `MAX_REPLIES` answers are pending. A server that sends requests faster than it
        // reads answers has to wait.
        let Ok(permit) = Arc::clone(&self.replies).acquire_owned().await else {
            return;
        };
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            let replied = async {
                if let Ok(link) = hub.open_link().await {
                    hub.own.send_quietly(&link, answer).await;
                }
            };
            // An answer that the server does not accept in time is useless, so the timeout is
            // ignored.
            let _ = tokio::time::timeout(REPLY_WITHIN, replied).await;
            drop(permit);
        });
    }

    /// Delivers a report to a session. A session that is too slow is disconnected.
    pub(super) async fn report(
        self: &Arc<Self>,
        number: SharedSessionNumber,
        report: Report,
        way: DeliveryPath,
    ) {
        let Some(seat) = self.seat(number) else {
            return;
        };
        if let Err(TooSlow) = seat.deliver(report, way).await {
            self.disconnect_slow_session(number);
        }
    }

    fn disconnect_slow_session(self: &Arc<Self>, number: SharedSessionNumber) {
        let owed = self.state.lock().requests.ids_of(number);
        let Some((seat, leftover)) = self.detach(number) else {
            return;
        };
        tracing::warn!(
            "upstream {}: detached a session that does not read its messages from the shared \
             connection",
            self.name
        );
        let reason = "the session does not read its messages".into();
        seat.end(owed, UpstreamError::Lost { reason });
        let hub = Arc::clone(self);
        self.tasks.spawn(async move {
            if let Ok(link) = hub.open_link().await {
                hub.release(&link, leftover).await;
            }
        });
    }
}

fn delivery_path(related: Option<&RequestId>) -> DeliveryPath {
    if related.is_some() {
        DeliveryPath::Direct
    } else {
        DeliveryPath::Queued
    }
}

/// Returns a notification in the form that its recipients know, with the recipients.
fn address_notification(
    state: &mut HubState,
    message: &Message,
    envelope: &Envelope,
    related: Option<&RequestId>,
) -> AddressedNotification {
    let related = related.and_then(number_of);
    let to_owner = |message: Message, owner: &Waiter| AddressedNotification {
        message,
        to: vec![(owner.seat, Some(owner.id.clone()))],
    };
    let nobody = || AddressedNotification {
        message: message.clone(),
        to: Vec::new(),
    };
    match envelope.method().unwrap_or_default() {
        method::NOTIFICATIONS_PROGRESS => {
            return progress(state, message, envelope, related).unwrap_or_else(nobody);
        }
        method::NOTIFICATIONS_CANCELLED => {
            // The server cancels a request of its own, which was already refused, or it ends a
            // subscription.
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
    AddressedNotification {
        message: message.clone(),
        to: concerned_sessions(state, message, envelope)
            .into_iter()
            .map(|seat| (seat, None))
            .collect(),
    }
}

fn progress(
    state: &HubState,
    message: &Message,
    envelope: &Envelope,
    related: Option<u64>,
) -> Option<AddressedNotification> {
    let number = number_of(&id_member(message, envelope, "progressToken")?)?;
    let token = state.requests.token(number)?;
    let request = related
        .and_then(|number| state.requests.owner(number))
        .map(|owner| owner.id.clone());
    Some(AddressedNotification {
        message: with_id_member(message, envelope, "progressToken", &token.id),
        to: vec![(token.seat, request)],
    })
}

/// Returns the sessions that are concerned by a notification without a request id.
fn concerned_sessions(
    state: &HubState,
    message: &Message,
    envelope: &Envelope,
) -> Vec<SharedSessionNumber> {
    let all = || state.seats.keys().copied();
    match envelope.method().unwrap_or_default() {
        method::NOTIFICATIONS_RESOURCES_UPDATED => {
            let params = message.params(envelope);
            let uri = params
                .and_then(|params| member(params, "uri"))
                .and_then(unescape);
            let uri = uri.unwrap_or_default();
            let subscribers = state.subscriptions.subscribers(&uri);
            subscribers.into_iter().collect()
        }
        method::NOTIFICATIONS_MESSAGE => {
            let listening = state.seats.iter().filter(|(_, seat)| seat.wants_log());
            listening.map(|(number, _)| *number).collect()
        }
        _ => all().collect(),
    }
}
