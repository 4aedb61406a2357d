//! The output of a session: one pipe, or the streams of Streamable HTTP.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::streams::Streams;

/// The request that a message belongs to.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// The request with this raw id.
    Request(String),
    /// No request: the message is unsolicited.
    Standalone,
}

/// The output of a session.
#[derive(Clone, Debug)]
pub(super) enum SessionOutput {
    /// One ordered pipe: standard output, or the stream of HTTP+SSE.
    Pipe(mpsc::Sender<Bytes>, Framing),
    Streams(Arc<Streams>),
}

/// The separator of messages in a pipe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// One line for each message.
    Lines,
    /// One event for each message.
    #[default]
    Events,
    /// No separator.
    Nothing,
}

impl SessionOutput {
    pub(super) async fn send(&self, route: &Route, text: &str) {
        self.send_bytes(route, text.as_bytes()).await;
    }

    /// Sends bytes in place of a message.
    pub(super) async fn send_bytes(&self, route: &Route, bytes: &[u8]) {
        match self {
            Self::Pipe(pipe, framing) => {
                // A closed pipe means that the client has disconnected.
                let _ = pipe.send(framing.frame(bytes)).await;
            }
            Self::Streams(streams) => streams.send(route, bytes).await,
        }
    }

    /// Sends a message in pieces of 16 bytes with a pause after each.
    pub(super) async fn drip(&self, route: &Route, text: &str, pause: std::time::Duration) {
        match self {
            Self::Pipe(pipe, framing) => {
                for piece in framing.frame(text.as_bytes()).chunks(16) {
                    if pipe.send(Bytes::copy_from_slice(piece)).await.is_err() {
                        return;
                    }
                    tokio::time::sleep(pause).await;
                }
            }
            Self::Streams(streams) => streams.drip(route, text.as_bytes(), pause).await,
        }
    }
}

impl Framing {
    fn frame(self, bytes: &[u8]) -> Bytes {
        match self {
            Self::Lines => [replace_line_feeds(bytes, b" ").as_slice(), b"\n"]
                .concat()
                .into(),
            Self::Events => [
                b"event: message\ndata: ".as_slice(),
                &replace_line_feeds(bytes, b"\ndata: "),
                b"\n\n",
            ]
            .concat()
            .into(),
            Self::Nothing => Bytes::copy_from_slice(bytes),
        }
    }
}

/// Returns `bytes` with every line feed replaced, as the framing requires.
pub(super) fn replace_line_feeds(bytes: &[u8], line_feed: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\n' => framed.extend_from_slice(line_feed),
            _ => framed.push(*byte),
        }
    }
    framed
}
