//! What a session keeps for its client, and what it forgets when that becomes too much.
//!
//! The sums are kept up to date with every change of a stream, so that a message costs the same
//! however much is there already.

use super::STANDALONE;
use super::stream::Stream;
use super::streams::Streams;

/// How much of what was taken before the last event of a stream is kept for resumption: in each
/// stream, and in all streams of a session that are over.
pub(super) const KEPT_BYTES: usize = 128 << 10;
/// How much the last events that were taken of each stream may have in all, in each session. They
/// are what a client whose connection broke comes for.
pub(super) const KEPT_LAST_BYTES: usize = 4 << 20;
/// How many streams that are over are kept for resumption, in each session.
pub(super) const KEPT_STREAMS: usize = 16;
/// How much may wait in a session that nobody reads.
pub(super) const MAX_WAITING_BYTES: usize = 32 << 20;
/// How many events may wait in a session that nobody reads.
pub(super) const MAX_WAITING_EVENTS: usize = 10_000;

/// Sums over the streams of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Totals {
    /// Events that no reader took, of streams without a reader.
    pub(super) waiting: usize,
    /// Their size.
    pub(super) waiting_bytes: usize,
    /// Size of the event that was taken last, of all streams.
    pub(super) last_bytes: usize,
    /// Size of the events that were taken before the last one, of streams that are over.
    pub(super) earlier_bytes: usize,
}

impl Totals {
    /// Returns what one stream counts for.
    pub(super) fn of(stream: &Stream) -> Self {
        let is_unread = stream.reader == 0;
        Self {
            waiting: if is_unread { stream.n_unread() } else { 0 },
            waiting_bytes: if is_unread {
                stream.n_unread_bytes()
            } else {
                0
            },
            last_bytes: stream.n_last_bytes(),
            earlier_bytes: if stream.is_kept {
                stream.n_earlier_bytes()
            } else {
                0
            },
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

impl Streams {
    /// Changes a stream, and the totals with it. Returns `None` when there is no such stream.
    pub(super) fn change<R>(
        &mut self,
        number: u64,
        change: impl FnOnce(&mut Stream) -> R,
    ) -> Option<R> {
        let stream = self.by_number.get_mut(&number)?;
        self.totals.subtract(Totals::of(stream));
        let result = change(stream);
        let share = Totals::of(stream);
        self.totals.add(share);
        if share.waiting > 0 {
            self.waiting.insert(number);
        } else {
            self.waiting.remove(&number);
        }
        Some(result)
    }

    /// Forgets what is not needed after a change of this stream, and what is kept beyond the
    /// limits.
    pub(super) fn tidy(&mut self, number: u64) {
        self.settle(number);
        self.change(number, |stream| {
            while stream.n_earlier_bytes() > KEPT_BYTES {
                stream.drop_first();
            }
        });
        self.drop_unread();
        self.trim_kept();
        if self.totals.last_bytes > KEPT_LAST_BYTES {
            // Streams that go on have much as well; this one brought it over the limit.
            self.change(number, |stream| {
                while stream.first() < stream.unread() {
                    stream.drop_first();
                }
            });
        }
    }

    /// Notes that a stream is over: one that nobody can come back to is forgotten, one that was
    /// taken whole is kept for a while.
    fn settle(&mut self, number: u64) {
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
        } else if stream.is_taken() && !stream.is_kept {
            self.change(number, |stream| stream.is_kept = true);
            self.kept.push_back(number);
        }
    }

    /// Forgets streams that are over, and early events of them, beyond the limits, oldest first.
    fn trim_kept(&mut self) {
        while self.kept.len() > KEPT_STREAMS
            && let Some(oldest) = self.kept.pop_front()
        {
            self.remove(oldest);
        }
        while self.totals.earlier_bytes > KEPT_BYTES
            && let Some(oldest) = self.find_kept(|stream| stream.n_earlier_bytes() > 0)
        {
            self.change(oldest, Stream::drop_first);
        }
        // One that is too large by itself goes before it takes the others with it.
        while self.totals.last_bytes > KEPT_LAST_BYTES
            && let Some(large) = self
                .find_kept(|stream| stream.n_last_bytes() > KEPT_LAST_BYTES)
                .or_else(|| self.find_kept(|stream| stream.n_last_bytes() > KEPT_BYTES))
        {
            self.kept.retain(|number| *number != large);
            self.remove(large);
        }
    }

    /// Returns the oldest stream of those kept for resumption that is as wanted.
    fn find_kept(&self, is_wanted: impl Fn(&Stream) -> bool) -> Option<u64> {
        self.kept
            .iter()
            .find(|number| self.by_number.get(number).is_some_and(&is_wanted))
            .copied()
    }

    /// Drops what nobody came for when it becomes too much.
    fn drop_unread(&mut self) {
        while (self.totals.waiting_bytes > MAX_WAITING_BYTES
            || self.totals.waiting > MAX_WAITING_EVENTS)
            && self.drop_waiting()
        {}
    }

    /// Drops the oldest event of a stream that nobody came for. Returns whether there was one.
    pub(super) fn drop_waiting(&mut self) -> bool {
        let Some(&number) = self.waiting.first() else {
            return false;
        };
        self.change(number, Stream::drop_first);
        self.n_dropped += 1;
        if self.n_dropped.is_power_of_two() {
            let n_dropped = self.n_dropped;
            tracing::warn!(
                n_dropped,
                "messages that the client never came for are dropped"
            );
        }
        self.settle(number);
        true
    }

    fn remove(&mut self, number: u64) {
        if let Some(stream) = self.by_number.remove(&number) {
            self.totals.subtract(Totals::of(&stream));
            self.waiting.remove(&number);
            for id in &stream.open {
                self.of_request.remove(id);
            }
            // Whoever waits here finds that the stream is gone.
            stream.changed.notify_waiters();
        }
    }
}
