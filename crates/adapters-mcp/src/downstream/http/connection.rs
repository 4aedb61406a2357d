//! The sending halves of HTTP sessions. Over Streamable HTTP messages go to the event log, from
//! where the bodies of POST and GET take them; over HTTP+SSE they go to the one stream there is.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use bytes::{BufMut, Bytes, BytesMut};
use riglm_app::proxy::{ClientSession, Room};
use riglm_domain::message::{Message, RequestId};
use riglm_ports::downstream::{ClientLink, Route};
use tokio::sync::mpsc;

use super::event_log::EventLog;
use super::room::{Owner, with_room};

/// How many messages may wait for a client of HTTP+SSE that reads too slowly.
const QUEUE: usize = 64;
/// The longest that the sender waits for such a client.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// The way to a client over Streamable HTTP.
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

/// The way to a client over its one stream.
#[derive(Debug)]
pub(super) struct SseLink {
    queue: Mutex<Option<mpsc::Sender<SseEvent>>>,
    session: Owner,
}

/// An event of such a stream.
#[derive(Debug)]
pub(super) struct SseEvent {
    /// Its text.
    pub(super) text: Bytes,
    /// What it takes while it waits.
    _room: Option<Room>,
}

impl SseLink {
    /// Returns a link and the events that its stream is made of.
    pub(super) fn new() -> (Self, mpsc::Receiver<SseEvent>) {
        let (queue, events) = mpsc::channel(QUEUE);
        let link = Self {
            queue: Mutex::new(Some(queue)),
            session: Owner::default(),
        };
        (link, events)
    }

    /// Notes whose messages come here.
    pub(super) fn belongs_to(&self, session: &Arc<ClientSession>) {
        self.session.set(session);
    }
}

#[async_trait]
impl ClientLink for SseLink {
    async fn deliver(&self, message: Message, _route: Route) {
        let queue = self
            .queue
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone();
        let Some(queue) = queue else {
            return;
        };
        let session = self.session.get();
        let Some((message, room)) = with_room(session.as_deref(), &message, || false) else {
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
            tracing::debug!("a message is dropped: the client is gone or does not read");
        }
    }

    async fn finish(&self, _request: &RequestId) {}

    async fn close(&self) {
        *self.queue.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
