//! The client links of HTTP sessions. Over Streamable HTTP messages go to the event log, from which
//! the responses to POST and GET read them. Over HTTP+SSE they go to the single stream of the
//! session.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use parking_lot::Mutex;
use riglm_app::proxy::{ClientSession, ReservedMemory};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::downstream::{ClientLink, Route};
use tokio::sync::mpsc;

use super::event_log::EventLog;
use super::memory_reservation::{LinkSession, with_reservation};

// The maximum number of messages in the queue for a client of HTTP+SSE that reads too slowly.
const QUEUE: usize = 64;
/// The longest time that the sender waits for such a client.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The link to a client over Streamable HTTP.
#[derive(Debug)]
pub(super) struct HttpLink {
    pub(super) log: Arc<EventLog>,
}

impl HttpLink {
    pub(super) fn new() -> Self {
        Self {
            log: Arc::new(EventLog::new()),
        }
    }
}

#[async_trait]
impl ClientLink for HttpLink {
    async fn deliver(&self, message: Message, route: Route) {
        self.log.push(&message, &route).await;
    }

    async fn finish(&self, request: &RequestId) {
        self.log.finish(request);
    }

    async fn close(&self) {
        self.log.close();
    }
}

/// The link to a client over its single HTTP+SSE stream.
#[derive(Debug)]
pub(super) struct SseLink {
    queue: Mutex<Option<mpsc::Sender<SseEvent>>>,
    session: LinkSession,
}

/// An event of an HTTP+SSE stream.
#[derive(Debug)]
pub(super) struct SseEvent {
    pub(super) text: Bytes,
    /// The memory reservation of the event while it waits.
    _room: Option<ReservedMemory>,
}

impl SseLink {
    /// Returns a link and the events for its stream.
    pub(super) fn new() -> (Self, mpsc::Receiver<SseEvent>) {
        let (queue, events) = mpsc::channel(QUEUE);
        let link = Self {
            queue: Mutex::new(Some(queue)),
            session: LinkSession::default(),
        };
        (link, events)
    }

    pub(super) fn set_session(&self, session: &Arc<ClientSession>) {
        self.session.set(session);
    }
}

#[async_trait]
impl ClientLink for SseLink {
    async fn deliver(&self, message: Message, _route: Route) {
        let queue = self.queue.lock().clone();
        let Some(queue) = queue else {
            return;
        };
        let session = self.session.get();
        let Some((message, room)) = with_reservation(session.as_deref(), &message, || false) else {
            return;
        };
        let line = message.on_one_line();
        let mut event = BytesMut::with_capacity(line.len() + 24);
        event.put_slice(b"event: message\ndata: ");
        event.put_slice(&line);
        event.put_slice(b"\n\n");
        let event = SseEvent {
            text: event.freeze(),
            _room: room,
        };
        if queue.send_timeout(event, MAX_WAIT).await.is_err() {
            tracing::debug!("dropped a message: the client is gone or does not read");
        }
    }

    async fn finish(&self, _request: &RequestId) {}

    async fn close(&self) {
        *self.queue.lock() = None;
    }
}
