//! Charge of one stream.

use std::sync::Arc;
use std::task::Poll;

use super::{Cursor, Event, EventLog};

/// The reader in charge of a stream; leaves the stream when it is dropped, whatever became of the
/// response that it was meant for.
#[derive(Debug)]
pub(in super::super) struct Seat {
    log: Arc<EventLog>,
    cursor: Cursor,
}

impl Seat {
    /// Takes charge of the stream that the cursor was made for.
    pub(in super::super) fn new(log: Arc<EventLog>, cursor: Cursor) -> Self {
        Self { log, cursor }
    }

    /// Returns the number of the stream.
    pub(in super::super) fn stream(&self) -> u64 {
        self.cursor.stream
    }

    /// Notes that the client learns event ids of the stream.
    pub(in super::super) fn publish(&self) {
        self.log.publish(self.cursor.stream);
    }

    /// Waits for the next event, as [`EventLog::next`] does.
    pub(in super::super) async fn next(&mut self) -> Option<Event> {
        self.log.next(&mut self.cursor).await
    }

    /// Returns the next event if it is there, as [`EventLog::try_next`] does.
    pub(in super::super) fn try_next(&mut self) -> Poll<Option<Event>> {
        self.log.try_next(&mut self.cursor)
    }
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.log.leave(&self.cursor);
    }
}
