use proptest::prelude::*;

use super::*;

/// Pseudo-random numbers from 0 to 1 (`SplitMix64`).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        let high = u32::try_from((mixed ^ (mixed >> 31)) >> 32).unwrap();
        f64::from(high) / f64::from(u32::MAX)
    }

    /// Returns `n` values, each 1 with this probability, else 0.
    fn coins(&mut self, n: usize, probability: f64) -> Vec<f64> {
        (0..n)
            .map(|_| f64::from(u8::from(self.next() < probability)))
            .collect()
    }
}

fn n_decided(verdicts: &[ComparisonVerdict], wanted: ComparisonVerdict) -> usize {
    verdicts
        .iter()
        .filter(|verdict| **verdict == wanted)
        .count()
}

/// One look at the end sees every verdict that was ever reached, because verdicts stay
/// (`a_verdict_is_stable_with_more_pairs`).
fn verdicts(n: usize, (arm, control): (f64, f64), n_experiments: u64) -> Vec<ComparisonVerdict> {
    (0..n_experiments)
        .map(|seed| {
            let mut numbers = Numbers(seed << 32);
            let (arm, control) = (numbers.coins(n, arm), numbers.coins(n, control));
            compare(&arm, &control, 0.05, 1).verdict
        })
        .collect()
}

#[test]
fn continuous_monitoring_keeps_the_false_positive_rate_within_alpha() {
    for share in [0.1, 0.5] {
        let all = verdicts(400, (share, share), 1_000);
        let n_wrong = 1_000 - n_decided(&all, ComparisonVerdict::Undecided);
        // 50 are allowed on average; up to three standard deviations more are chance.
        assert!(n_wrong <= 70, "{share}: {n_wrong}");
    }
}

#[test]
fn the_false_positive_rate_does_not_grow_with_more_arms() {
    let n_wrong = (0..500_u64).filter(|seed| {
        let mut numbers = Numbers(seed << 32 | 1);
        let control = numbers.coins(300, 0.4);
        let arms = [(); 4].map(|()| numbers.coins(300, 0.4));
        let mut verdicts = arms
            .iter()
            .map(|arm| compare(arm, &control, 0.05, 4).verdict);
        verdicts.any(|verdict| verdict != ComparisonVerdict::Undecided)
    });
    let n_wrong = n_wrong.count();
    assert!(n_wrong <= 40, "{n_wrong}");
}

#[test]
fn a_difference_of_ten_points_is_usually_detected() {
    let better = verdicts(2_000, (0.5, 0.4), 100);
    let n = n_decided(&better, ComparisonVerdict::Better);
    assert!(n >= 80, "{n} of 100");
    assert_eq!(n_decided(&better, ComparisonVerdict::Worse), 0);
    let worse = verdicts(2_000, (0.4, 0.5), 100);
    let n = n_decided(&worse, ComparisonVerdict::Worse);
    assert!(n >= 80, "{n} of 100");
}

#[test]
fn a_comparison_without_pairs_is_undecided() {
    let nothing = compare(&[], &[1.0], 0.05, 1);
    assert_eq!((nothing.n_pairs, nothing.difference), (0, None));
    assert_eq!(nothing.interval, Some((-1.0, 1.0)));
    assert_eq!(nothing.verdict, ComparisonVerdict::Undecided);
    assert!((nothing.e_value - 0.5).abs() < 1e-12 && (nothing.p_value - 1.0).abs() < 1e-12);
}

#[test]
fn a_reversed_difference_has_no_interval() {
    let values = |first: f64, then: f64| [vec![first; 15], vec![then; 800]].concat();
    let (arm, control) = (values(1.0, 0.0), values(0.0, 1.0));
    let changed = compare(&arm, &control, 0.05, 1);
    assert_eq!(changed.interval, None);
    assert_eq!(changed.verdict, ComparisonVerdict::Undecided);
}

#[test]
fn a_shrunk_difference_is_undecided() {
    let values = |first: f64, then: f64| [vec![first; 60], vec![then; 800]].concat();
    let (arm, control) = (values(1.0, 0.6), values(0.0, 0.4));
    let before = compare(&arm[..60], &control[..60], 0.05, 1);
    assert_eq!(before.verdict, ComparisonVerdict::Better);
    // The arm was always better, but no constant difference fits.
    let shrunk = compare(&arm, &control, 0.05, 1);
    assert_eq!(shrunk.interval, None);
    assert_eq!(shrunk.verdict, ComparisonVerdict::Undecided);
}

#[test]
fn more_arms_widen_the_interval_and_raise_the_p_value() {
    let mut numbers = Numbers(3);
    let (arm, control) = (numbers.coins(900, 0.55), numbers.coins(900, 0.4));
    let [one, four] = [1, 4].map(|n_arms| compare(&arm, &control, 0.05, n_arms));
    assert!(four.p_value > one.p_value);
    let width = |it: &Comparison| it.interval.map(|(lower, upper)| upper - lower).unwrap();
    assert!(width(&four) > width(&one));
}

proptest! {
    #[test]
    fn a_verdict_is_stable_with_more_pairs(
        seed in any::<u64>(),
        (arm, control) in (0.0..1.0_f64, 0.0..1.0_f64),
        looks in (1..200_usize, 1..200_usize),
    ) {
        let mut numbers = Numbers(seed);
        let (arm, control) = (numbers.coins(200, arm), numbers.coins(200, control));
        let (early, late) = (looks.0.min(looks.1), looks.0.max(looks.1));
        let [before, after] = [early, late].map(|n| compare(&arm[..n], &control[..n], 0.1, 1));
        prop_assert!(after.p_value <= before.p_value + 1e-12);
        if let (Some(before), Some(after)) = (before.interval, after.interval) {
            prop_assert!(after.0 >= before.0 - 1e-6 && after.1 <= before.1 + 1e-6);
        }
        // A verdict is withdrawn only if the opposite was reached, too.
        if before.verdict != after.verdict && before.verdict != ComparisonVerdict::Undecided {
            prop_assert_eq!(after.verdict, ComparisonVerdict::Undecided);
            prop_assert_eq!(after.interval, None);
        }
    }

    #[test]
    fn a_comparison_is_symmetric_and_within_its_ranges(
        pairs in proptest::collection::vec((0.0..=1.0_f64, 0.0..=1.0_f64), 0..120),
        alpha in 0.001..0.5_f64,
        n_arms in 0..5_usize,
    ) {
        let (arm, control): (Vec<f64>, Vec<f64>) = pairs.into_iter().unzip();
        let found = compare(&arm, &control, alpha, n_arms);
        let mirrored = compare(&control, &arm, alpha, n_arms);
        prop_assert!((0.0..=1.0).contains(&found.p_value) && found.e_value.is_finite());
        prop_assert!((found.p_value - mirrored.p_value).abs() < 1e-9);
        if let Some((lower, upper)) = found.interval {
            prop_assert!(-1.0 <= lower && lower <= upper && upper <= 1.0);
            let (from, to) = mirrored.interval.unwrap();
            prop_assert!((from + upper).abs() < 1e-5 && (to + lower).abs() < 1e-5);
        }
        let is_decided = found.p_value <= alpha;
        let has_changed = found.interval.is_none();
        let is_said = found.verdict != ComparisonVerdict::Undecided;
        prop_assert!(is_decided == is_said || has_changed || (found.p_value - alpha).abs() < 1e-9);
    }
}
