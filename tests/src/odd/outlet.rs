//! Where a session's messages go: a line-like pipe, or the streams of Streamable HTTP.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::streams::Streams;

/// What a message is related to.
#[derive(Clone, Debug)]
pub(super) enum Route {
    /// The request with this raw id.
    Request(String),
    /// Nothing that the client asked for.
    Standalone,
}

/// The way out of a session.
#[derive(Clone, Debug)]
pub(super) enum Outlet {
    /// One ordered pipe: standard output, or the stream of HTTP+SSE.
    Pipe(mpsc::Sender<Bytes>, Framing),
    /// The streams of Streamable HTTP.
    Streams(Arc<Streams>),
}

/// How a pipe separates messages.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Framing {
    /// A line each.
    Lines,
    /// An event each.
    #[default]
    Events,
    /// Nothing: one follows the other.
    Nothing,
}

impl Outlet {
    /// Sends a message.
    pub(super) async fn send(&self, route: &Route, text: &str) {
        self.send_bytes(route, text.as_bytes()).await;
    }

    /// Sends bytes in the place of a message.
    pub(super) async fn send_bytes(&self, route: &Route, bytes: &[u8]) {
        match self {
            Self::Pipe(pipe, framing) => {
                // A closed pipe means that the client has gone; there is nobody to tell.
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
            Self::Lines => [replaced(bytes, b" ").as_slice(), b"\n"].concat().into(),
            Self::Events => [
                b"event: message\ndata: ".as_slice(),
                &replaced(bytes, b"\ndata: "),
                b"\n\n",
            ]
            .concat()
            .into(),
            Self::Nothing => Bytes::copy_from_slice(bytes),
        }
    }
}

/// Returns `bytes` with every line feed replaced, as the framing needs it.
pub(super) fn replaced(bytes: &[u8], line_feed: &[u8]) -> Vec<u8> {
    let mut framed = Vec::with_capacity(bytes.len());
    for byte in bytes {
        match byte {
            b'\n' => framed.extend_from_slice(line_feed),
            _ => framed.push(*byte),
        }
    }
    framed
}
