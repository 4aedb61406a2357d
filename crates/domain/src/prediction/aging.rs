//! Aging: the exponential decay of learned counts with time.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Exponential decay without changes to stored values. A later observation is stored with a larger
/// weight, `2^(days since the epoch / half-life)`, and every value that is read is divided by the
/// current weight.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Aging {
    half_life_days: f64,
    /// Seconds since 1970 of the time at which weights are 1; `None` before any time is known.
    epoch: Option<i64>,
    /// The latest observed time, in seconds since the epoch.
    age: i64,
}

impl Aging {
    /// Number of half-lives after which stored weights are rescaled, far below the range of a
    /// 32-bit float.
    const MAX_HALF_LIVES: f64 = 40.0;
    const SECONDS_PER_DAY: f64 = 86_400.0;

    pub(super) fn new(half_life_days: f64) -> Self {
        Self {
            half_life_days,
            epoch: None,
            age: 0,
        }
    }

    /// Advances the clock. Earlier times than the latest one are ignored.
    pub(super) fn advance(&mut self, at: Timestamp) {
        let epoch = *self.epoch.get_or_insert(at.as_second());
        self.age = self.age.max(at.as_second().saturating_sub(epoch));
    }

    /// Returns the weight with which an observation is stored now.
    pub(super) fn weight(&self) -> f64 {
        // Limited, so that stored weights do not overflow if rescaling is late.
        self.half_lives().min(2.0 * Self::MAX_HALF_LIVES).exp2()
    }

    /// Returns the factor from stored weights to current weights.
    pub(super) fn scale(&self) -> f64 {
        1.0 / self.weight()
    }

    /// Returns whether stored weights are so large that they should be rescaled.
    pub(super) fn needs_rescale(&self) -> bool {
        self.half_lives() > Self::MAX_HALF_LIVES
    }

    /// Makes the current time the epoch. The caller must multiply stored weights by the previous
    /// scale.
    pub(super) fn reset_epoch(&mut self) {
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
    fn weights_halve_after_one_half_life() {
        let mut aging = Aging::new(30.0);
        aging.advance(day(0));
        let stored = aging.weight();
        aging.advance(day(30));
        assert!((stored * aging.scale() - 0.5).abs() < 1e-12);
        aging.advance(day(1));
        assert!((stored * aging.scale() - 0.5).abs() < 1e-12);
        let rescaled = stored * aging.scale();
        aging.reset_epoch();
        assert!((rescaled * aging.scale() - 0.5).abs() < 1e-12);
        aging.advance(day(60));
        assert!((rescaled * aging.scale() - 0.25).abs() < 1e-12);
    }

    #[test]
    fn without_times_nothing_ages() {
        let aging = Aging::new(30.0);
        assert!((aging.weight() - 1.0).abs() < 1e-12 && !aging.needs_rescale());
    }
}
