//! The sending half of a session whose every request has a response of its own.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use http::StatusCode;
use riglm_app::proxy::ClientSession;
use riglm_domain::edit;
use riglm_domain::message::{Envelope, Kind, Message, RequestId};
use riglm_domain::rpc_error::RpcErrorCode;
use riglm_ports::downstream::{ClientLink, Route};
use tokio::sync::mpsc;
use tokio::sync::mpsc::error::SendTimeoutError;

use super::call::cancel;
use super::exchanges::{Event, Exchanges, Outlet};
use crate::downstream::http::room::with_room;

/// How many messages may wait for a client that reads too slowly.
const QUEUE: usize = 64;
/// The longest that the sender waits for such a client, which is cut off then.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The way to the clients that have one session.
#[derive(Debug)]
pub(in super::super) struct ModernLink {
    exchanges: Mutex<Exchanges>,
}

impl ModernLink {
    /// Returns a link for requests that last no longer than `longest`.
    pub(super) fn new(longest: Duration) -> Self {
        Self {
            exchanges: Mutex::new(Exchanges::new(longest)),
        }
    }

    /// Has requests last no longer than `longest` from now on.
    pub(super) fn set_longest(&self, longest: Duration) {
        self.lock().set_longest(longest);
    }

    /// Opens the way back for a request. Returns its id and itself as they go on, and what comes
    /// back; `None` when the session has ended.
    pub(super) fn open(
        &self,
        session: &Arc<ClientSession>,
        message: Message,
    ) -> Option<(RequestId, Message, mpsc::Receiver<Event>)> {
        let (queue, events) = mpsc::channel(QUEUE);
        let session = Arc::downgrade(session);
        let (id, message) = self.lock().open(message, Outlet { queue, session })?;
        Some((id, message, events))
    }

    /// Ends the stream of a request that nobody waits for any more. Returns whether it was open.
    pub(super) fn abandon(&self, id: &RequestId) -> bool {
        self.lock().abandon(id)
    }

    /// Returns what a message is to the client and where it goes, if it goes anywhere. An answer
    /// ends its request here.
    fn taken(&self, message: Message, id: &RequestId) -> Option<(Event, Outlet)> {
        let mut exchanges = self.lock();
        let Some(envelope) = message.single() else {
            // There are no batches in this revision. Whoever waits for an answer must not do so
            // forever.
            exchanges.abandon(id);
            return None;
        };
        let exchange = exchanges.get(id)?;
        let is_for_other = envelope.id().is_some_and(|answered| answered != id);
        if envelope.kind() == Kind::Request || (envelope.is_response() && is_for_other) {
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
        drop(exchanges);
        let message = match names {
            Some(names) => names.restored_in(message),
            None => message,
        };
        let data = message.on_one_line();
        let event = Event {
            data,
            status,
            room: None,
        };
        Some((event, outlet?))
    }

    /// Returns the session of a request that somebody waits for.
    fn session_of(&self, id: &RequestId) -> Option<Arc<ClientSession>> {
        let exchanges = self.lock();
        exchanges.get(id)?.outlet()?.session.upgrade()
    }

    fn lock(&self) -> MutexGuard<'_, Exchanges> {
        self.exchanges
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

#[async_trait]
impl ClientLink for ModernLink {
    async fn deliver(&self, message: Message, route: Route) {
        let Route::Related(id) = route else {
            tracing::debug!("a message that belongs to no request is dropped");
            return;
        };
        let session = self.session_of(&id);
        let Some((message, room)) = with_room(session.as_deref(), &message, || false) else {
            return;
        };
        let Some((mut event, outlet)) = self.taken(message, &id) else {
            tracing::debug!("a message that nobody waits for is dropped");
            return;
        };
        event.room = room;
        let sent = outlet.queue.send_timeout(event, MAX_WAIT).await;
        if matches!(sent, Err(SendTimeoutError::Timeout(_))) && self.abandon(&id) {
            tracing::debug!("a client that does not read is cut off");
            if let Some(session) = outlet.session.upgrade() {
                tokio::spawn(cancel(session, id));
            }
        }
    }

    async fn finish(&self, request: &RequestId) {
        self.abandon(request);
    }

    async fn close(&self) {
        self.lock().close();
    }
}

/// Returns the status of a response that consists of this answer; `None` of what is no answer.
fn status_of(message: &Message, envelope: &Envelope) -> Option<StatusCode> {
    match envelope.kind() {
        Kind::Success => Some(StatusCode::OK),
        Kind::Failure => {
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
        Kind::Request | Kind::Notification => None,
    }
}

/// Returns whether the server ends the subscription `id` by this message.
fn is_teardown(message: &Message, envelope: &Envelope, id: &RequestId) -> bool {
    envelope.method() == Some("notifications/cancelled")
        && message
            .params(envelope)
            .and_then(|params| edit::member(params, "requestId"))
            .and_then(RequestId::from_json)
            .as_ref()
            == Some(id)
}
