//! Bounds on the changes of weights in one run.

use crate::recommendation::factors::{Factor, FactorWeights};

/// The number of units in a weight of 1: tuned weights have four decimals, few enough that rounding
/// hides the different results of machines.
const UNITS: f64 = 10_000.0;
/// The tolerance for the error of a product of a decimal number and [`UNITS`].
const SLACK: f64 = 1e-6;

/// The bounds of each weight in one run, in the order of [`Factor::ALL`]. Valid weights within them
/// exist: the lower ends sum to 1 at most, and the upper ends sum to 1 at least.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct WeightBounds {
    low: [f64; Factor::N],
    high: [f64; Factor::N],
}

impl WeightBounds {
    /// The maximum change of a weight in one run.
    pub const STEP: f64 = 0.05;
    /// The minimum of a weight.
    pub const FLOOR: f64 = 0.02;
    /// The maximum of a weight.
    pub const CEILING: f64 = 0.60;

    /// Returns the bounds around weights: [`Self::STEP`] to both sides, between [`Self::FLOOR`] and
    /// [`Self::CEILING`]. Weights outside of these limits stay there or move towards them.
    #[must_use]
    pub fn around(present: &FactorWeights) -> Self {
        let general = Self {
            low: [Self::FLOOR; Factor::N],
            high: [Self::CEILING; Factor::N],
        };
        let present = *present.values();
        let inside = general.project(present);
        // The point one step along the line to the nearest weights inside. All points of the line
        // sum to 1.
        let farthest = (present.iter().zip(inside))
            .map(|(weight, inside)| (inside - weight).abs())
            .fold(Self::STEP, f64::max);
        let part = Self::STEP / farthest;
        let (mut low, mut high) = ([0.0; Factor::N], [0.0; Factor::N]);
        for (at, (weight, inside)) in present.into_iter().zip(inside).enumerate() {
            let reached = weight + part * (inside - weight);
            let (least, most) = (weight - Self::STEP, weight + Self::STEP);
            low[at] = Self::FLOOR.clamp(least, most).min(reached);
            high[at] = Self::CEILING.clamp(least, most).max(reached);
            low[at] = low[at].max(least);
            high[at] = high[at].min(most);
        }
        Self { low, high }
    }

    /// Returns the nearest weights within the bounds, by the sum of squares.
    ///
    /// This is a projection onto the capped simplex (Wang and Lu 2015, arXiv 1503.01002), with
    /// separate bounds for each weight: all weights are moved by the same amount and then clamped
    /// to their bounds. The amount is searched among the points at which a weight meets a bound;
    /// between these points the sum is linear (Kiwiel 2008, Breakpoint searching algorithms for the
    /// continuous quadratic knapsack problem).
    pub(super) fn project(&self, weights: [f64; Factor::N]) -> [f64; Factor::N] {
        let moved = |by: f64| {
            let mut moved = weights;
            for (at, weight) in moved.iter_mut().enumerate() {
                *weight = (*weight - by).max(self.low[at]).min(self.high[at]);
            }
            moved
        };
        let sum = |by: f64| moved(by).iter().sum::<f64>();
        let mut points: Vec<f64> = (weights.iter().zip(self.low.iter().zip(self.high)))
            .flat_map(|(weight, (low, high))| [weight - low, weight - high])
            .collect();
        points.sort_unstable_by(f64::total_cmp);
        // The points go from all weights at their upper ends to all at their lower ends.
        let next = points.partition_point(|by| sum(*by) > 1.0);
        let (Some(after), Some(before)) = (points.get(next), points[..next].last()) else {
            let end = if next == 0 {
                points.first()
            } else {
                points.last()
            };
            return moved(end.copied().unwrap_or(0.0));
        };
        let (above, below) = (sum(*before), sum(*after));
        moved(before + (above - 1.0) / (above - below) * (after - before))
    }

    /// Returns weights within the bounds, rounded to four decimals that sum to 1. The largest
    /// remainders are rounded up.
    #[must_use]
    pub fn round(&self, weights: &FactorWeights) -> FactorWeights {
        self.round_near(*weights.values(), weights)
    }

    /// Returns the weights that are nearest to these numbers, rounded as in [`Self::round`];
    /// `present` if rounding leaves no valid weights.
    pub(super) fn round_near(
        &self,
        weights: [f64; Factor::N],
        present: &FactorWeights,
    ) -> FactorWeights {
        let exact = self.project(weights).map(|weight| weight * UNITS + SLACK);
        let mut units = exact.map(f64::floor);
        let mut order: Vec<usize> = (0..Factor::N).collect();
        let remainder = |at: usize| exact[at] - units[at];
        order.sort_by(|a, b| remainder(*b).total_cmp(&remainder(*a)));
        let mut n_left = UNITS - units.iter().sum::<f64>();
        for at in order {
            if n_left < 0.5 {
                break;
            }
            units[at] += 1.0;
            n_left -= 1.0;
        }
        FactorWeights::new(units.map(|units| units / UNITS)).unwrap_or(*present)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// The maximum change by rounding to four decimals.
    const UNIT: f64 = 1.0 / UNITS + 1e-9;

    fn weights_of(parts: [f64; Factor::N]) -> FactorWeights {
        let sum: f64 = parts.iter().sum();
        FactorWeights::new(parts.map(|part| part / sum)).unwrap()
    }

    fn any_weights() -> impl Strategy<Value = FactorWeights> {
        let part = prop_oneof![Just(0.0), 0.0..1.0_f64, 5.0..50.0_f64];
        let parts = proptest::array::uniform5(part);
        parts
            .prop_filter("a sum", |parts| parts.iter().sum::<f64>() > 1e-3)
            .prop_map(weights_of)
    }

    fn is_inside(weights: &FactorWeights) -> bool {
        let bounds = WeightBounds::FLOOR - 1e-9..=WeightBounds::CEILING + 1e-9;
        weights
            .values()
            .iter()
            .all(|weight| bounds.contains(weight))
    }

    fn distance(a: &[f64; Factor::N], b: &[f64; Factor::N]) -> f64 {
        let squares = a.iter().zip(b).map(|(a, b)| (a - b) * (a - b));
        squares.sum::<f64>().sqrt()
    }

    #[test]
    fn extreme_weights_return_within_bounds_step_by_step() {
        let mut weights = FactorWeights::new([1.0, 0.0, 0.0, 0.0, 0.0]).unwrap();
        for _ in 0..20 {
            let bounds = WeightBounds::around(&weights);
            weights = bounds.round(&weights);
        }
        assert!(is_inside(&weights), "{weights:?}");
    }

    #[test]
    fn the_default_weights_have_room_to_both_sides() {
        let bounds = WeightBounds::around(&FactorWeights::default());
        for (low, high) in bounds.low.iter().zip(bounds.high) {
            assert!((high - low - 0.1).abs() < 1e-9, "{low} to {high}");
        }
    }

    proptest! {
        #[test]
        fn the_nearest_weights_are_within_the_bounds_and_sum_to_one(
            present in any_weights(),
            wanted in proptest::array::uniform5(-3.0..3.0_f64),
        ) {
            let bounds = WeightBounds::around(&present);
            let nearest = bounds.project(wanted);
            prop_assert!((nearest.iter().sum::<f64>() - 1.0).abs() < 1e-9, "{nearest:?}");
            for (weight, (low, high)) in nearest.iter().zip(bounds.low.iter().zip(bounds.high)) {
                prop_assert!((low - 1e-12..=high + 1e-12).contains(weight));
            }
        }

        #[test]
        fn no_other_weights_within_the_bounds_are_nearer(
            present in any_weights(),
            wanted in proptest::array::uniform5(-0.5..1.0_f64),
            other in proptest::array::uniform5(-0.5..1.0_f64),
        ) {
            let bounds = WeightBounds::around(&present);
            let nearest = bounds.project(wanted);
            let other = bounds.project(other);
            prop_assert!(distance(&nearest, &wanted) <= distance(&other, &wanted) + 1e-9);
        }

        #[test]
        fn a_run_moves_no_weight_further_than_a_step(
            present in any_weights(),
            wanted in proptest::array::uniform5(-3.0..3.0_f64),
        ) {
            let bounds = WeightBounds::around(&present);
            let moved = bounds.round_near(wanted, &present);
            for (before, after) in present.values().iter().zip(moved.values()) {
                prop_assert!((before - after).abs() <= WeightBounds::STEP + UNIT);
            }
        }

        #[test]
        fn bounded_weights_stay_within_bounds(
            wanted in proptest::array::uniform5(-3.0..3.0_f64),
            next in proptest::array::uniform5(-3.0..3.0_f64),
        ) {
            let default = FactorWeights::default();
            let first = WeightBounds::around(&default).round_near(wanted, &default);
            prop_assert!(is_inside(&first), "{first:?}");
            let second = WeightBounds::around(&first).round_near(next, &first);
            prop_assert!(is_inside(&second), "{second:?}");
        }

        #[test]
        fn rounded_weights_are_rounded_to_themselves(
            wanted in proptest::array::uniform5(-3.0..3.0_f64),
        ) {
            let default = FactorWeights::default();
            let bounds = WeightBounds::around(&default);
            let rounded = bounds.round_near(wanted, &default);
            prop_assert_eq!(bounds.round(&rounded), rounded);
        }
    }
}
