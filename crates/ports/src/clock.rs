//! The wall clock, as a port, so that rules and tests never read the system time themselves.

use std::fmt;

use jiff::Timestamp;

/// Returns the current wall-clock time.
///
/// # Promises
///
/// - A clock shows the current time.
/// - Any number of threads may read it at the same time.
///
/// `contract::clock` has a clause for each.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the current time. Successive values may repeat or go backwards, as wall clocks do;
    /// durations are measured with [`std::time::Instant`].
    fn now(&self) -> Timestamp;
}
