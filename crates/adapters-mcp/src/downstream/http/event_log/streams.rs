//! All streams of a session: the routing of messages to streams, and the readers.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use riglm_domain::mcp::message::{Envelope, Message, RequestId};
use riglm_ports::downstream::Route;
use tokio::sync::Notify;

use super::retention::RetentionTotals;
use super::stream::EventQueue;
use super::{STANDALONE, StreamCursor, StreamEvent};

/// The state behind the lock of an event log.
#[derive(Debug, Default)]
pub(super) struct SessionStreams {
    /// Changed only through [`SessionStreams::change`], which updates the totals.
    pub(super) by_number: HashMap<u64, EventQueue>,
    pub(super) of_request: HashMap<RequestId, u64>,
    /// Completed streams that were read completely, oldest first.
    pub(super) kept: VecDeque<u64>,
    /// Streams with unread events and without a reader.
    pub(super) waiting: BTreeSet<u64>,
    pub(super) totals: RetentionTotals,
    /// The number of events that were dropped because the client never read them.
    pub(super) n_dropped: u64,
    pub(super) last: u64,
    pub(super) n_readers: u64,
    pub(super) is_closed: bool,
}

/// The result of reading from a stream.
pub(super) enum ReadResult {
    Event(StreamEvent),
    End,
    /// No event yet; the value signals changes.
    Nothing(Arc<Notify>),
}

impl SessionStreams {
    /// Takes the next event of a stream.
    pub(super) fn take(&mut self, cursor: &mut StreamCursor) -> ReadResult {
        let Some(stream) = self.by_number.get(&cursor.stream) else {
            return ReadResult::End;
        };
        // A newer reader has taken over, or the next event was dropped.
        if stream.reader != cursor.reader || cursor.next < stream.first() {
            return ReadResult::End;
        }
        let is_over = cursor.stream != STANDALONE && stream.open.is_empty();
        if let Some(data) = stream.get(cursor.next).cloned() {
            let number = cursor.next;
            cursor.next += 1;
            let is_last = is_over && cursor.next == stream.end();
            self.change(cursor.stream, |stream| stream.mark_read_before(cursor.next));
            self.enforce_retention(cursor.stream);
            return ReadResult::Event(StreamEvent {
                number,
                data,
                is_last,
            });
        }
        if is_over || self.is_closed {
            return ReadResult::End;
        }
        ReadResult::Nothing(Arc::clone(&stream.changed))
    }

    /// Makes a new reader the current one of a stream.
    pub(super) fn read_from(&mut self, number: u64, next: u64) -> StreamCursor {
        self.n_readers += 1;
        let reader = self.n_readers;
        self.change(number, |stream| {
            stream.reader = reader;
            stream.changed.notify_waiters();
        });
        StreamCursor {
            stream: number,
            next,
            reader,
        }
    }

    /// Returns the stream of a message: the stream of its request, or the standalone stream for a
    /// notification or a request whose stream is gone. Returns `None` for a response whose request
    /// is gone.
    pub(super) fn stream_of(&self, message: &Message, route: &Route) -> Option<u64> {
        let of_route = match route {
            Route::Related(id) => self.of_request.get(id).copied(),
            Route::Standalone => None,
        };
        let is_answer = message.envelopes().iter().all(Envelope::is_response);
        of_route.or((!is_answer).then_some(STANDALONE))
    }

    /// Records the requests that a message answers. A response without an id answers the only
    /// request of its stream.
    pub(super) fn record_answers(&mut self, message: &Message, number: u64) {
        for envelope in message.envelopes().iter().filter(|part| part.is_response()) {
            let only = || {
                let open = &self.by_number.get(&number)?.open;
                open.iter().next().filter(|_| open.len() == 1).cloned()
            };
            if let Some(id) = envelope.id().cloned().or_else(only) {
                self.request_ended(&id, number);
            }
        }
    }

    /// Records that a request of a stream waits for no answer any more.
    pub(super) fn request_ended(&mut self, id: &RequestId, number: u64) {
        let ended = self.change(number, |stream| {
            let is_its_own = stream.open.remove(id);
            if is_its_own && stream.open.is_empty() {
                stream.changed.notify_waiters();
            }
            is_its_own
        });
        // Otherwise the id belongs to the request of another stream, or to none.
        if ended == Some(true) {
            self.of_request.remove(id);
        }
    }

    /// Returns whether the stream of a request will get no more events.
    pub(super) fn is_over(&self, number: u64) -> bool {
        let stream = self.by_number.get(&number);
        self.is_closed || stream.is_none_or(|stream| stream.open.is_empty())
    }
}
