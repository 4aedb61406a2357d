//! Response bodies with server-sent events, read from an event log.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{BufMut, Bytes, BytesMut};
use http::{HeaderName, header};
use riglm_app::proxy::ClientSession;
use riglm_ports::authenticator::Revocation;

use super::event_log::{StreamEvent, StreamReader};
use super::reply;

/// The interval of comments on a silent stream, so that a dead connection is noticed.
pub(super) const KEEP_ALIVE: Duration = Duration::from_secs(15);
pub(super) const COMMENT: Bytes = Bytes::from_static(b":\n\n");
/// The time that a client should wait before it reconnects, in milliseconds.
const RETRY_MS: u64 = 1_000;

struct StreamBody {
    seat: StreamReader,
    session: Arc<ClientSession>,
    // Completes when the key is revoked, which ends the stream.
    revoked: Revocation,
    is_over: bool,
}

pub(super) struct StreamOptions {
    /// An event that was already taken from the stream.
    pub(super) first: Option<StreamEvent>,
    /// Whether to begin with an event that has an id and no data, for resuming (SEP-1699).
    pub(super) is_primed: bool,
    /// Completes when the stream must end early.
    pub(super) revoked: Revocation,
}

/// Returns a response whose body is the rest of a stream.
pub(super) fn event_stream(
    seat: StreamReader,
    session: Arc<ClientSession>,
    opening: StreamOptions,
) -> Response {
    seat.publish();
    let stream = seat.stream();
    let mut head = BytesMut::new();
    if opening.is_primed {
        head.put_slice(format!("id: {stream}-0\nretry: {RETRY_MS}\ndata: \n\n").as_bytes());
    }
    let mut is_over = false;
    if let Some(first) = opening.first {
        is_over = first.is_last;
        put_event(&mut head, stream, &first);
    }
    let reader = StreamBody {
        seat,
        session,
        revoked: opening.revoked,
        is_over,
    };
    // The first chunk is never empty, so that the server sends the headers at once.
    if head.is_empty() {
        head.put(COMMENT);
    }
    let start = (Some(head.freeze()), reader);
    let events = futures_util::stream::unfold(start, |(head, mut reader)| async {
        if let Some(head) = head {
            return Some((head, (None, reader)));
        }
        if reader.is_over {
            return None;
        }
        let next = tokio::select! {
            biased;
            () = &mut reader.revoked => return None,
            next = tokio::time::timeout(KEEP_ALIVE, reader.seat.next()) => next,
        };
        let chunk = match next {
            Ok(Some(event)) => {
                reader.is_over = event.is_last;
                let mut chunk = BytesMut::with_capacity(event.data.len() + 48);
                put_event(&mut chunk, reader.seat.stream(), &event);
                chunk.freeze()
            }
            Ok(None) => return None,
            Err(_) => COMMENT,
        };
        reader.session.touch();
        Some((chunk, (None, reader)))
    });
    let body = futures_util::StreamExt::map(events, Ok::<_, std::convert::Infallible>);
    sse_response(Body::from_stream(body))
}

/// Returns a response of server-sent events with this body.
pub(super) fn sse_response(body: Body) -> Response {
    let mut response = Response::new(body);
    let mut set = |name, value| reply::set_header(&mut response, name, value);
    set(header::CONTENT_TYPE, "text/event-stream");
    set(header::CACHE_CONTROL, "no-cache, no-transform");
    // Keeps nginx from buffering the events.
    set(HeaderName::from_static("x-accel-buffering"), "no");
    response
}

fn put_event(chunk: &mut BytesMut, stream: u64, event: &StreamEvent) {
    chunk.put_slice(format!("id: {stream}-{}\ndata: ", event.number).as_bytes());
    chunk.put_slice(&event.data);
    chunk.put_slice(b"\n\n");
}
