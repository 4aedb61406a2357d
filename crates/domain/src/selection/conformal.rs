//! Adaptive conformal inference: a threshold on predicted probabilities that reaches a target
//! coverage, however good or bad the predictions are.
//!
//! A list shows every tool whose score, `-ln p`, is at most the threshold. The threshold adapts
//! after each call: a miss raises it by `step * coverage`, a hit lowers it by
//! `step * (1 - coverage)` (Gibbs and Candès 2021, "Adaptive conformal inference under distribution
//! shift", arXiv 2106.00170, equation 2, on the threshold itself instead of on its level). In the
//! long run the two are in balance only if the target share of calls is covered. The step shrinks
//! with the number of calls, down to a floor. So the threshold settles and still follows changing
//! habits.

use crate::num::to_f64;

/// The step at the first call, in nats.
const FIRST_STEP: f64 = 3.0;
/// The exponent by which the step shrinks.
const DECAY: f64 = 0.6;
/// The smallest step, in nats.
const LAST_STEP: f64 = 0.1;
/// The floor of probabilities, which keeps scores finite: at most 18.4 nats.
const LEAST_PROBABILITY: f64 = 1e-8;
/// The first threshold, as a multiple of the score of a tool when all tools are equally likely.
const FIRST_THRESHOLD: f64 = 1.3;

/// A threshold that adapts to a target coverage.
#[derive(Clone, Debug, PartialEq)]
pub struct ConformalThreshold {
    coverage: f64,
    threshold: f64,
    n_calls: u64,
}

/// The error for a coverage target out of range.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("a coverage target must be above 0 and below 1, not {0}")]
pub struct CoverageError(pub f64);

impl ConformalThreshold {
    /// Returns the threshold before any call, for `n_candidates` candidates. `coverage` is the
    /// target share of covered calls, above 0 and below 1.
    ///
    /// # Errors
    ///
    /// Returns [`CoverageError`] for any other coverage.
    pub fn new(coverage: f64, n_candidates: usize) -> Result<Self, CoverageError> {
        if !(coverage > 0.0 && coverage < 1.0) {
            return Err(CoverageError(coverage));
        }
        let n = to_f64(n_candidates.max(1));
        Ok(Self {
            coverage,
            threshold: FIRST_THRESHOLD * n.ln(),
            n_calls: 0,
        })
    }

    /// Returns the coverage target.
    #[must_use]
    pub fn coverage(&self) -> f64 {
        self.coverage
    }

    /// Returns the highest admitted score, in nats. It stays within one step of the range of
    /// scores.
    #[must_use]
    pub fn threshold(&self) -> f64 {
        self.threshold
    }

    /// Returns whether a candidate with this probability belongs to the set. NaN counts as
    /// impossible.
    #[must_use]
    pub fn admits(&self, probability: f64) -> bool {
        nonconformity_score(probability) <= self.threshold
    }

    /// Adapts the threshold after a call. `missed` says that the called tool was not in the set.
    pub fn learn(&mut self, missed: bool) {
        self.n_calls = self.n_calls.saturating_add(1);
        let towards = if missed {
            self.coverage
        } else {
            self.coverage - 1.0
        };
        self.threshold += self.step() * towards;
    }

    /// Returns the step of the newest learned call, in nats.
    fn step(&self) -> f64 {
        let n = to_f64(self.n_calls.max(1));
        LAST_STEP.max(FIRST_STEP * n.powf(-DECAY))
    }
}

/// Returns the score of a probability, in nats.
fn nonconformity_score(probability: f64) -> f64 {
    // `max` replaces NaN by the floor.
    -probability.max(LEAST_PROBABILITY).ln()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_miss_raises_the_threshold_and_a_hit_lowers_it() {
        let mut threshold = ConformalThreshold::new(0.9, 10).unwrap();
        let first = 1.3 * 10.0_f64.ln();
        assert!((threshold.threshold() - first).abs() < 1e-12);
        threshold.learn(true);
        assert!((threshold.threshold() - (first + 3.0 * 0.9)).abs() < 1e-12);
        threshold.learn(false);
        let second = 3.0 * 2.0_f64.powf(-0.6);
        let expected = first + 3.0 * 0.9 - second * 0.1;
        assert!((threshold.threshold() - expected).abs() < 1e-12);
    }

    #[test]
    fn probabilities_above_the_threshold_are_admitted() {
        let threshold = ConformalThreshold::new(0.9, 10).unwrap();
        assert!(threshold.admits(1.0) && threshold.admits(0.051));
        assert!(!threshold.admits(0.05) && !threshold.admits(0.0));
        assert!(!threshold.admits(f64::NAN) && !threshold.admits(-1.0));
    }

    #[test]
    fn a_coverage_outside_zero_to_one_is_refused() {
        for wrong in [0.0, 1.0, -0.5, f64::NAN, f64::INFINITY] {
            assert!(ConformalThreshold::new(wrong, 3).is_err(), "{wrong}");
        }
        assert!(ConformalThreshold::new(0.5, 0).is_ok());
    }

    /// The bound of Angelopoulos, Barber and Bates 2024 (arXiv 2402.01139, theorem 1) for steps
    /// that do not grow: the range of the scores plus one step, divided by the last step and by the
    /// number of calls.
    fn bound(n: usize) -> f64 {
        let n = to_f64(n);
        let last = LAST_STEP.max(FIRST_STEP * n.powf(-DECAY));
        let range = -LEAST_PROBABILITY.ln();
        (range + FIRST_STEP) / (last * n)
    }

    proptest! {
        #[test]
        fn the_coverage_is_reached_on_any_stream_within_the_bound(
            coverage in 0.5..0.99_f64,
            probabilities in proptest::collection::vec(0.0..1.0_f64, 500..3_000),
        ) {
            let mut threshold = ConformalThreshold::new(coverage, 100).unwrap();
            let mut n_missed = 0.0;
            let mut n_calls = 0.0;
            for probability in &probabilities {
                let missed = !threshold.admits(probability.powi(4));
                n_missed += f64::from(u8::from(missed));
                n_calls += 1.0;
                threshold.learn(missed);
                prop_assert!(threshold.threshold() > -FIRST_STEP);
                prop_assert!(threshold.threshold() < -LEAST_PROBABILITY.ln() + FIRST_STEP);
            }
            let off: f64 = 1.0 - n_missed / n_calls - coverage;
            prop_assert!(off.abs() <= bound(probabilities.len()), "{off}");
        }
    }
}
