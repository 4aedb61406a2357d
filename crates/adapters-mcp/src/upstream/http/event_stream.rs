//! Server-sent events of bounded size, and the position from which a stream can be resumed.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use futures_util::{Stream, StreamExt};
use reqwest::Response;
use riglm_domain::resilience::Backoff;
use riglm_ports::upstream::UpstreamError;
use sse_stream::{Sse, SseByteStream};
use tokio::time::Instant;

/// The back-off before a stream is resumed. A server can set its first delay.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_secs(30));
/// The minimum and the maximum delay that a server can set.
const RETRY_RANGE: (Duration, Duration) = (Duration::from_millis(20), Duration::from_mins(1));
/// A stream that stayed open for this time does not count as a failure.
const LONG_LIVED: Duration = Duration::from_secs(5);
/// Space for the field names and the id of an event, in bytes.
const FRAMING_BYTES: usize = 4 * 1024;
/// The number of event ids that are remembered to detect a repeated event.
const N_REMEMBERED: usize = 64;
/// A longer event id is ignored.
const MAX_ID_BYTES: usize = 1024;

type BoxedStream<T> = Pin<Box<dyn Stream<Item = T> + Send>>;

pub(in super::super) struct EventStream {
    events: SseByteStream<BoundedBody>,
    unread: Arc<AtomicUsize>,
    limit: usize,
    opened: Instant,
}

impl std::fmt::Debug for EventStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EventStream")
            .field("limit", &self.limit)
            .finish_non_exhaustive()
    }
}

impl EventStream {
    /// Reads the body of `response` as events of at most `limit` bytes, comments excluded.
    pub(in super::super) fn new(response: Response, limit: usize) -> Self {
        Self::after(Bytes::new(), response, limit)
    }

    /// Like [`EventStream::new`], for a body whose beginning `head` was already read.
    pub(super) fn after(head: Bytes, response: Response, limit: usize) -> Self {
        let unread = Arc::new(AtomicUsize::new(0));
        let head = futures_util::stream::iter((!head.is_empty()).then_some(Ok(head)));
        let metered = BoundedBody {
            bytes: Box::pin(head.chain(response.bytes_stream())),
            unread: unread.clone(),
            limit,
            at_line_start: true,
        };
        Self {
            events: SseByteStream::new(metered),
            unread,
            limit,
            opened: Instant::now(),
        }
    }

    /// Returns whether the stream counts as a success: it had events, or stayed open for a while,
    /// as with servers that want their clients to poll.
    pub(in super::super) fn was_successful(&self, n_events: usize) -> bool {
        n_events > 0 || self.opened.elapsed() >= LONG_LIVED
    }

    /// Returns the next event; `None` when the server ended the stream.
    ///
    /// # Errors
    ///
    /// Returns [`UpstreamError::TooLarge`], [`UpstreamError::Garbled`] for text that is not UTF-8,
    /// or [`UpstreamError::Lost`]; the stream is over then.
    pub(in super::super) async fn next(&mut self) -> Result<Option<Sse>, UpstreamError> {
        let Some(event) = self.events.next().await else {
            return Ok(None);
        };
        self.unread.store(0, Ordering::Relaxed);
        let data = event.as_ref().ok().and_then(|event| event.data.as_ref());
        if data.is_some_and(|data| data.len() > self.limit) {
            return Err(UpstreamError::TooLarge { limit: self.limit });
        }
        event.map(Some).map_err(|error| match error {
            sse_stream::Error::Utf8Parse(_) => UpstreamError::Garbled {
                reason: "not UTF-8",
            },
            sse_stream::Error::Body(cause)
                if matches!(cause.downcast_ref(), Some(ReadError::TooLarge)) =>
            {
                UpstreamError::TooLarge { limit: self.limit }
            }
            _ => UpstreamError::Lost {
                reason: "the event stream was interrupted".into(),
            },
        })
    }
}

/// Returns the message in an event. Events of other types have none, and neither have events
/// without data, which only mark a position.
pub(in super::super) fn payload(event: Sse) -> Option<Bytes> {
    let is_message = matches!(event.event.as_deref(), None | Some("" | "message"));
    let data = event.data.filter(|data| is_message && !data.is_empty())?;
    Some(Bytes::from(data))
}

#[derive(Debug, thiserror::Error)]
enum ReadError {
    #[error("an event exceeds the limit")]
    TooLarge,
    #[error("failed to read the event stream")]
    Broken(#[source] reqwest::Error),
}

/// Limits the number of bytes since the last event, so that an endless event cannot fill the
/// memory.
struct BoundedBody {
    bytes: BoxedStream<reqwest::Result<Bytes>>,
    unread: Arc<AtomicUsize>,
    limit: usize,
    at_line_start: bool,
}

impl Stream for BoundedBody {
    type Item = Result<Bytes, ReadError>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        // The decoder asks for more only after it has used up the last chunk, so all counted bytes
        // belong to one unfinished event.
        if self.unread.load(Ordering::Relaxed) > self.limit.saturating_add(FRAMING_BYTES) {
            return Poll::Ready(Some(Err(ReadError::TooLarge)));
        }
        let Some(chunk) = ready!(self.bytes.as_mut().poll_next(cx)) else {
            return Poll::Ready(None);
        };
        let chunk = match chunk {
            Ok(chunk) => chunk,
            Err(error) => return Poll::Ready(Some(Err(ReadError::Broken(error)))),
        };
        // Comments keep a silent stream alive, perhaps for hours. They are not counted, because the
        // decoder does not keep them.
        if !(self.at_line_start && is_comment(&chunk)) {
            self.unread.fetch_add(chunk.len(), Ordering::Relaxed);
        }
        if let Some(last) = chunk.last() {
            self.at_line_start = *last == b'\n';
        }
        Poll::Ready(Some(Ok(chunk)))
    }
}

/// Returns whether a chunk at the start of a line consists of complete comments and empty lines.
fn is_comment(chunk: &[u8]) -> bool {
    chunk.first() == Some(&b':')
        && chunk.last() == Some(&b'\n')
        && chunk
            .split(|byte| *byte == b'\n')
            .all(|line| matches!(line.first(), None | Some(b':' | b'\r')))
}

/// The read position of a stream, over all the responses that it comes in.
#[derive(Debug, Default)]
pub(in super::super) struct StreamPosition {
    last: Option<String>,
    /// The ids in this response, newest last, limited in number.
    seen: VecDeque<String>,
    /// The ids from before the last resumption, while the server may repeat them. Within one
    /// response no event counts as repeated, because some servers give every event the same id.
    before: VecDeque<String>,
    retry: Option<Duration>,
}

impl StreamPosition {
    /// Records an event; returns whether it is new.
    pub(in super::super) fn note(&mut self, event: &Sse) -> bool {
        if let Some(millis) = event.retry {
            let (shortest, longest) = RETRY_RANGE;
            self.retry = Some(Duration::from_millis(millis).clamp(shortest, longest));
        }
        let Some(id) = &event.id else { return true };
        if id.is_empty() || id.len() > MAX_ID_BYTES {
            return true;
        }
        if self.before.contains(id) {
            return false;
        }
        self.before.clear();
        if self.seen.len() == N_REMEMBERED {
            self.seen.pop_front();
        }
        self.seen.push_back(id.clone());
        self.last = Some(id.clone());
        true
    }

    /// Records that the stream continues in another response.
    pub(in super::super) fn begin_resumed_response(&mut self) {
        if !self.seen.is_empty() {
            self.before = std::mem::take(&mut self.seen);
        }
    }

    /// Returns the id of the last event, after which the stream can be resumed.
    pub(in super::super) fn last_event(&self) -> Option<&str> {
        self.last.as_deref()
    }

    /// Resets the position, so that the stream starts from the beginning.
    pub(in super::super) fn forget(&mut self) {
        self.last = None;
        self.seen.clear();
        self.before.clear();
    }

    /// Returns the delay before the attempt that follows `n_fruitless` unsuccessful attempts in a
    /// row. The delay of the server applies to the first one; it doubles with each further one, up
    /// to 30 s. `random` is the random number of [`Backoff::delay`].
    pub(in super::super) fn delay(&self, n_fruitless: u32, random: f64) -> Duration {
        let backoff = match self.retry {
            Some(delay) => BACKOFF.with_server_delay(delay),
            None => BACKOFF,
        };
        // The end of the stream itself counts as the first failure.
        backoff.delay(n_fruitless.saturating_add(1), random)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_events_of_resumed_streams_are_recognized() {
        let event = |id: &str| Sse::default().id(id).data("a");
        let mut position = StreamPosition::default();
        assert!(position.note(&event("1")));
        assert!(position.note(&event("2")));
        position.begin_resumed_response();
        assert!(!position.note(&event("1")));
        assert!(!position.note(&event("2")));
        assert_eq!(position.last_event(), Some("2"));
        assert!(position.note(&Sse::default().data("b")));
        assert!(position.note(&event("3")));
        assert_eq!(position.last_event(), Some("3"));
    }

    #[test]
    fn events_with_equal_ids_are_not_lost() {
        let mut position = StreamPosition::default();
        assert!(position.note(&Sse::default().id("0").data("a")));
        assert!(position.note(&Sse::default().id("0").data("b")));
    }

    #[test]
    fn retry_delays_start_at_the_server_value_and_grow() {
        let mut position = StreamPosition::default();
        assert_eq!(position.delay(0, 0.0), Duration::from_secs(1));
        position.note(&Sse::default().retry(200));
        assert_eq!(position.delay(0, 1.0), Duration::from_millis(200));
        assert_eq!(position.delay(2, 0.0), Duration::from_millis(800));
        assert_eq!(position.delay(40, 0.0), Duration::from_secs(30));
    }

    #[test]
    fn comments_are_distinguished_from_data() {
        assert!(is_comment(b": ping\n\n:\r\n\r\n"));
        assert!(!is_comment(b": ping\ndata: x\n"));
        assert!(!is_comment(b": pi"));
    }

    #[test]
    fn only_messages_with_data_are_delivered() {
        assert_eq!(payload(Sse::default().data("{}")), Some(Bytes::from("{}")));
        assert_eq!(payload(Sse::default().id("1").data("")), None);
        assert_eq!(payload(Sse::default().event("ping").data("{}")), None);
    }
}
