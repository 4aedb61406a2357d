//! One request and its response.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use futures_util::future::join;
use http::{HeaderValue, StatusCode, header};
use riglm_app::proxy::{ClientSession, Presence};
use riglm_domain::message::{Message, RequestId};
use riglm_ports::authenticator::Revocation;
use tokio::sync::{mpsc, oneshot};

use super::exchanges::Event;
use super::link::ModernLink;
use crate::downstream::http::detachable::Detachable;
use crate::downstream::http::reader::{COMMENT, KEEP_ALIVE, sse_response};
use crate::downstream::http::reply;
use crate::downstream::http::streamable::JSON_WITHIN;

/// A request that waits for its answer. Dropped before that, it is cancelled: the client has closed
/// the response, or the connection that it comes over.
pub(super) struct Call {
    session: Arc<ClientSession>,
    link: Arc<ModernLink>,
    id: RequestId,
    events: mpsc::Receiver<Event>,
    /// Ends when the request is on its way, so that a cancellation cannot overtake it.
    on_its_way: Option<oneshot::Receiver<Infallible>>,
}

impl Call {
    /// Returns a call for a request, and the request as it goes on; `None` when the session has
    /// ended.
    pub(super) fn open(
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

    /// Takes the request to the upstream. Returns the response: one JSON body when the answer comes
    /// soon and is the first thing that does, or else a stream.
    pub(super) async fn answer(mut self, message: Message) -> Response {
        let mut work = self.send(message);
        let first = self.first(&mut work).await.flatten();
        if let Some(Event {
            data,
            status: Some(status),
            ..
        }) = first
        {
            return answered(status, data);
        }
        // What was asked for while the key was good is answered.
        self.into_stream(first, Box::pin(std::future::pending()))
    }

    /// Takes the request to the upstream. Returns a stream at once, which `revoked` ends.
    pub(super) fn stream(mut self, message: Message, revoked: Revocation) -> Response {
        // It goes on by itself.
        drop(self.send(message));
        self.into_stream(None, revoked)
    }

    fn send(&mut self, message: Message) -> Detachable {
        let (sent, on_its_way) = oneshot::channel();
        self.on_its_way = Some(on_its_way);
        Detachable::new(exchange(Arc::clone(&self.session), message, sent))
    }

    /// Drives the exchange until the first thing that comes back, which is `None` when the stream
    /// ends without any. Returns `None` when the time for that is over.
    async fn first(&mut self, work: &mut Detachable) -> Option<Option<Event>> {
        let waiting = async {
            tokio::select! {
                biased;
                () = &mut *work => self.events.recv().await,
                event = self.events.recv() => event,
            }
        };
        tokio::time::timeout(JSON_WITHIN, waiting).await.ok()
    }

    /// Returns a response whose body is what comes back, the first of which was taken already.
    fn into_stream(self, first: Option<Event>, revoked: Revocation) -> Response {
        // The first chunk is never empty: it makes the server send the headers at once.
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

impl Drop for Call {
    fn drop(&mut self) {
        if !self.link.abandon(&self.id) {
            return;
        }
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return;
        };
        let (session, id) = (Arc::clone(&self.session), self.id.clone());
        // It gives its place up now, although it cannot be taken back before it is on its way.
        session.note_presence(std::slice::from_ref(&id), Presence::Left);
        let on_its_way = self.on_its_way.take();
        runtime.spawn(async move {
            if let Some(on_its_way) = on_its_way {
                let _ = on_its_way.await; // Nothing is ever sent: it ends with its other half.
            }
            cancel(session, id).await;
        });
    }
}

/// Takes a request to the upstream and its answer to the link. Drops `sent` when the request is on
/// its way.
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
        Err(error) => tracing::debug!("a request was not passed on: {}", error.message),
    }
}

/// Tells the session that nobody waits for the answer to a request.
pub(super) async fn cancel(session: Arc<ClientSession>, id: RequestId) {
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{},"reason":"the client closed the response"}}}}"#,
        id.to_json()
    );
    let Ok(message) = Message::from_text(text) else {
        return;
    };
    match session.receive(message).await {
        Ok(Some(exchange)) => exchange.run.await,
        Ok(None) => {}
        Err(error) => tracing::debug!("a cancellation was not passed on: {}", error.message),
    }
}

/// Returns the response that consists of an answer.
fn answered(status: StatusCode, data: Bytes) -> Response {
    let mut response = reply::json(status, data);
    if status == StatusCode::SERVICE_UNAVAILABLE {
        response
            .headers_mut()
            .insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

fn chunk_of(event: &Event) -> Bytes {
    let mut chunk = BytesMut::with_capacity(event.data.len() + 8);
    chunk.put_slice(b"data: ");
    chunk.put_slice(&event.data);
    chunk.put_slice(b"\n\n");
    chunk.freeze()
}
