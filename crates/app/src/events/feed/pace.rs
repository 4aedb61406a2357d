//! How many of the frequent events are told in a second. To describe each of them would cost a busy
//! proxy more than its calls do, and nobody reads so many.

use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;

/// Counts the frequent events of the running second.
#[derive(Debug, Default)]
pub(super) struct Pace(Mutex<Counted>);

#[derive(Debug, Default)]
struct Counted {
    second: i64,
    n_told: u64,
    n_skipped: u64,
}

/// What becomes of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// It is told.
    Go {
        /// How many others were skipped since that was said last.
        n_skipped: u64,
    },
    /// It is counted only.
    Skip,
}

impl Pace {
    /// How many frequent events are told in a second.
    pub(super) const MAX_PER_SECOND: u64 = 250;

    /// Says what becomes of an event at a moment. What was skipped is said in a later second, with
    /// the first event of it, so that it is not said for each event on its own.
    pub(super) fn step(&self, at: Timestamp, is_frequent: bool) -> Step {
        let mut counted = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let second = at.as_second();
        let mut n_skipped = 0;
        if counted.second != second {
            n_skipped = counted.n_skipped;
            *counted = Counted {
                second,
                ..Counted::default()
            };
        }
        if is_frequent {
            if counted.n_told >= Self::MAX_PER_SECOND {
                counted.n_skipped += 1;
                return Step::Skip;
            }
            counted.n_told += 1;
        }
        Step::Go { n_skipped }
    }
}
