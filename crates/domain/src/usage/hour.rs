//! Whole hours, the time unit of counts of calls.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

const MICROS: i64 = 3_600_000_000;

/// An hour of UTC, counted from 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Hour(pub i64);

impl Hour {
    /// Returns the hour of a moment.
    #[must_use]
    pub fn of(moment: Timestamp) -> Self {
        Self(moment.as_microsecond().div_euclid(MICROS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_begins_with_its_first_microsecond() {
        let at = |micros| Hour::of(Timestamp::from_microsecond(micros).unwrap());
        assert_eq!(
            [at(-1), at(0), at(MICROS - 1), at(MICROS)],
            [-1, 0, 0, 1].map(Hour)
        );
    }
}
