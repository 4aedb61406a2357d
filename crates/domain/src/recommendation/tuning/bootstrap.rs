//! Bootstrap test of whether one order of tools is better than another, beyond chance.

use std::collections::BTreeMap;

use super::examples::{Example, ExampleGroup};
use super::position_bias::PositionBias;
use crate::num::to_f64;
use crate::recommendation::factors::FactorWeights;

const N_RESAMPLES: usize = 2_000;
/// The share of the resamples outside of each end of the interval. The lower end is the bound of a
/// one-sided interval of 99 %.
const TAIL: f64 = 0.01;

/// The gain of one order over another in mean reciprocal rank. Each mean is from -1 to 1: tools
/// that turned out well count positively, tools that turned out badly count negatively.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Gain {
    /// The mean before.
    pub before: f64,
    /// The mean after.
    pub after: f64,
    /// The lower end of the interval of the difference: 99 of 100 resamples are larger.
    pub low: f64,
    /// The upper end of the interval of the difference: 99 of 100 resamples are smaller.
    pub high: f64,
}

impl Gain {
    /// Returns the difference of the means.
    #[must_use]
    pub fn difference(&self) -> f64 {
        self.after - self.before
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct GainSums {
    before: f64,
    after: f64,
    weight: f64,
}

impl GainSums {
    fn of<'a>(parts: impl IntoIterator<Item = &'a Self>) -> Self {
        let mut sums = Self::default();
        parts.into_iter().for_each(|part| sums.add(part));
        sums
    }

    fn add(&mut self, other: &Self) {
        self.before += other.before;
        self.after += other.after;
        self.weight += other.weight;
    }

    fn difference(&self) -> f64 {
        (self.after - self.before) / self.weight
    }
}

/// Returns the gain of a candidate over the present weights. The interval comes from a paired
/// bootstrap over groups of examples (Efron and Tibshirani 1993, percentile method).
pub(super) fn gain(
    examples: &[Example],
    bias: PositionBias,
    present: &FactorWeights,
    candidate: &FactorWeights,
    seed: u64,
) -> Gain {
    // Examples of a group depend on each other, so whole groups are resampled.
    let mut groups: BTreeMap<ExampleGroup, GainSums> = BTreeMap::new();
    for example in examples {
        let sums = groups.entry(example.group).or_default();
        let (before, after) = (ranks(example, present), ranks(example, candidate));
        for (place, tool) in example.tools.iter().enumerate() {
            let weight = bias.weight(place);
            sums.add(&GainSums {
                before: weight * tool.value / before[place],
                after: weight * tool.value / after[place],
                weight: weight * tool.value.abs(),
            });
        }
    }
    let groups: Vec<GainSums> = groups.into_values().collect();
    let mut chance = SplitMix64(seed);
    let mut trials: Vec<f64> = (0..N_RESAMPLES)
        .map(|_| {
            let drawn = (0..groups.len()).map(|_| &groups[chance.below(groups.len())]);
            GainSums::of(drawn).difference()
        })
        .collect();
    trials.sort_unstable_by(f64::total_cmp);
    let n_outside = super::share_of(TAIL, trials.len());
    let at = |place: usize| trials.get(place).copied().unwrap_or(0.0);
    let sums = GainSums::of(&groups);
    Gain {
        before: sums.before / sums.weight,
        after: sums.after / sums.weight,
        low: at(n_outside),
        high: at(trials.len().saturating_sub(n_outside + 1)),
    }
}

/// Returns the rank of each tool, from 1, in the order by the weights. Tools with equal scores keep
/// the order in which they were shown.
fn ranks(example: &Example, weights: &FactorWeights) -> Vec<f64> {
    let scores: Vec<f64> = (example.tools.iter())
        .map(|tool| weights.score(&tool.factors))
        .collect();
    let mut order: Vec<usize> = (0..scores.len()).collect();
    // The sort is stable: equal scores keep the order in which they were shown.
    order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
    let mut ranks = vec![0.0; scores.len()];
    for (rank, place) in order.into_iter().enumerate() {
        ranks[place] = to_f64(rank + 1);
    }
    ranks
}

/// Random numbers, the same on every machine (`SplitMix64`, Steele et al. 2014).
#[derive(Clone, Debug)]
pub(super) struct SplitMix64(pub(super) u64);

impl SplitMix64 {
    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// Returns a number below `n`, uniformly distributed but for one in 2^64 / n.
    fn below(&mut self, n: usize) -> usize {
        let n = u128::try_from(n).unwrap_or(u128::MAX);
        usize::try_from((u128::from(self.next()) * n) >> 64).unwrap_or(0)
    }
}
