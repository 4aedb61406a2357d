//! What a session has for its client, in streams that can be read again from any event on.
//!
//! Stream 0 is the one that a client opens by GET; each POST with requests gets one of its own.
//! Messages wait here until a reader takes them, and stay for a while after that, so that a
//! client whose connection broke can resume with `Last-Event-ID`. Event ids are those of the
//! proxy: `STREAM-EVENT`, counted from 1 in each stream (0 is the event that primes it).

use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use riglm_domain::message::{Envelope, Message, RequestId};
use riglm_ports::downstream::Route;
use tokio::sync::Notify;

/// The stream of messages that belong to no request.
pub(super) const STANDALONE: u64 = 0;
/// A reader that has this much to take makes the sender wait.
const MAX_UNREAD_BYTES: usize = 4 << 20;
/// The longest that a sender waits for a reader.
const MAX_WAIT: Duration = Duration::from_secs(30);
/// How much of what was taken is kept for resumption, in each session.
const KEPT_BYTES: usize = 128 << 10;
/// How many streams that are over are kept for resumption, in each session.
const KEPT_STREAMS: usize = 16;
/// How much may wait in a session that nobody reads.
const MAX_WAITING_BYTES: usize = 32 << 20;

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

#[derive(Debug, Default)]
struct Stream {
    events: VecDeque<Bytes>,
    /// Number of the first event in `events`.
    first: u64,
    /// Number of the first event that no reader took.
    unread: u64,
    /// Requests that will be answered here.
    open: HashSet<RequestId>,
    /// The reader that is in charge; 0 is none.
    reader: u64,
    /// Readers wait here for events, senders for room.
    changed: Arc<Notify>,
}

impl Stream {
    fn new() -> Self {
        Self {
            first: 1,
            unread: 1,
            ..Self::default()
        }
    }

    fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    fn unread_bytes(&self) -> usize {
        let skip = usize::try_from(self.unread - self.first).unwrap_or(usize::MAX);
        self.events.iter().skip(skip).map(Bytes::len).sum()
    }
}

#[derive(Debug, Default)]
struct Streams {
    by_number: HashMap<u64, Stream>,
    of_request: HashMap<RequestId, u64>,
    /// Streams that are over, oldest first.
    over: VecDeque<u64>,
    last: u64,
    n_readers: u64,
    is_closed: bool,
}

/// The streams of one session.
#[derive(Debug)]
pub(super) struct EventLog {
    streams: Mutex<Streams>,
}

impl EventLog {
    /// Returns a log with an empty standalone stream.
    pub(super) fn new() -> Self {
        let mut streams = Streams::default();
        streams.by_number.insert(STANDALONE, Stream::new());
        Self {
            streams: Mutex::new(streams),
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
        let stream = Stream {
            open: distinct,
            ..Stream::new()
        };
        streams.by_number.insert(number, stream);
        Ok(streams.read_from(number, 1))
    }

    /// Returns a cursor on the standalone stream at the first event that nobody took.
    pub(super) fn listen(&self) -> Result<Cursor, StreamError> {
        let mut streams = self.lock();
        if streams.is_closed {
            return Err(StreamError::Closed);
        }
        let next = streams
            .by_number
            .get(&STANDALONE)
            .map_or(1, |stream| stream.unread);
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
        if next < stream.first || next > stream.end() {
            return Err(StreamError::UnknownEvent);
        }
        Ok(streams.read_from(number, next))
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

    /// Adds a message to its stream. Waits while a slow reader has much to take.
    pub(super) async fn push(&self, message: &Message, route: &Route) {
        let data = message.on_one_line();
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
                let Some(stream) = streams.by_number.get_mut(&number) else {
                    return;
                };
                let must_wait = stream.reader != 0
                    && stream.unread_bytes() > MAX_UNREAD_BYTES
                    && tokio::time::Instant::now() < deadline;
                if !must_wait {
                    stream.events.push_back(data);
                    stream.changed.notify_waiters();
                    streams.answered(message, number);
                    streams.trim();
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
            streams.trim();
        }
    }

    /// Forgets a stream whose messages all reached the client in one body.
    pub(super) fn forget(&self, stream: u64) {
        let mut streams = self.lock();
        streams.remove(stream);
        streams.over.retain(|number| *number != stream);
    }

    /// Leaves a stream without a reader when `cursor` was the one in charge.
    pub(super) fn leave(&self, cursor: &Cursor) {
        let mut streams = self.lock();
        if let Some(stream) = streams.by_number.get_mut(&cursor.stream)
            && stream.reader == cursor.reader
        {
            stream.reader = 0;
            stream.changed.notify_waiters();
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

/// What a reader finds.
enum Taken {
    Event(Event),
    /// Nothing will come any more.
    End,
    /// Nothing is there; what tells of changes.
    Nothing(Arc<Notify>),
}

impl Streams {
    /// Takes the next event of a stream.
    fn take(&mut self, cursor: &mut Cursor) -> Taken {
        let is_closed = self.is_closed;
        let Some(stream) = self.by_number.get_mut(&cursor.stream) else {
            return Taken::End;
        };
        if stream.reader != cursor.reader || cursor.next < stream.first {
            return Taken::End;
        }
        let at = usize::try_from(cursor.next - stream.first).unwrap_or(usize::MAX);
        let is_over = cursor.stream != STANDALONE && stream.open.is_empty();
        if let Some(data) = stream.events.get(at).cloned() {
            let number = cursor.next;
            cursor.next += 1;
            stream.unread = stream.unread.max(cursor.next);
            let is_last = is_over && cursor.next == stream.end();
            stream.changed.notify_waiters();
            self.trim();
            return Taken::Event(Event {
                number,
                data,
                is_last,
            });
        }
        if is_over || is_closed {
            return Taken::End;
        }
        Taken::Nothing(Arc::clone(&stream.changed))
    }

    /// Puts a new reader in charge of a stream.
    fn read_from(&mut self, number: u64, next: u64) -> Cursor {
        self.n_readers += 1;
        let reader = self.n_readers;
        if let Some(stream) = self.by_number.get_mut(&number) {
            stream.reader = reader;
            stream.changed.notify_waiters();
        }
        Cursor {
            stream: number,
            next,
            reader,
        }
    }

    /// Returns the stream that a message belongs to: that of its request; for what is not an
    /// answer the standalone stream when the request is gone; none for an answer to nobody.
    fn number_of(&self, message: &Message, route: &Route) -> Option<u64> {
        let of_route = match route {
            Route::Related(id) => self.of_request.get(id).copied(),
            Route::Standalone => None,
        };
        let is_answer = message.envelopes().iter().all(Envelope::is_response);
        of_route.or((!is_answer).then_some(STANDALONE))
    }

    /// Notes the requests that a message answers. One without an id answers the only request of
    /// its stream.
    fn answered(&mut self, message: &Message, number: u64) {
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

    fn request_ended(&mut self, id: &RequestId, number: u64) {
        let Some(stream) = self.by_number.get_mut(&number) else {
            return;
        };
        if !stream.open.remove(id) {
            return; // The id of another stream's request, or of none.
        }
        self.of_request.remove(id);
        if stream.open.is_empty() {
            stream.changed.notify_waiters();
            self.over.push_back(number);
        }
    }

    /// Forgets what is kept beyond the limits, oldest first: what was taken before what waits.
    fn trim(&mut self) {
        let size = |events: &VecDeque<Bytes>| events.iter().map(Bytes::len).sum::<usize>();
        while self.over.len() > KEPT_STREAMS
            || self
                .over
                .iter()
                .filter_map(|number| self.by_number.get(number))
                .map(|stream| size(&stream.events))
                .sum::<usize>()
                > KEPT_BYTES
        {
            let is_taken = |number: &u64| {
                self.by_number
                    .get(number)
                    .is_none_or(|stream| stream.unread >= stream.end())
            };
            let Some(at) = self.over.iter().position(is_taken) else {
                break;
            };
            if let Some(number) = self.over.remove(at) {
                self.remove(number);
            }
        }
        for stream in self.by_number.values_mut() {
            while stream.first < stream.unread && size(&stream.events) > KEPT_BYTES {
                stream.events.pop_front();
                stream.first += 1;
            }
        }
        self.drop_unread();
    }

    /// Drops what nobody came for when it becomes too much.
    fn drop_unread(&mut self) {
        let mut waiting: usize = self
            .by_number
            .values()
            .filter(|stream| stream.reader == 0)
            .map(Stream::unread_bytes)
            .sum();
        if waiting <= MAX_WAITING_BYTES {
            return;
        }
        tracing::warn!("messages that the client never came for are dropped");
        let mut numbers: Vec<u64> = self.by_number.keys().copied().collect();
        numbers.sort_unstable();
        for number in numbers {
            let Some(stream) = self
                .by_number
                .get_mut(&number)
                .filter(|found| found.reader == 0)
            else {
                continue;
            };
            while waiting > MAX_WAITING_BYTES
                && let Some(dropped) = stream.events.pop_front()
            {
                stream.first += 1;
                stream.unread = stream.unread.max(stream.first);
                waiting = waiting.saturating_sub(dropped.len());
            }
        }
    }

    fn remove(&mut self, number: u64) {
        if let Some(stream) = self.by_number.remove(&number) {
            for id in &stream.open {
                self.of_request.remove(id);
            }
        }
    }
}

#[cfg(test)]
mod tests;
