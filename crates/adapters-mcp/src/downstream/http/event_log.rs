//! What a session has for its client, in streams that can be read again from any event on.
//!
//! Stream 0 is the one that a client opens by GET; each POST with requests gets one of its own.
//! Messages wait here until a reader takes them, and stay for a while after that, so that a
//! client whose connection broke can resume with `Last-Event-ID`. Event ids are those of the
//! proxy: `STREAM-EVENT`, counted from 1 in each stream (0 is the event that primes it).

mod retention;
mod seat;
mod stream;
mod streams;

use std::collections::HashSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use riglm_app::proxy::{ClientSession, Presence};
use riglm_domain::message::{Message, RequestId};
use riglm_ports::downstream::Route;

use super::room::{Owner, with_room};
pub(super) use seat::Seat;
use stream::Stream;
use streams::{Streams, Taken};

/// The stream of messages that belong to no request.
pub(super) const STANDALONE: u64 = 0;
/// A reader that has this much to take makes the sender wait.
const MAX_UNREAD_BYTES: usize = 4 << 20;
/// The longest that a sender waits for a reader.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// An event of a stream, as its reader gets it.
#[derive(Clone, Debug)]
pub(super) struct Event {
    /// Position in the stream, from 1.
    pub(super) number: u64,
    /// The message on one line.
    pub(super) data: Bytes,
    /// Nothing will follow it on this stream.
    pub(super) is_last: bool,
}

/// Which events a reader takes next. A newer reader of the same stream displaces an older one.
#[derive(Clone, Debug)]
pub(super) struct Cursor {
    /// The stream.
    pub(super) stream: u64,
    next: u64,
    reader: u64,
}

/// Why a stream cannot be opened or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamError {
    /// A request with the same id is in flight.
    DuplicateId,
    /// The event is not known, or no longer.
    UnknownEvent,
    /// The session has ended.
    Closed,
}

/// The streams of one session.
#[derive(Debug)]
pub(super) struct EventLog {
    streams: Mutex<Streams>,
    /// Is told when the client waits for answers no longer, and when it does again.
    session: Owner,
    /// Held while the session is told, so that what it hears last is what is so.
    telling: Mutex<()>,
}

impl EventLog {
    /// Returns a log with an empty standalone stream.
    pub(super) fn new() -> Self {
        let mut streams = Streams::default();
        let standalone = Stream::new(HashSet::new());
        streams.by_number.insert(STANDALONE, standalone);
        Self {
            streams: Mutex::new(streams),
            session: Owner::default(),
            telling: Mutex::default(),
        }
    }

    /// Has a session be told when its client waits for answers no longer, and when it does again.
    pub(super) fn belongs_to(&self, session: &Arc<ClientSession>) {
        self.session.set(session);
    }

    /// Tells the session that the client waits for the answers on a stream, or does not, if that is
    /// so now: a client that left may be back already.
    fn tell_if(&self, stream: u64, presence: Presence) {
        self.pass_on(stream, presence, |requests| {
            if let Some(session) = self.session.get() {
                session.note_presence(requests, presence);
            }
        });
    }

    /// Hands the requests of a stream that are not answered to `tell`, if `presence` is so now.
    fn pass_on(&self, stream: u64, presence: Presence, tell: impl FnOnce(&[RequestId])) {
        // Without the lock of the streams, which who is told may need.
        let _telling = self.telling.lock().unwrap_or_else(PoisonError::into_inner);
        let open: Vec<RequestId> = {
            let streams = self.lock();
            let found = streams.by_number.get(&stream);
            let found = found.filter(|stream| (stream.reader == 0) == (presence == Presence::Left));
            found.map_or_else(Vec::new, |stream| stream.open.iter().cloned().collect())
        };
        if !open.is_empty() {
            tell(&open);
        }
    }

    /// Opens a stream for a message that carries these requests, and returns its cursor.
    pub(super) fn open(&self, ids: &[RequestId]) -> Result<Cursor, StreamError> {
        let mut streams = self.lock();
        if streams.is_closed {
            return Err(StreamError::Closed);
        }
        let distinct: HashSet<RequestId> = ids.iter().cloned().collect();
        if distinct.len() < ids.len() || ids.iter().any(|id| streams.of_request.contains_key(id)) {
            return Err(StreamError::DuplicateId);
        }
        streams.last += 1;
        let number = streams.last;
        for id in ids {
            streams.of_request.insert(id.clone(), number);
        }
        streams.by_number.insert(number, Stream::new(distinct));
        Ok(streams.read_from(number, 1))
    }

    /// Returns a cursor on the standalone stream at the first event that nobody took.
    pub(super) fn listen(&self) -> Result<Cursor, StreamError> {
        let mut streams = self.lock();
        if streams.is_closed {
            return Err(StreamError::Closed);
        }
        let next = streams.by_number.get(&STANDALONE).map_or(1, Stream::unread);
        Ok(streams.read_from(STANDALONE, next))
    }

    /// Returns a cursor behind the event with this id.
    pub(super) fn resume(&self, event_id: &str) -> Result<Cursor, StreamError> {
        let mut streams = self.lock();
        if streams.is_closed {
            return Err(StreamError::Closed);
        }
        let (number, event) = event_id
            .split_once('-')
            .and_then(|(stream, event)| Some((stream.parse().ok()?, event.parse::<u64>().ok()?)))
            .ok_or(StreamError::UnknownEvent)?;
        let stream = streams
            .by_number
            .get(&number)
            .ok_or(StreamError::UnknownEvent)?;
        let next = event.saturating_add(1);
        if next < stream.first() || next > stream.end() {
            return Err(StreamError::UnknownEvent);
        }
        let cursor = streams.read_from(number, next);
        drop(streams);
        self.tell_if(number, Presence::Back);
        Ok(cursor)
    }

    /// Waits for the next event and moves the cursor behind it. `None` when the stream is over,
    /// another reader took charge, or the session has ended.
    pub(super) async fn next(&self, cursor: &mut Cursor) -> Option<Event> {
        loop {
            let changed = {
                let mut streams = self.lock();
                match streams.take(cursor) {
                    Taken::Event(event) => return Some(event),
                    Taken::End => return None,
                    // Registered before the lock is released: what comes after it wakes this
                    // reader.
                    Taken::Nothing(changed) => changed.notified_owned(),
                }
            };
            changed.await;
        }
    }

    /// Returns what [`Self::next`] would, if that is there already.
    pub(super) fn try_next(&self, cursor: &mut Cursor) -> Poll<Option<Event>> {
        match self.lock().take(cursor) {
            Taken::Event(event) => Poll::Ready(Some(event)),
            Taken::End => Poll::Ready(None),
            Taken::Nothing(_) => Poll::Pending,
        }
    }

    /// Adds a message to its stream. Waits while a slow reader has much to take. Where there is no
    /// room for it, what nobody came for is dropped first.
    pub(super) async fn push(&self, message: &Message, route: &Route) {
        let session = self.session.get();
        let Some((message, room)) =
            with_room(session.as_deref(), message, || self.lock().drop_waiting())
        else {
            return;
        };
        let (message, data) = (&message, message.on_one_line());
        let mut room = room;
        let deadline = tokio::time::Instant::now() + MAX_WAIT;
        loop {
            let room = {
                let mut streams = self.lock();
                if streams.is_closed {
                    return;
                }
                let Some(number) = streams.number_of(message, route) else {
                    tracing::debug!("an answer that nobody waits for is dropped");
                    return;
                };
                let Some(stream) = streams.by_number.get(&number) else {
                    return;
                };
                let must_wait = stream.reader != 0
                    && stream.n_unread_bytes() > MAX_UNREAD_BYTES
                    && tokio::time::Instant::now() < deadline;
                if !must_wait {
                    streams.change(number, |stream| stream.push(data, room.take()));
                    streams.answered(message, number);
                    streams.tidy(number);
                    return;
                }
                Arc::clone(&stream.changed).notified_owned()
            };
            // A timeout only means that the next round does not wait any more.
            let _ = tokio::time::timeout_at(deadline, room).await;
        }
    }

    /// Ends the wait for the answer to a request.
    pub(super) fn finish(&self, id: &RequestId) {
        let mut streams = self.lock();
        let number = streams.of_request.get(id).copied();
        if let Some(number) = number {
            streams.request_ended(id, number);
            streams.tidy(number);
        }
    }

    /// Notes that the client learns event ids of a stream, so that it may resume it later.
    pub(super) fn publish(&self, stream: u64) {
        let mut streams = self.lock();
        streams.change(stream, |stream| stream.is_published = true);
        streams.tidy(stream);
    }

    /// Leaves a stream without a reader when `cursor` was the one in charge. A stream that is over
    /// and was never published is forgotten: nobody can resume it.
    fn leave(&self, cursor: &Cursor) {
        {
            let mut streams = self.lock();
            streams.change(cursor.stream, |stream| {
                if stream.reader == cursor.reader {
                    stream.reader = 0;
                    stream.changed.notify_waiters();
                }
            });
            streams.tidy(cursor.stream);
        }
        self.tell_if_left(cursor.stream);
    }

    /// Tells the session if nobody reads the stream of requests that are not answered.
    pub(super) fn tell_if_left(&self, stream: u64) {
        self.tell_if(stream, Presence::Left);
    }

    /// Returns whether nothing will be added to the stream of a request any more.
    pub(super) fn is_over(&self, stream: u64) -> bool {
        self.lock().is_over(stream)
    }

    /// Waits until nothing will be added to the stream of a request any more.
    pub(super) async fn over(&self, stream: u64) {
        loop {
            let changed = {
                let streams = self.lock();
                let Some(found) = streams.by_number.get(&stream) else {
                    return;
                };
                if streams.is_over(stream) {
                    return;
                }
                Arc::clone(&found.changed).notified_owned()
            };
            changed.await;
        }
    }

    /// Ends all streams: readers take what is there and stop.
    pub(super) fn close(&self) {
        let mut streams = self.lock();
        streams.is_closed = true;
        for stream in streams.by_number.values() {
            stream.changed.notify_waiters();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests;
