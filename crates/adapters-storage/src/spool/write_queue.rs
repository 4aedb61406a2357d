//! Group write: lines that several callers add at the same time are written with one system call.

use std::future::poll_fn;
use std::io;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use parking_lot::Mutex;
use riglm_ports::analytics::StoreError;

use super::journal::SharedState;
use super::writer::SegmentWriter;
use crate::error::operation_error;

/// The number of writes in a row without company after which callers stop waiting for others.
const ALONE_AFTER: u32 = 16;
/// The writes after which a caller that stopped waiting for others waits once more.
const RETRY_AFTER: u32 = 64;

/// The result of writing a group of lines.
pub(super) type GroupOutcome = Result<(), WriteFailure>;

/// A group of lines that was not written completely.
#[derive(Debug)]
pub(super) struct WriteFailure {
    /// The bytes of the group that were written.
    pub(super) n_written: u64,
    pub(super) cause: WriteError,
}

/// The reason why lines were not written.
#[derive(Debug)]
pub(super) enum WriteError {
    /// They exceed the limit of waiting bytes.
    Full {
        bytes: u64,
    },
    Failed(Arc<io::Error>),
}

/// The lines that will be written next.
#[derive(Debug, Default)]
pub(super) struct WriteQueue {
    group: Mutex<LineGroup>,
    /// The groups of one caller in a row.
    n_alone: AtomicU32,
}

/// Lines of several callers that are written together.
#[derive(Debug, Default)]
struct LineGroup {
    lines: Vec<u8>,
    n_callers: u32,
    outcome: Arc<OnceLock<GroupOutcome>>,
}

impl WriteQueue {
    /// Lets the other tasks that are ready run first, so that their lines join the group. Costs
    /// nothing but the turn, and is left out while there are no others.
    pub(super) async fn let_others_add(&self) {
        let n_alone = self.n_alone.load(Ordering::Relaxed);
        if n_alone >= ALONE_AFTER && !n_alone.is_multiple_of(RETRY_AFTER) {
            return;
        }
        let mut has_waited = false;
        poll_fn(|context| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Returns whether the last group had the lines of one caller.
    #[cfg(test)]
    pub(super) fn is_alone(&self) -> bool {
        self.n_alone.load(Ordering::Relaxed) > 0
    }

    fn take(&self) -> LineGroup {
        let group = std::mem::take(&mut *self.group.lock());
        if group.n_callers > 1 {
            self.n_alone.store(0, Ordering::Relaxed);
        } else {
            self.n_alone.fetch_add(1, Ordering::Relaxed);
        }
        group
    }
}

/// The lines of one caller in a group. They are written at the latest when this is dropped; a
/// failure is then counted and reported here, because the caller is gone.
#[derive(Debug)]
pub(super) struct QueuedLine<'a> {
    shared: &'a SharedState,
    n_lines: u64,
    /// Whether the caller has taken the outcome.
    is_taken: bool,
    outcome: Arc<OnceLock<GroupOutcome>>,
    /// The position of the end of the lines in the group.
    end: u64,
}

impl<'a> QueuedLine<'a> {
    /// Adds `n_lines` lines, which end in line breaks, to the next group.
    pub(super) fn add(shared: &'a SharedState, lines: Vec<u8>, n_lines: usize) -> Self {
        let mut group = shared.queue().group.lock();
        group.n_callers += 1;
        if group.lines.is_empty() {
            group.lines = lines;
        } else {
            group.lines.extend_from_slice(&lines);
        }
        Self {
            shared,
            n_lines: n_lines as u64,
            is_taken: false,
            outcome: Arc::clone(&group.outcome),
            end: group.lines.len() as u64,
        }
    }

    /// Writes the group, unless another caller has written it, and returns whether these lines are
    /// written.
    pub(super) fn write(mut self) -> Result<(), StoreError> {
        self.is_taken = true;
        self.result()
    }

    fn result(&self) -> Result<(), StoreError> {
        if self.outcome.get().is_none() {
            let mut writer = self.shared.writer.lock();
            // A group is taken and written under the lock of the writer. So this one is either
            // written, or still the next one.
            if self.outcome.get().is_none() {
                write_next(self.shared, &mut writer);
            }
        }
        match self.outcome.wait() {
            Err(failure) if failure.n_written < self.end => Err(match &failure.cause {
                WriteError::Full { bytes } => StoreError::Full { bytes: *bytes },
                WriteError::Failed(error) => {
                    operation_error("append to the journal")(Arc::clone(error))
                }
            }),
            Ok(()) | Err(_) => Ok(()),
        }
    }
}

impl Drop for QueuedLine<'_> {
    fn drop(&mut self) {
        if self.is_taken {
            return;
        }
        if let Err(error) = self.result() {
            self.shared.count_dropped(self.n_lines);
            self.shared.condition.set_append_failure(&error);
        }
        self.shared.wake.notify_one();
    }
}

/// Writes the next group, under the lock of the writer.
pub(super) fn write_next(shared: &SharedState, writer: &mut SegmentWriter) {
    let group = shared.queue().take();
    if group.n_callers == 0 {
        return;
    }
    let outcome = shared.write_lines(writer, &group.lines);
    // An error means that it is set, which only this function does.
    let _ = group.outcome.set(outcome);
}
