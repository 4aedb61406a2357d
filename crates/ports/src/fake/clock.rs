//! A manual clock for tests.

use std::time::Duration;

use jiff::Timestamp;
use parking_lot::Mutex;

use crate::clock::Clock;

/// A clock that stands still until a test advances it.
#[derive(Debug)]
pub struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    /// Returns a clock that shows `now`.
    pub fn at(now: Timestamp) -> Self {
        Self(Mutex::new(now))
    }

    /// Moves the clock forward.
    ///
    /// # Panics
    ///
    /// Panics at the end of time, which is in the year 9999.
    pub fn advance(&self, by: Duration) {
        *self.0.lock() += by;
    }

    /// Sets the clock, backwards too.
    pub fn set(&self, now: Timestamp) {
        *self.0.lock() = now;
    }
}

impl Default for ManualClock {
    /// Returns a clock that shows the second 1,800,000,000 since 1970, a day in January 2027.
    fn default() -> Self {
        Self::at(Timestamp::constant(1_800_000_000, 0))
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock()
    }
}
