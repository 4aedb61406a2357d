//! A clock that a test moves.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::Clock;

/// Stands still until it is moved.
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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }

    /// Sets the clock, backwards too.
    pub fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
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
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
