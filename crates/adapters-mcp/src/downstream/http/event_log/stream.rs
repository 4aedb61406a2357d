//! One stream: its events, the read position, and the sizes.

use std::collections::{HashSet, VecDeque};
use std::sync::Arc;

use bytes::Bytes;
use riglm_app::proxy::ReservedMemory;
use riglm_domain::mcp::message::RequestId;
use tokio::sync::Notify;

#[derive(Debug)]
struct StoredEvent {
    data: Bytes,
    // The memory reservation of the event while it waits.
    room: Option<ReservedMemory>,
}

/// The events of a stream, and its reader.
#[derive(Debug)]
pub(super) struct EventQueue {
    events: VecDeque<StoredEvent>,
    first: u64,
    unread: u64,
    n_bytes: usize,
    n_unread_bytes: usize,
    /// The requests that will be answered on this stream.
    pub(super) open: HashSet<RequestId>,
    /// The current reader; 0 for none.
    pub(super) reader: u64,
    /// Whether the client got event ids of this stream.
    pub(super) is_published: bool,
    /// Whether the stream is complete, was read completely, and is kept only for resumption.
    pub(super) is_kept: bool,
    /// Readers wait here for events, and senders for space.
    pub(super) changed: Arc<Notify>,
}

impl EventQueue {
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

    /// Returns the number of the first retained event.
    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Returns the number of the first unread event.
    pub(super) fn unread(&self) -> u64 {
        self.unread
    }

    /// Returns the number of the next event to be added.
    pub(super) fn end(&self) -> u64 {
        self.first + self.events.len() as u64
    }

    /// Returns whether all events were read.
    pub(super) fn is_fully_read(&self) -> bool {
        self.unread >= self.end()
    }

    pub(super) fn get(&self, number: u64) -> Option<&Bytes> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.events.get(at).map(|stored| &stored.data)
    }

    /// Returns the size of the unread events in bytes.
    pub(super) fn n_unread_bytes(&self) -> usize {
        self.n_unread_bytes
    }

    pub(super) fn n_unread(&self) -> usize {
        usize::try_from(self.end() - self.unread).unwrap_or(usize::MAX)
    }

    /// Returns the size of the last read event in bytes; 0 if it is not retained.
    pub(super) fn n_last_bytes(&self) -> usize {
        self.get(self.unread - 1).map_or(0, Bytes::len)
    }

    /// Returns the size of the events that were read before the last one, in bytes.
    pub(super) fn n_earlier_bytes(&self) -> usize {
        self.n_bytes - self.n_unread_bytes - self.n_last_bytes()
    }

    pub(super) fn push(&mut self, data: Bytes, room: Option<ReservedMemory>) {
        self.n_bytes += data.len();
        self.n_unread_bytes += data.len();
        self.events.push_back(StoredEvent { data, room });
        self.changed.notify_waiters();
    }

    /// Marks all events before this number as read.
    pub(super) fn mark_read_before(&mut self, number: u64) {
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

    /// Drops the oldest event, read or not.
    pub(super) fn drop_first(&mut self) {
        if self.unread == self.first {
            self.mark_read_before(self.first + 1);
        }
        if let Some(dropped) = self.events.pop_front() {
            self.n_bytes -= dropped.data.len();
            self.first += 1;
        }
    }
}
