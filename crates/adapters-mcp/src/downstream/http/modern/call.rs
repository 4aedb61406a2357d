//! One request and its response.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join;
use http::{StatusCode, header};
use riglm_app::proxy::{ClientPresence, ClientSession, ReservedMemory};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::authenticator::Revocation;
use tokio::sync::{mpsc, oneshot};

use super::exchanges::ResponseEvent;
use super::link::ModernLink;
use crate::downstream::http::detachable::Detachable;
use crate::downstream::http::reader::{COMMENT, KEEP_ALIVE, sse_response};
use crate::downstream::http::reply;
use crate::downstream::http::streamable::JSON_WITHIN;

#[derive(Debug)]
pub(in super::super) struct Answer {
    pub(in super::super) data: Bytes,
    /// The memory reservation, to be kept as long as the data or copies of it.
    pub(in super::super) room: Option<ReservedMemory>,
}

/// A request that waits for its answer. Dropping it earlier cancels it: the client has closed the
/// response, or its connection.
pub(in super::super) struct PendingCall {
    session: Arc<ClientSession>,
    link: Arc<ModernLink>,
    id: RequestId,
    events: mpsc::Receiver<ResponseEvent>,
    /// Completes when the request has been sent, so that a cancellation cannot overtake it.
    on_its_way: Option<oneshot::Receiver<Infallible>>,
}

impl PendingCall {
    /// Returns a call for a request, and the request to forward; `None` when the session has ended.
    pub(in super::super) fn open(
        session: Arc<ClientSession>,
        link: Arc<ModernLink>,
        message: Message,
    ) -> Option<(Self, Message)> {
        let (id, message, events) = link.open(&session, message)?;
        let call = Self {
            session,
            link,
            id,
            events,
            on_its_way: None,
        };
        Some((call, message))
    }

    /// Sends the request to the upstream. Returns the response: one JSON body if the answer comes
    /// soon and is the first message, otherwise a stream.
    pub(super) async fn answer(mut self, message: Message) -> Response {
        let mut work = self.send(message);
        let first = self.first(&mut work).await.flatten();
        let status = first.as_ref().and_then(|event| event.status);
        match (first, status) {
            (Some(first), Some(status)) => answer_response(status, first.data),
            // A request that was sent with a valid key is answered even if the key is revoked.
            (first, _) => self.into_stream(first, Box::pin(std::future::pending())),
        }
    }

    /// Sends the request to the upstream and waits for its answer, whatever comes before it. Returns
    /// `None` if the request ends without one.
    pub(in super::super) async fn complete(mut self, message: Message) -> Option<Answer> {
        let mut work = self.send(message);
        let mut is_sent = false;
        loop {
            let event = tokio::select! {
                biased;
                event = self.events.recv() => event?,
                () = &mut work, if !is_sent => {
                    is_sent = true;
                    continue;
                }
            };
            self.session.touch();
            if event.status.is_some() {
                let ResponseEvent { data, room, .. } = event;
                return Some(Answer { data, room });
            }
        }
    }

    /// Sends the request to the upstream. Returns a stream at once, which `revoked` ends.
    pub(super) fn stream(mut self, message: Message, revoked: Revocation) -> Response {
        // Dropped work continues on a separate task.
        drop(self.send(message));
        self.into_stream(None, revoked)
    }

    fn send(&mut self, message: Message) -> Detachable {
        let (sent, on_its_way) = oneshot::channel();
        self.on_its_way = Some(on_its_way);
        Detachable::new(exchange(Arc::clone(&self.session), message, sent))
    }

    /// Drives the exchange until the first event, which is `None` when the stream ends without one.
    /// Returns `None` after the time limit.
    async fn first(&mut self, work: &mut Detachable) -> Option<Option<ResponseEvent>> {
        let waiting = async {
            tokio::select! {
                biased;
                () = &mut *work => self.events.recv().await,
                event = self.events.recv() => event,
            }
        };
        tokio::time::timeout(JSON_WITHIN, waiting).await.ok()
    }

    /// Returns a response whose body has the remaining events; the first one was already taken.
    fn into_stream(self, first: Option<ResponseEvent>, revoked: Revocation) -> Response {
        // The first chunk is never empty, so that the server sends the headers at once.
        let head = first.as_ref().map_or(COMMENT, chunk_of);
        let is_over = first.is_some_and(|event| event.status.is_some());
        let state = (Some(head), is_over, self, revoked);
        let events = futures_util::stream::unfold(state, |state| async move {
            let (head, is_over, mut call, mut revoked) = state;
            if let Some(head) = head {
                return Some((Ok::<_, Infallible>(head), (None, is_over, call, revoked)));
            }
            if is_over {
                return None;
            }
            let next = tokio::select! {
                biased;
                () = &mut revoked => return None,
                next = tokio::time::timeout(KEEP_ALIVE, call.events.recv()) => next,
            };
            let (chunk, is_over) = match next {
                Ok(Some(event)) => (chunk_of(&event), event.status.is_some()),
                Ok(None) => return None,
                Err(_) => (COMMENT, false),
            };
            call.session.touch();
            Some((Ok(chunk), (None, is_over, call, revoked)))
        });
        sse_response(Body::from_stream(events))
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if !self.link.abandon(&self.id) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (session, id) = (Arc::clone(&self.session), self.id.clone());
        // The request frees its slot now, although it cannot be cancelled before it has been sent.
        session.note_presence(std::slice::from_ref(&id), ClientPresence::Left);
        let on_its_way = self.on_its_way.take();
        runtime.spawn(async move {
            if let Some(on_its_way) = on_its_way {
                let _ = on_its_way.await; // Nothing is ever sent: it ends with its other half.
            }
            cancel(session, id).await;
        });
    }
}

/// Sends a request to the upstream and its answer to the link. Drops `sent` when the request has
/// been sent.
async fn exchange(
    session: Arc<ClientSession>,
    message: Message,
    sent: oneshot::Sender<Infallible>,
) {
    match session.receive(message).await {
        Ok(Some(exchange)) => {
            let sending = async move {
                exchange.on_its_way.await;
                drop(sent);
            };
            join(exchange.run, sending).await;
        }
        Ok(None) => {}
        Err(error) => tracing::debug!("failed to forward a request: {}", error.message),
    }
}

/// Sends the session a cancellation of a request that no client waits for.
pub(super) async fn cancel(session: Arc<ClientSession>, id: RequestId) {
    let message = Message::cancellation(&id, Some("the client closed the response"));
    match session.receive(message).await {
        Ok(Some(exchange)) => exchange.run.await,
        Ok(None) => {}
        Err(error) => tracing::debug!("failed to forward a cancellation: {}", error.message),
    }
}

fn answer_response(status: StatusCode, data: Bytes) -> Response {
    let mut response = reply::json(status, data);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        reply::set_header(&mut response, header::RETRY_AFTER, "1");
    }
    response
}

fn chunk_of(event: &ResponseEvent) -> Bytes {
    let mut chunk = BytesMut::with_capacity(event.data.len() + 8);
    chunk.put_slice(b"data: ");
    chunk.put_slice(&event.data);
    chunk.put_slice(b"\n\n");
    chunk.freeze()
}
