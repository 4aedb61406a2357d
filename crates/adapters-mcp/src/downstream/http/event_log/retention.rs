//! The retention of events in a session, and its limits.
//!
//! The totals are updated with every change of a stream, so that the cost of a message does not
//! depend on the number of retained events.

use super::STANDALONE;
use super::stream::EventQueue;
use super::streams::SessionStreams;

/// The limit of events that were taken before the last event of a stream and are kept for
/// resumption: in each stream, and in all completed streams of a session together.
pub(super) const KEPT_BYTES: usize = 128 << 10;
/// The limit of the last taken events of all streams, in each session. A client whose connection
/// broke resumes to get them.
pub(super) const KEPT_LAST_BYTES: usize = 4 << 20;
/// The maximum number of completed streams that are kept for resumption, in each session.
pub(super) const KEPT_STREAMS: usize = 16;
/// The limit of waiting bytes in a session without a reader.
pub(super) const MAX_WAITING_BYTES: usize = 32 << 20;
/// The limit of waiting events in a session without a reader.
pub(super) const MAX_WAITING_EVENTS: usize = 10_000;

/// Totals over the streams of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct RetentionTotals {
    /// The number of unread events in streams without a reader.
    pub(super) waiting: usize,
    pub(super) waiting_bytes: usize,
    /// The size of the last taken event of each stream, over all streams.
    pub(super) last_bytes: usize,
    /// The size of the events that were taken before the last one, over completed streams.
    pub(super) earlier_bytes: usize,
}

impl RetentionTotals {
    pub(super) fn of(stream: &EventQueue) -> Self {
        let (waiting, waiting_bytes) = match stream.reader {
            0 => (stream.n_unread(), stream.n_unread_bytes()),
            _ => (0, 0),
        };
        let earlier_bytes = stream.is_kept.then(|| stream.n_earlier_bytes());
        Self {
            waiting,
            waiting_bytes,
            last_bytes: stream.n_last_bytes(),
            earlier_bytes: earlier_bytes.unwrap_or(0),
        }
    }

    fn add(&mut self, other: Self) {
        self.waiting += other.waiting;
        self.waiting_bytes += other.waiting_bytes;
        self.last_bytes += other.last_bytes;
        self.earlier_bytes += other.earlier_bytes;
    }

    fn subtract(&mut self, other: Self) {
        self.waiting -= other.waiting;
        self.waiting_bytes -= other.waiting_bytes;
        self.last_bytes -= other.last_bytes;
        self.earlier_bytes -= other.earlier_bytes;
    }
}

impl SessionStreams {
    /// Changes a stream and the totals. Returns `None` if the stream does not exist.
    pub(super) fn change<R>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut EventQueue) -> R,
    ) -> Option<R> {
        let stream = self.by_number.get_mut(&number)?;
        self.totals.subtract(RetentionTotals::of(stream));
        let result = change(stream);
        let share = RetentionTotals::of(stream);
        self.totals.add(share);
        if share.waiting > 0 {
            self.waiting.insert(number);
        } else {
            self.waiting.remove(&number);
        }
        Some(result)
    }

    /// Drops events that are not needed after a change of this stream, and events beyond the
    /// limits.
    pub(super) fn enforce_retention(&mut self, number: u64) {
        self.handle_completion(number);
        self.change(number, |stream| {
            while stream.n_earlier_bytes() > KEPT_BYTES {
                stream.drop_first();
            }
        });
        self.drop_unread();
        self.trim_kept();
        if self.totals.last_bytes > KEPT_LAST_BYTES {
            // Open streams hold many bytes as well; this one caused the excess.
            self.change(number, |stream| {
                while stream.first() < stream.unread() {
                    stream.drop_first();
                }
            });
        }
    }

    /// Handles a stream that may be complete: removes it if no client can resume it, and keeps it
    /// for a while if it was read completely.
    fn handle_completion(&mut self, number: u64) {
        let Some(stream) = self.by_number.get(&number) else {
            return;
        };
        if number == STANDALONE || !stream.open.is_empty() {
            return;
        }
        if !stream.is_published {
            if stream.reader == 0 {
                self.remove(number);
            }
        } else if stream.is_fully_read() && !stream.is_kept {
            self.change(number, |stream| stream.is_kept = true);
            self.kept.push_back(number);
        }
    }

    /// Removes completed streams, and early events of them, beyond the limits, oldest first.
    fn trim_kept(&mut self) {
        while self.kept.len() > KEPT_STREAMS
            && let Some(oldest) = self.kept.pop_front()
        {
            self.remove(oldest);
        }
        while self.totals.earlier_bytes > KEPT_BYTES
            && let Some(oldest) = self.find_kept(|stream| stream.n_earlier_bytes() > 0)
        {
            self.change(oldest, EventQueue::drop_first);
        }
        // A stream that is too large by itself is removed before it displaces the others.
        while self.totals.last_bytes > KEPT_LAST_BYTES
            && let Some(large) = self
                .find_kept(|stream| stream.n_last_bytes() > KEPT_LAST_BYTES)
                .or_else(|| self.find_kept(|stream| stream.n_last_bytes() > KEPT_BYTES))
        {
            self.kept.retain(|number| *number != large);
            self.remove(large);
        }
    }

    /// Returns the oldest stream kept for resumption that matches.
    fn find_kept(&self, is_wanted: impl Fn(&EventQueue) -> bool) -> Option<u64> {
        let mut kept = self.kept.iter().copied();
        kept.find(|number| self.by_number.get(number).is_some_and(&is_wanted))
    }

    /// Drops unread events of streams without a reader when they exceed the limits.
    fn drop_unread(&mut self) {
        while (self.totals.waiting_bytes > MAX_WAITING_BYTES
            || self.totals.waiting > MAX_WAITING_EVENTS)
            && self.drop_waiting()
        {}
    }

    /// Drops the oldest event of a stream without a reader. Returns false if there is none.
    pub(super) fn drop_waiting(&mut self) -> bool {
        let Some(&number) = self.waiting.first() else {
            return false;
        };
        self.change(number, EventQueue::drop_first);
        self.n_dropped += 1;
        // Logged with growing intervals, so that the log stays short.
        if self.n_dropped.is_power_of_two() {
            let n_dropped = self.n_dropped;
            tracing::warn!(n_dropped, "dropped messages that the client did not fetch");
        }
        self.handle_completion(number);
        true
    }

    fn remove(&mut self, number: u64) {
        if let Some(stream) = self.by_number.remove(&number) {
            self.totals.subtract(RetentionTotals::of(&stream));
            self.waiting.remove(&number);
            for id in &stream.open {
                self.of_request.remove(id);
            }
            // Wakes waiting tasks, which then find that the stream is gone.
            stream.changed.notify_waiters();
        }
    }
}
