//! One stream: its events, which of them were taken, and how much that is.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use riglm_app::proxy::Room;
use riglm_domain::message::RequestId;
use tokio::sync::Notify;

/// An event.
#[derive(Debug)]
struct Stored {
    data: Bytes,
    /// What it takes while it waits.
    room: Option<Room>,
}

/// The events of a stream and who reads them.
#[derive(Debug)]
pub(super) struct Stream {
    events: VecDeque<Stored>,
    first: u64,
    unread: u64,
    n_bytes: usize,
    n_unread_bytes: usize,
    /// Requests that will be answered here.
    pub(super) open: HashSet<RequestId>,
    /// The reader that is in charge; 0 is none.
    pub(super) reader: u64,
    /// The client learned event ids of this stream.
    pub(super) is_published: bool,
    /// The stream is over, was taken whole, and is kept only for resumption.
    pub(super) is_kept: bool,
    /// Readers wait here for events, senders for room.
    pub(super) changed: Arc<Notify>,
}

impl Stream {
    /// Returns an empty stream on which these requests will be answered.
    pub(super) fn new(open: HashSet<RequestId>) -> Self {
        Self {
            events: VecDeque::new(),
            first: 1,
            unread: 1,
            n_bytes: 0,
            n_unread_bytes: 0,
            open,
            reader: 0,
            is_published: false,
            is_kept: false,
            changed: Arc::default(),
        }
    }

    /// Number of the first event that is still here.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Number of the first event that no reader took.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Number that the next event will have.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Returns whether readers took all events.
    pub(super) fn is_taken(&self) -> bool {
        self.unread >= self.end()
    }

    /// Returns an event by its number.
    pub(super) fn get(&self, number: u64) -> Option<&Bytes> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.events.get(at).map(|stored| &stored.data)
    }

    /// Size of the events that no reader took, in bytes.
    pub(super) fn n_unread_bytes(&self) -> usize {
        self.n_unread_bytes
    }

    /// Number of events that no reader took.
    pub(super) fn n_unread(&self) -> usize {
        usize::try_from(self.end() - self.unread).unwrap_or(usize::MAX)
    }

    /// Size of the event that was taken last, in bytes; 0 when it is not here.
    pub(super) fn n_last_bytes(&self) -> usize {
        self.get(self.unread - 1).map_or(0, Bytes::len)
    }

    /// Size of the events that were taken before the last one, in bytes.
    pub(super) fn n_earlier_bytes(&self) -> usize {
        self.n_bytes - self.n_unread_bytes - self.n_last_bytes()
    }

    /// Adds an event.
    pub(super) fn push(&mut self, data: Bytes, room: Option<Room>) {
        self.n_bytes += data.len();
        self.n_unread_bytes += data.len();
        self.events.push_back(Stored { data, room });
        self.changed.notify_waiters();
    }

    /// Notes that all events before this number were taken.
    pub(super) fn taken_before(&mut self, number: u64) {
        while self.unread < number.min(self.end()) {
            self.n_unread_bytes -= self.get(self.unread).map_or(0, Bytes::len);
            let at = usize::try_from(self.unread - self.first).unwrap_or(usize::MAX);
            if let Some(stored) = self.events.get_mut(at) {
                stored.room = None;
            }
            self.unread += 1;
        }
        self.changed.notify_waiters();
    }

    /// Drops the oldest event, taken or not.
    pub(super) fn drop_first(&mut self) {
        if self.unread == self.first {
            self.taken_before(self.first + 1);
        }
        if let Some(dropped) = self.events.pop_front() {
            self.n_bytes -= dropped.data.len();
            self.first += 1;
        }
    }
}
