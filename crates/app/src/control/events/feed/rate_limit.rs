//! The rate limit of frequent events. To describe each of them would cost a busy proxy more than its
//! calls do.

use jiff::Timestamp;
use parking_lot::Mutex;

/// Counts the frequent events of the current second.
#[derive(Debug, Default)]
pub(super) struct EventRateLimit(Mutex<SecondCounts>);

#[derive(Debug, Default)]
struct SecondCounts {
    second: i64,
    n_told: u64,
    n_skipped: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventFrequency {
    /// It occurs with each request, so that there may be thousands in a second.
    EachRequest,
    /// It occurs less often.
    Rare,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventDecision {
    /// The event is sent.
    Go {
        /// The number of skipped events since the last report.
        n_skipped: u64,
    },
    /// The event is only counted.
    Skip,
}

impl EventRateLimit {
    /// The most frequent events in a second.
    pub(super) const MAX_PER_SECOND: u64 = 250;

    /// Decides about an event. The number of skipped events is reported once, with the first event
    /// of a later second.
    pub(super) fn step(&self, at: Timestamp, frequency: EventFrequency) -> EventDecision {
        let mut counted = self.0.lock();
        let second = at.as_second();
        let mut n_skipped = 0;
        if counted.second != second {
            n_skipped = counted.n_skipped;
            *counted = SecondCounts {
                second,
                ..SecondCounts::default()
            };
        }
        if frequency == EventFrequency::EachRequest {
            if counted.n_told >= Self::MAX_PER_SECOND {
                counted.n_skipped += 1;
                return EventDecision::Skip;
            }
            counted.n_told += 1;
        }
        EventDecision::Go { n_skipped }
    }
}
