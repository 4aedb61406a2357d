//! The streams of one Streamable HTTP session: one for each POST, and one for unsolicited messages.
//! Sent events are kept, so that a client can resume a broken stream.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::mpsc;

use super::outlet::{Route, replace_line_feeds};

/// The capacity of the queue for a slow reader.
pub(super) const QUEUE: usize = 256;

/// The stream of messages that do not belong to a request.
const STANDALONE: usize = 0;

#[derive(Debug, Default)]
struct Stream {
    events: Vec<Bytes>,
    live: Option<mpsc::Sender<Bytes>>,
    open_requests: Vec<String>,
}

#[derive(Debug)]
pub(super) struct Streams {
    inner: Mutex<Vec<Stream>>,
}

impl Default for Streams {
    fn default() -> Self {
        Self {
            inner: Mutex::new(vec![Stream::default()]),
        }
    }
}

impl Streams {
    fn with<T>(&self, look: impl FnOnce(&mut Vec<Stream>) -> T) -> T {
        look(&mut self.inner.lock())
    }

    /// Opens the stream of a POST with these requests.
    pub(super) fn open(&self, requests: Vec<String>) -> mpsc::Receiver<Bytes> {
        let (live, receiver) = mpsc::channel(QUEUE);
        self.with(|streams| {
            streams.push(Stream {
                events: Vec::new(),
                live: Some(live),
                open_requests: requests,
            });
        });
        receiver
    }

    /// Resumes a stream after the given event, or the standalone stream from its start.
    ///
    /// Returns `None` for an id that belongs to no stream.
    pub(super) fn resume(&self, last_event_id: Option<&str>) -> Option<mpsc::Receiver<Bytes>> {
        let (number, seen) = match last_event_id {
            None => (STANDALONE, None),
            Some(id) => {
                let (stream, event) = id.strip_prefix("odd:")?.split_once(':')?;
                (stream.parse().ok()?, Some(event.parse::<usize>().ok()?))
            }
        };
        self.with(|streams| {
            let stream = streams.get_mut(number)?;
            let from = seen.map_or(0, |seen| seen + 1).min(stream.events.len());
            let (live, receiver) = mpsc::channel(QUEUE.max(stream.events.len() + 1));
            for event in &stream.events[from..] {
                live.try_send(event.clone()).ok()?;
            }
            if number == STANDALONE {
                stream.events.clear();
            }
            let is_finished = number != STANDALONE && stream.open_requests.is_empty();
            stream.live = (!is_finished).then_some(live);
            Some(receiver)
        })
    }

    /// Cuts the connection of the stream of a request. Its events are kept.
    pub(super) fn cut(&self, request: &str) {
        self.with(|streams| {
            let number = stream_of(streams, request);
            streams[number].live = None;
        });
    }

    /// Marks a request as answered. The stream of its POST ends with its last request.
    pub(super) fn finish(&self, request: &str) {
        self.with(|streams| {
            let number = stream_of(streams, request);
            let stream = &mut streams[number];
            stream.open_requests.retain(|open| open != request);
            if number != STANDALONE && stream.open_requests.is_empty() {
                stream.live = None;
            }
        });
    }

    pub(super) async fn send(&self, route: &Route, message: &[u8]) {
        let (event, live) = self.prepare(route, message);
        if let Some(live) = live {
            // The reader may have disconnected. It can resume the stream later.
            let _ = live.send(event).await;
        }
    }

    pub(super) async fn drip(&self, route: &Route, message: &[u8], pause: Duration) {
        let (event, live) = self.prepare(route, message);
        let Some(live) = live else { return };
        for piece in event.chunks(16) {
            if live.send(Bytes::copy_from_slice(piece)).await.is_err() {
                return;
            }
            tokio::time::sleep(pause).await;
        }
    }

    fn prepare(&self, route: &Route, message: &[u8]) -> (Bytes, Option<mpsc::Sender<Bytes>>) {
        self.with(|streams| {
            let number = match route {
                Route::Standalone => STANDALONE,
                Route::Request(id) => stream_of(streams, id),
            };
            let stream = &mut streams[number];
            let event = frame(number, stream.events.len(), message);
            // Delivered standalone events are not replayed. Events of requests may have to be.
            if number != STANDALONE || stream.live.is_none() {
                stream.events.push(event.clone());
            }
            (event, stream.live.clone())
        })
    }
}

fn stream_of(streams: &[Stream], request: &str) -> usize {
    streams
        .iter()
        .rposition(|stream| stream.open_requests.iter().any(|open| open == request))
        .unwrap_or(STANDALONE)
}

/// Frames a message in one of two legal forms, in turn.
fn frame(stream: usize, event: usize, message: &[u8]) -> Bytes {
    let (head, between, tail) = if event.is_multiple_of(2) {
        (
            format!("id: odd:{stream}:{event}\ndata: "),
            "\ndata: ",
            "\n\n",
        )
    } else {
        (
            format!(
                ": a comment\r\nevent:message\r\nid:odd:{stream}:{event}\r\nretry: 10\r\ndata:"
            ),
            "\r\ndata:",
            "\r\n\r\n",
        )
    };
    let message = replace_line_feeds(message, between.as_bytes());
    [head.as_bytes(), &message, tail.as_bytes()].concat().into()
}

/// The sessions of a server by id.
pub(super) type Sessions<T> = Mutex<HashMap<String, T>>;
