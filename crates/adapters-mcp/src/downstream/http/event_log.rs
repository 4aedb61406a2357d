//! The event log of a session: the messages for its client, in resumable streams.
//!
//! Stream 0 is the standalone stream that a client opens by GET; each POST with requests gets its
//! own. Messages wait here until a reader takes them, and are retained for a while after that, so
//! that a client whose connection broke can resume with `Last-Event-ID`. The proxy assigns the
//! event ids: `STREAM-EVENT`, counted from 1 in each stream (0 is the priming event).

mod retention;
mod stream;
mod stream_reader;
mod streams;

use std::collections::HashSet;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use riglm_app::proxy::{ClientPresence, ClientSession};
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::downstream::Route;

use super::memory_reservation::{LinkSession, with_reservation};
use stream::EventQueue;
pub(super) use stream_reader::StreamReader;
use streams::{ReadResult, SessionStreams};

/// The number of the stream for messages that belong to no request.
pub(super) const STANDALONE: u64 = 0;
/// The sender waits when the unread events of a reader exceed this size.
const MAX_UNREAD_BYTES: usize = 4 << 20;
/// The longest time that a sender waits for a reader.
const MAX_WAIT: Duration = Duration::from_secs(30);

/// An event of a stream, as its reader gets it.
#[derive(Clone, Debug)]
pub(super) struct StreamEvent {
    /// The position in the stream, from 1.
    pub(super) number: u64,
    pub(super) data: Bytes,
    /// Whether it is the last event of the stream.
    pub(super) is_last: bool,
}

/// The position of a reader in a stream. A newer reader of the same stream displaces an older one.
#[derive(Clone, Debug)]
pub(super) struct StreamCursor {
    pub(super) stream: u64,
    next: u64,
    reader: u64,
}

/// The reason why a stream cannot be opened or resumed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamError {
    /// A request with the same id is in flight.
    DuplicateId,
    /// The event is unknown, or was dropped.
    UnknownEvent,
    Closed,
}

#[derive(Debug)]
pub(super) struct EventLog {
    streams: Mutex<SessionStreams>,
    /// Gets a notification when the client stops waiting for answers, and when it returns.
    session: LinkSession,
    /// Held during a notification, so that the last notification matches the current state.
    telling: Mutex<()>,
}

impl EventLog {
    /// Returns a log with an empty standalone stream.
    pub(super) fn new() -> Self {
        let mut streams = SessionStreams::default();
        let standalone = EventQueue::new(HashSet::new());
        streams.by_number.insert(STANDALONE, standalone);
        Self {
            streams: Mutex::new(streams),
            session: LinkSession::default(),
            telling: Mutex::default(),
        }
    }

    /// Sets the session that is notified when its client stops waiting for answers, and when it
    /// returns.
    pub(super) fn set_session(&self, session: &Arc<ClientSession>) {
        self.session.set(session);
    }

    /// Notifies the session that the client waits for the answers on a stream, or does not, if that
    /// is still true: a client that left may already be back.
    fn notify_presence_if_current(&self, stream: u64, presence: ClientPresence) {
        self.with_unanswered_requests(stream, presence, |requests| {
            if let Some(session) = self.session.get() {
                session.note_presence(requests, presence);
            }
        });
    }

    /// Passes the unanswered requests of a stream to `tell`, if `presence` matches the current
    /// state.
    fn with_unanswered_requests(
        &self,
        stream: u64,
        presence: ClientPresence,
        tell: impl FnOnce(&[RequestId]),
    ) {
        // The lock of the streams is released first, because the receiver may need it.
        let _telling = self.telling.lock();
        let open: Vec<RequestId> = {
            let streams = self.streams.lock();
            let found = streams.by_number.get(&stream);
            let found =
                found.filter(|stream| (stream.reader == 0) == (presence == ClientPresence::Left));
            found.map_or_else(Vec::new, |stream| stream.open.iter().cloned().collect())
        };
        if !open.is_empty() {
            tell(&open);
        }
    }

    /// Opens a stream for a message with these requests, and returns its cursor.
    pub(super) fn open(&self, ids: &[RequestId]) -> Result<StreamCursor, StreamError> {
        let mut streams = self.streams.lock();
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
        streams.by_number.insert(number, EventQueue::new(distinct));
        Ok(streams.read_from(number, 1))
    }

    /// Returns a cursor on the standalone stream, at the first unread event.
    pub(super) fn listen(&self) -> Result<StreamCursor, StreamError> {
        let mut streams = self.streams.lock();
        if streams.is_closed {
            return Err(StreamError::Closed);
        }
        let standalone = streams.by_number.get(&STANDALONE);
        let next = standalone.map_or(1, EventQueue::unread);
        Ok(streams.read_from(STANDALONE, next))
    }

    /// Returns a cursor after the event with this id.
    pub(super) fn resume(&self, event_id: &str) -> Result<StreamCursor, StreamError> {
        let mut streams = self.streams.lock();
        if streams.is_closed {
            return Err(StreamError::Closed);
        }
        let (number, event) = event_id
            .split_once('-')
            .and_then(|(stream, event)| Some((stream.parse().ok()?, event.parse::<u64>().ok()?)))
            .ok_or(StreamError::UnknownEvent)?;
        let stream = streams.by_number.get(&number);
        let stream = stream.ok_or(StreamError::UnknownEvent)?;
        let next = event.saturating_add(1);
        if next < stream.first() || next > stream.end() {
            return Err(StreamError::UnknownEvent);
        }
        let cursor = streams.read_from(number, next);
        drop(streams);
        self.notify_presence_if_current(number, ClientPresence::Back);
        Ok(cursor)
    }

    /// Waits for the next event and advances the cursor. Returns `None` when the stream is over,
    /// another reader has replaced this one, or the session has ended.
    pub(super) async fn next(&self, cursor: &mut StreamCursor) -> Option<StreamEvent> {
        loop {
            let changed = {
                let mut streams = self.streams.lock();
                match streams.take(cursor) {
                    ReadResult::Event(event) => return Some(event),
                    ReadResult::End => return None,
                    // Registered before the lock is released, so that every later event wakes this
                    // reader.
                    ReadResult::Nothing(changed) => changed.notified_owned(),
                }
            };
            changed.await;
        }
    }

    /// Returns the result of [`Self::next`] if it is ready.
    pub(super) fn try_next(&self, cursor: &mut StreamCursor) -> Poll<Option<StreamEvent>> {
        match self.streams.lock().take(cursor) {
            ReadResult::Event(event) => Poll::Ready(Some(event)),
            ReadResult::End => Poll::Ready(None),
            ReadResult::Nothing(_) => Poll::Pending,
        }
    }

    /// Adds a message to its stream. Waits while a slow reader has many unread events. If the
    /// memory limit is reached, unread events of streams without a reader are dropped first.
    pub(super) async fn push(&self, message: &Message, route: &Route) {
        let session = self.session.get();
        let Some((message, room)) = with_reservation(session.as_deref(), message, || {
            self.streams.lock().drop_waiting()
        }) else {
            return;
        };
        let (message, data) = (&message, message.on_one_line());
        let mut room = room;
        let deadline = tokio::time::Instant::now() + MAX_WAIT;
        loop {
            let room = {
                let mut streams = self.streams.lock();
                if streams.is_closed {
                    return;
                }
                let Some(number) = streams.stream_of(message, route) else {
                    tracing::debug!("dropped an answer: no request is waiting for it");
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
                    streams.record_answers(message, number);
                    streams.enforce_retention(number);
                    return;
                }
                Arc::clone(&stream.changed).notified_owned()
            };
            // After a timeout the next round no longer waits.
            let _ = tokio::time::timeout_at(deadline, room).await;
        }
    }

    /// Ends the wait for the answer to a request.
    pub(super) fn finish(&self, id: &RequestId) {
        let mut streams = self.streams.lock();
        if let Some(number) = streams.of_request.get(id).copied() {
            streams.request_ended(id, number);
            streams.enforce_retention(number);
        }
    }

    /// Records that the client gets event ids of a stream, so that it may resume it later.
    pub(super) fn publish(&self, stream: u64) {
        let mut streams = self.streams.lock();
        streams.change(stream, |stream| stream.is_published = true);
        streams.enforce_retention(stream);
    }

    /// Leaves a stream without a reader if `cursor` was its reader. A completed stream that was
    /// never published is removed, because no client can resume it.
    fn leave(&self, cursor: &StreamCursor) {
        {
            let mut streams = self.streams.lock();
            streams.change(cursor.stream, |stream| {
                if stream.reader == cursor.reader {
                    stream.reader = 0;
                    stream.changed.notify_waiters();
                }
            });
            streams.enforce_retention(cursor.stream);
        }
        self.notify_if_left(cursor.stream);
    }

    /// Notifies the session if the stream has unanswered requests and no reader.
    pub(super) fn notify_if_left(&self, stream: u64) {
        self.notify_presence_if_current(stream, ClientPresence::Left);
    }

    /// Returns whether the stream of a request will get no more events.
    pub(super) fn is_over(&self, stream: u64) -> bool {
        self.streams.lock().is_over(stream)
    }

    /// Waits until the stream of a request will get no more events.
    pub(super) async fn wait_until_over(&self, stream: u64) {
        loop {
            let changed = {
                let streams = self.streams.lock();
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

    /// Ends all streams: readers get the remaining events and stop.
    pub(super) fn close(&self) {
        let mut streams = self.streams.lock();
        streams.is_closed = true;
        for stream in streams.by_number.values() {
            stream.changed.notify_waiters();
        }
    }
}

#[cfg(test)]
mod tests;
