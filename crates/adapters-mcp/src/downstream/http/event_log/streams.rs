//! The streams of a session together: which one a message belongs to, and who reads what.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_ports::downstream::Route;
use tokio::sync::Notify;

use super::retention::Totals;
use super::stream::Stream;
use super::{Cursor, Event, STANDALONE};

/// What is behind the lock of an event log.
#[derive(Debug, Default)]
pub(super) struct Streams {
    /// Changed only through [`Streams::change`], which keeps the totals right.
    pub(super) by_number: HashMap<u64, Stream>,
    pub(super) of_request: HashMap<RequestId, u64>,
    /// Streams that are over and were taken whole, oldest first.
    pub(super) kept: VecDeque<u64>,
    /// Streams without a reader that have events to take.
    pub(super) waiting: BTreeSet<u64>,
    pub(super) totals: Totals,
    /// How many events were dropped because nobody came for them.
    pub(super) n_dropped: u64,
    pub(super) last: u64,
    pub(super) n_readers: u64,
    pub(super) is_closed: bool,
}

/// What a reader finds.
pub(super) enum Taken {
    Event(Event),
    /// Nothing will come any more.
    End,
    /// Nothing is there; what tells of changes.
    Nothing(Arc<Notify>),
}

impl Streams {
    /// Takes the next event of a stream.
    pub(super) fn take(&mut self, cursor: &mut Cursor) -> Taken {
        let Some(stream) = self.by_number.get(&cursor.stream) else {
            return Taken::End;
        };
        if stream.reader != cursor.reader || cursor.next < stream.first() {
            return Taken::End;
        }
        let is_over = cursor.stream != STANDALONE && stream.open.is_empty();
        if let Some(data) = stream.get(cursor.next).cloned() {
            let number = cursor.next;
            cursor.next += 1;
            let is_last = is_over && cursor.next == stream.end();
            self.change(cursor.stream, |stream| stream.taken_before(cursor.next));
            self.tidy(cursor.stream);
            return Taken::Event(Event {
                number,
                data,
                is_last,
            });
        }
        if is_over || self.is_closed {
            return Taken::End;
        }
        Taken::Nothing(Arc::clone(&stream.changed))
    }

    /// Puts a new reader in charge of a stream.
    pub(super) fn read_from(&mut self, number: u64, next: u64) -> Cursor {
        self.n_readers += 1;
        let reader = self.n_readers;
        self.change(number, |stream| {
            stream.reader = reader;
            stream.changed.notify_waiters();
        });
        Cursor {
            stream: number,
            next,
            reader,
        }
    }

    /// Returns the stream that a message belongs to: that of its request; for what is not an
    /// answer the standalone stream when the request is gone; none for an answer to nobody.
    pub(super) fn number_of(&self, message: &Message, route: &Route) -> Option<u64> {
        let of_route = match route {
            Route::Related(id) => self.of_request.get(id).copied(),
            Route::Standalone => None,
        };
        let is_answer = message.envelopes().iter().all(Envelope::is_response);
        of_route.or((!is_answer).then_some(STANDALONE))
    }

    /// Notes the requests that a message answers. One without an id answers the only request of
    /// its stream.
    pub(super) fn answered(&mut self, message: &Message, number: u64) {
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

    /// Notes that a request of a stream waits for nothing any more.
    pub(super) fn request_ended(&mut self, id: &RequestId, number: u64) {
        let ended = self.change(number, |stream| {
            let is_its_own = stream.open.remove(id);
            if is_its_own && stream.open.is_empty() {
                stream.changed.notify_waiters();
            }
            is_its_own
        });
        // Otherwise it is the id of another stream's request, or of none.
        if ended == Some(true) {
            self.of_request.remove(id);
        }
    }

    /// Returns whether nothing will be added to the stream of a request any more.
    pub(super) fn is_over(&self, number: u64) -> bool {
        self.is_closed
            || self
                .by_number
                .get(&number)
                .is_none_or(|stream| stream.open.is_empty())
    }
}
