//! Assignment of units to the arms of an experiment, by weighted rendezvous hashing.

use super::plan::ExperimentPlan;
use crate::privacy::canonical::KeyedHasher;

/// A smaller share is treated as 0, because sums of shares have rounding errors of that size.
const MIN_SHARE: f64 = 1e-9;

impl ExperimentPlan {
    /// Returns the position of the arm that a unit is assigned to; `None` for a unit outside all
    /// arms.
    ///
    /// Each arm, and the part outside all arms, draws a number from a keyed hash of experiment, arm
    /// and unit. The smallest `-ln(hash) / share` wins: weighted rendezvous hashing (Thaler and
    /// Ravishankar 1998; with weights Schindelhauer and Schomaker 2005). Each arm gets its share of
    /// all units, independently of other experiments. A new arm takes units from all others, and no
    /// unit moves between those. The order of the arms does not matter.
    #[must_use]
    pub fn arm_of(&self, unit: &str, hasher: &KeyedHasher) -> Option<usize> {
        let draw = |arm: &str, share: f64| {
            // U+001F is a safe separator: names of experiments and arms cannot contain it.
            let text = format!("experiment\u{1f}{}\u{1f}{arm}\u{1f}{unit}", self.name);
            -hasher.hash_text(&text).fraction().ln() / share
        };
        let total: f64 = self.arms.iter().map(|arm| arm.share).sum();
        let outside = 1.0 - total;
        let mut first = if outside > MIN_SHARE {
            (draw("", outside), None)
        } else {
            (f64::INFINITY, None)
        };
        for (at, arm) in self.arms.iter().enumerate() {
            let drawn = draw(&arm.name, arm.share);
            if drawn < first.0 {
                first = (drawn, Some(at));
            }
        }
        first.1
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::plan::tests::{arm, plan};
    use super::*;

    fn hasher() -> KeyedHasher {
        KeyedHasher::new(&[7; 32])
    }

    fn arms_of(plan: &ExperimentPlan, n: usize) -> Vec<Option<String>> {
        let name = |at: usize| plan.arms[at].name.clone();
        (0..n)
            .map(|unit| plan.arm_of(&format!("unit {unit}"), &hasher()).map(name))
            .collect()
    }

    fn n_of(arms: &[Option<String>], wanted: Option<&str>) -> usize {
        arms.iter().filter(|arm| arm.as_deref() == wanted).count()
    }

    #[test]
    fn each_arm_gets_its_share_and_the_rest_is_unassigned() {
        let plan = plan("e", vec![arm("control", 0.5), arm("a", 0.3)]);
        let arms = arms_of(&plan, 20_000);
        for (wanted, expected) in [(Some("control"), 10_000), (Some("a"), 6_000), (None, 4_000)] {
            let n = n_of(&arms, wanted);
            // Six standard deviations at most.
            assert!(n.abs_diff(expected) < 430, "{wanted:?}: {n}");
        }
    }

    #[test]
    fn shares_with_sum_one_assign_every_unit() {
        let third = 1.0 / 3.0;
        let three = vec![arm("control", third), arm("a", third), arm("b", third)];
        let arms = arms_of(&plan("e", three), 5_000);
        assert_eq!(n_of(&arms, None), 0);
    }

    #[test]
    fn a_new_arm_moves_no_units_between_other_arms() {
        let two = plan("e", vec![arm("control", 0.3), arm("c", 0.3)]);
        let b = arm("b", 0.4);
        let three = plan("e", vec![arm("control", 0.3), b, arm("c", 0.3)]);
        let before = arms_of(&two, 5_000);
        for (before, after) in before.iter().zip(arms_of(&three, 5_000)) {
            assert!(*before == after || before.is_none() || after.as_deref() == Some("b"));
        }
        // If the other arms shrink in the same proportion, only the share of the new arm moves.
        let full = plan("e", vec![arm("control", 0.5), arm("c", 0.5)]);
        let before = arms_of(&full, 5_000);
        let moved = before.iter().zip(arms_of(&three, 5_000));
        let moved: Vec<_> = moved.filter(|(before, after)| *before != after).collect();
        assert!(moved.iter().all(|(_, after)| after.as_deref() == Some("b")));
        assert!(moved.len().abs_diff(2_000) < 220, "{}", moved.len());
    }

    #[test]
    fn assignments_are_independent_between_experiments_and_keys() {
        let arms = || vec![arm("control", 0.5), arm("a", 0.5)];
        let [one, other] = ["e", "f"].map(|name| arms_of(&plan(name, arms()), 4_000));
        let n_same = one.iter().zip(&other).filter(|(a, b)| a == b).count();
        assert!(n_same.abs_diff(2_000) < 200, "{n_same}");
        let plan = plan("e", arms());
        let by = |key: u8, n: usize| plan.arm_of(&n.to_string(), &KeyedHasher::new(&[key; 32]));
        let n_same = (0..4_000).filter(|n| by(1, *n) == by(2, *n)).count();
        assert!(n_same.abs_diff(2_000) < 200, "{n_same}");
    }

    proptest! {
        #[test]
        fn the_order_of_arms_does_not_affect_the_assignment(unit in ".*", shares in (0.01..0.5, 0.01..0.5)) {
            let (a, b) = (arm("control", shares.0), arm("b", shares.1));
            let one = plan("e", vec![a.clone(), b.clone()]);
            let other = plan("e", vec![b, a]);
            let name = |plan: &ExperimentPlan| {
                plan.arm_of(&unit, &hasher()).map(|at| plan.arms[at].name.clone())
            };
            prop_assert_eq!(name(&one), name(&other));
        }
    }
}
