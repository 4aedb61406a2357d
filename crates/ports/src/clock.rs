//! The time of day, so that rules and tests never read it themselves.

use std::fmt;

use jiff::Timestamp;

/// Tells the time.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Returns the present moment. Successive answers may repeat or go backwards, as wall clocks
    /// do; durations are measured with [`std::time::Instant`].
    fn now(&self) -> Timestamp;
}
