//! The reader of one stream.

use std::sync::Arc;
use std::task::Poll;

use super::{EventLog, StreamCursor, StreamEvent};

/// The current reader of a stream. It leaves the stream when it is dropped, even if its response
/// was never sent.
#[derive(Debug)]
pub(in super::super) struct StreamReader {
    log: Arc<EventLog>,
    cursor: StreamCursor,
}

impl StreamReader {
    /// Creates the reader for a cursor.
    pub(in super::super) fn new(log: Arc<EventLog>, cursor: StreamCursor) -> Self {
        Self { log, cursor }
    }

    pub(in super::super) fn stream(&self) -> u64 {
        self.cursor.stream
    }

    /// Records that the client gets event ids of the stream.
    pub(in super::super) fn publish(&self) {
        self.log.publish(self.cursor.stream);
    }

    /// Waits for the next event, as [`EventLog::next`] does.
    pub(in super::super) async fn next(&mut self) -> Option<StreamEvent> {
        self.log.next(&mut self.cursor).await
    }

    /// Returns the next event if it is ready, as [`EventLog::try_next`] does.
    pub(in super::super) fn try_next(&mut self) -> Poll<Option<StreamEvent>> {
        self.log.try_next(&mut self.cursor)
    }
}

impl Drop for StreamReader {
    fn drop(&mut self) {
        self.log.leave(&self.cursor);
    }
}
