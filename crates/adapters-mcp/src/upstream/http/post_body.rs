//! The body of a POST that signals when it has been handed to the socket.

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

#[derive(Debug)]
pub(super) struct PostBody {
    message: Option<Bytes>,
    taken: Option<oneshot::Sender<()>>,
}

impl PostBody {
    /// Returns the body of a request that has none.
    pub(super) fn empty() -> Self {
        Self {
            message: None,
            taken: None,
        }
    }

    /// Returns a body with `message` that signals `taken` when a connection has it.
    pub(super) fn new(message: Bytes, taken: Option<oneshot::Sender<()>>) -> Self {
        Self {
            message: Some(message),
            taken,
        }
    }
}

impl Body for PostBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        if let Some(taken) = self.taken.take() {
            // The receiver may be gone.
            let _ = taken.send(());
        }
        Poll::Ready(self.message.take().map(|message| Ok(Frame::data(message))))
    }

    fn is_end_stream(&self) -> bool {
        self.message.is_none()
    }

    fn size_hint(&self) -> SizeHint {
        let message = self.message.as_ref();
        SizeHint::with_exact(message.map_or(0, |message| message.len() as u64))
    }
}
