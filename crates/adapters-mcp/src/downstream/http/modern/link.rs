//! The client link of a session in which every request has its own response.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use parking_lot::Mutex;
use riglm_app::proxy::ClientSession;
use riglm_domain::mcp::edit;
use riglm_domain::mcp::message::{Envelope, Message, MessageKind, RequestId};
use riglm_domain::mcp::method;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_ports::downstream::{ClientLink, Route};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;

use super::call::cancel;
use super::exchanges::{OpenRequests, ResponseEvent, ResponseReceiver};
use crate::downstream::http::memory_reservation::with_reservation;

// The maximum number of messages in the queue for a client that reads too slowly.
const QUEUE: usize = 64;
/// The longest time that the sender waits for such a client, before it is disconnected.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The link to the clients that share one session.
#[derive(Debug)]
pub(in super::super) struct ModernLink {
    exchanges: Mutex<OpenRequests>,
}

impl ModernLink {
    /// Returns a link for requests that last no longer than `longest`.
    pub(in super::super) fn new(longest: Duration) -> Self {
        Self {
            exchanges: Mutex::new(OpenRequests::new(longest)),
        }
    }

    /// Sets the maximum duration of requests from now on.
    pub(super) fn set_longest(&self, longest: Duration) {
        self.exchanges.lock().set_longest(longest);
    }

    /// Returns the time after which a request without an answer counts as lost.
    pub(in super::super) fn patience(&self) -> Duration {
        self.exchanges.lock().remember()
    }

    /// Adds a request. Returns its internal id, the request to forward, and the events of its
    /// response; `None` when the session has ended.
    pub(super) fn open(
        &self,
        session: &Arc<ClientSession>,
        message: Message,
    ) -> Option<(RequestId, Message, mpsc::Receiver<ResponseEvent>)> {
        let (queue, events) = mpsc::channel(QUEUE);
        let session = Arc::downgrade(session);
        let receiver = ResponseReceiver { queue, session };
        let (id, message) = self.exchanges.lock().open(message, receiver)?;
        Some((id, message, events))
    }

    /// Marks a request as abandoned by its client. Returns whether it was open.
    pub(super) fn abandon(&self, id: &RequestId) -> bool {
        self.exchanges.lock().abandon(id)
    }

    /// Returns the event for a message and its receiver, if there is one. An answer completes its
    /// request here.
    fn route_message(
        &self,
        message: Message,
        id: &RequestId,
    ) -> Option<(ResponseEvent, ResponseReceiver)> {
        let mut exchanges = self.exchanges.lock();
        let Some(envelope) = message.single() else {
            // This revision has no batches. The request must still end, so that the client does not
            // wait forever.
            exchanges.abandon(id);
            return None;
        };
        let exchange = exchanges.get(id)?;
        let is_for_other = envelope.id().is_some_and(|answered| answered != id);
        if envelope.kind() == MessageKind::Request || (envelope.is_response() && is_for_other) {
            return None;
        }
        let status = status_of(&message, envelope);
        let ends = exchange.is_listen && is_teardown(&message, envelope, id);
        let outlet = exchange.outlet().cloned();
        let names = exchange.names.clone();
        if status.is_some() {
            exchanges.remove(id);
        } else if ends {
            exchanges.abandon(id);
        }
        // Restoring the names copies the message, so the lock is released first.
        drop(exchanges);
        let message = match names {
            Some(names) => names.restored_in(message),
            None => message,
        };
        let event = ResponseEvent {
            data: message.on_one_line(),
            status,
            room: None,
        };
        Some((event, outlet?))
    }

    /// Returns the session of a request that a client waits for.
    fn session_of(&self, id: &RequestId) -> Option<Arc<ClientSession>> {
        let exchanges = self.exchanges.lock();
        exchanges.get(id)?.outlet()?.session.upgrade()
    }
}

#[async_trait]
impl ClientLink for ModernLink {
    async fn deliver(&self, message: Message, route: Route) {
        let Route::Related(id) = route else {
            tracing::debug!("dropped a message that belongs to no request");
            return;
        };
        let session = self.session_of(&id);
        let Some((message, room)) = with_reservation(session.as_deref(), &message, || false) else {
            return;
        };
        let Some((mut event, outlet)) = self.route_message(message, &id) else {
            tracing::debug!("dropped a message: its request is no longer open");
            return;
        };
        event.room = room;
        let sent = outlet.queue.send_timeout(event, MAX_WAIT).await;
        if matches!(sent, Err(SendTimeoutError::Timeout(_))) && self.abandon(&id) {
            tracing::debug!("closed the response to a client that does not read");
            if let Some(session) = outlet.session.upgrade() {
                tokio::spawn(cancel(session, id));
            }
        }
    }

    async fn finish(&self, request: &RequestId) {
        self.abandon(request);
    }

    async fn close(&self) {
        self.exchanges.lock().close();
    }
}

/// Returns the HTTP status of a response with this answer; `None` if it is not an answer.
fn status_of(message: &Message, envelope: &Envelope) -> Option<StatusCode> {
    match envelope.kind() {
        MessageKind::Success => Some(StatusCode::OK),
        MessageKind::Failure => {
            let code = edit::member(message.error(envelope)?, "code");
            let code = code.and_then(|code| code.parse::<i32>().ok());
            let is = |known: RpcErrorCode| code == Some(known.code());
            Some(if is(RpcErrorCode::MethodNotFound) {
                StatusCode::NOT_FOUND
            } else if is(RpcErrorCode::HeaderMismatch)
                || is(RpcErrorCode::MissingRequiredClientCapability)
                || is(RpcErrorCode::UnsupportedProtocolVersion)
            {
                StatusCode::BAD_REQUEST
            } else if is(RpcErrorCode::LimitReached) {
                StatusCode::SERVICE_UNAVAILABLE
            } else {
                StatusCode::OK
            })
        }
        MessageKind::Request | MessageKind::Notification => None,
    }
}

/// Returns whether the server ends the subscription `id` with this message.
fn is_teardown(message: &Message, envelope: &Envelope, id: &RequestId) -> bool {
    let params = message.params(envelope).unwrap_or_default();
    let ended = edit::member(params, "requestId").and_then(RequestId::from_json);
    envelope.method() == Some(method::NOTIFICATIONS_CANCELLED) && ended.as_ref() == Some(id)
}
