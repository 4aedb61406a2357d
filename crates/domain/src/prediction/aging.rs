//! How what was learned loses weight with time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Exponential decay without touching what is stored: something learned later is stored with a
/// larger weight, `2^(days since the epoch / half-life)`, and all that is read is divided by the
/// weight of now.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Aging {
    half_life_days: f64,
    /// Seconds since 1970 of the time where weights are 1; `None` before any time is known.
    epoch: Option<i64>,
    /// The latest time that was seen, in seconds since the epoch.
    age: i64,
}

impl Aging {
    /// The most half-lives after which stored weights are written anew; far inside of the range of
    /// a 32-bit float.
    const MAX_HALF_LIVES: f64 = 40.0;
    const SECONDS_PER_DAY: f64 = 86_400.0;

    pub(super) fn new(half_life_days: f64) -> Self {
        Self {
            half_life_days,
            epoch: None,
            age: 0,
        }
    }

    /// Moves the clock on. Times before the latest one count as that.
    pub(super) fn advance(&mut self, at: Timestamp) {
        let epoch = *self.epoch.get_or_insert(at.as_second());
        self.age = self.age.max(at.as_second().saturating_sub(epoch));
    }

    /// Returns the weight of what is learned now.
    pub(super) fn weight(&self) -> f64 {
        self.half_lives().min(2.0 * Self::MAX_HALF_LIVES).exp2()
    }

    /// Returns what a stored weight is worth now.
    pub(super) fn scale(&self) -> f64 {
        1.0 / self.weight()
    }

    /// Returns whether stored weights are so large that they should be written anew.
    pub(super) fn is_due(&self) -> bool {
        self.half_lives() > Self::MAX_HALF_LIVES
    }

    /// Makes now the epoch. Stored weights are to be multiplied by the scale that was before.
    pub(super) fn restart(&mut self) {
        self.epoch = self.epoch.map(|epoch| epoch.saturating_add(self.age));
        self.age = 0;
    }

    pub(super) fn is_sound(&self) -> bool {
        self.half_life_days.is_finite() && self.half_life_days > 0.0 && self.age >= 0
    }

    fn half_lives(&self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "seconds of a few years are far below 2^52"
        )]
        let seconds = self.age as f64;
        seconds / Self::SECONDS_PER_DAY / self.half_life_days
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn day(day: i64) -> Timestamp {
        Timestamp::from_second(1_800_000_000 + day * 86_400).unwrap()
    }

    #[test]
    fn after_a_half_life_something_counts_half() {
        let mut aging = Aging::new(30.0);
        aging.advance(day(0));
        let stored = aging.weight();
        aging.advance(day(30));
        assert!((stored * aging.scale() - 0.5).abs() < 1e-12);
        aging.advance(day(1));
        assert!((stored * aging.scale() - 0.5).abs() < 1e-12);
        let rescaled = stored * aging.scale();
        aging.restart();
        assert!((rescaled * aging.scale() - 0.5).abs() < 1e-12);
        aging.advance(day(60));
        assert!((rescaled * aging.scale() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn without_times_nothing_ages() {
        let aging = Aging::new(30.0);
        assert!((aging.weight() - 1.0).abs() < 1e-12 && !aging.is_due());
    }
}
