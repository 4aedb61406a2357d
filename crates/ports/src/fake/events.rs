//! A receiver that records the events of an upstream connection.

use async_trait::async_trait;
use parking_lot::Mutex;
use riglm_domain::mcp::message::{Message, RequestId};

use crate::upstream::{UpstreamError, UpstreamEvents};

/// A recorded event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RecordedEvent {
    /// A message arrived.
    Received {
        /// The text of the message.
        text: String,
        /// The request on whose stream it arrived.
        related: Option<RequestId>,
    },
    /// A request will get no answer.
    Unanswered {
        /// The id of the request.
        request: RequestId,
        /// The reason.
        error: UpstreamError,
    },
    /// The connection has ended.
    Lost(UpstreamError),
}

impl RecordedEvent {
    /// Returns the text of the message, if it is one.
    #[must_use]
    pub fn text(&self) -> Option<&str> {
        match self {
            Self::Received { text, .. } => Some(text),
            Self::Unanswered { .. } | Self::Lost(_) => None,
        }
    }

    /// Returns whether this ends the request: its answer, or the report that there is none.
    #[must_use]
    pub fn ends_request(&self, id: &RequestId) -> bool {
        match self {
            Self::Received { text, .. } => Message::from_text(text.clone()).is_ok_and(|message| {
                let parts = message.envelopes().iter();
                let mut answers = parts.filter(|part| part.is_response());
                answers.any(|part| part.id() == Some(id))
            }),
            Self::Unanswered { request, .. } => request == id,
            Self::Lost(_) => false,
        }
    }
}

/// Records every event, in order.
#[derive(Debug, Default)]
pub struct RecordingEvents(Mutex<Vec<RecordedEvent>>);

impl RecordingEvents {
    /// Returns the events so far.
    #[must_use]
    pub fn all(&self) -> Vec<RecordedEvent> {
        self.0.lock().clone()
    }

    fn push(&self, event: RecordedEvent) {
        self.0.lock().push(event);
    }
}

#[async_trait]
impl UpstreamEvents for RecordingEvents {
    async fn on_message(&self, message: Message, related: Option<RequestId>) {
        let text = String::from_utf8_lossy(message.raw()).into_owned();
        self.push(RecordedEvent::Received { text, related });
    }

    async fn on_unanswered(&self, request: RequestId, error: UpstreamError) {
        self.push(RecordedEvent::Unanswered { request, error });
    }

    async fn on_lost(&self, error: UpstreamError) {
        self.push(RecordedEvent::Lost(error));
    }
}
