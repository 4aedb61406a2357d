//! Reciprocal rank fusion: several rankings are combined into one.

use serde::Deserialize;

use crate::num::to_f64;

/// Weighted reciprocal rank fusion: `sum_i weight_i / (k + rank_i)`, ranks from 1 (Cormack, Clarke
/// and Büttcher, SIGIR 2009, with weights).
#[derive(Clone, Debug, PartialEq)]
pub struct RankFusion {
    /// The larger `k` is, the less the first ranks differ from later ones.
    pub k: f64,
    /// The weights of the rankings.
    pub weights: RankFusionWeights,
}

/// The weight of each ranking.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankFusionWeights {
    /// The ranking by words.
    pub words: f64,
    /// The ranking by vectors.
    pub meaning: f64,
    /// The ranking by use after similar texts.
    pub memory: f64,
    /// The ranking by use together with the best hits.
    pub companions: f64,
    /// The ranking by numbers of calls.
    pub frequency: f64,
}

impl RankFusionWeights {
    /// The same weight for all rankings.
    pub const EQUAL: Self = Self {
        words: 1.0,
        meaning: 1.0,
        memory: 1.0,
        companions: 1.0,
        frequency: 1.0,
    };
    /// A higher weight for direct actions of users than for derived data.
    pub const CURATED_FIRST: Self = Self {
        words: 1.2,
        meaning: 1.0,
        memory: 1.5,
        companions: 1.0,
        frequency: 0.8,
    };
}

/// A preset of the weights of rank fusion.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum RankFusionPreset {
    /// Equal weights.
    #[default]
    Equal,
    /// Rankings from the behavior of users count more than derived ones.
    CuratedFirst,
}

impl RankFusionPreset {
    /// Returns the weights of the preset.
    #[must_use]
    pub fn weights(self) -> RankFusionWeights {
        match self {
            Self::Equal => RankFusionWeights::EQUAL,
            Self::CuratedFirst => RankFusionWeights::CURATED_FIRST,
        }
    }
}

impl Default for RankFusion {
    fn default() -> Self {
        Self {
            k: 60.0, // The value of the paper.
            weights: RankFusionWeights::EQUAL,
        }
    }
}

impl RankFusion {
    /// Returns the share that each of these scores adds by its rank: 0 if the score is not above
    /// `floor`. Equal scores have the same, better rank.
    pub(super) fn rank_shares(&self, scores: &[f64], floor: f64, weight: f64) -> Vec<f64> {
        let mut order: Vec<usize> = (0..scores.len()).filter(|at| scores[*at] > floor).collect();
        order.sort_by(|a, b| scores[*b].total_cmp(&scores[*a]));
        let mut shares = vec![0.0; scores.len()];
        let mut rank = 0.0;
        let mut last = f64::INFINITY;
        for (place, at) in order.into_iter().enumerate() {
            if scores[at] < last {
                rank = to_f64(place + 1);
                last = scores[at];
            }
            shares[at] = weight / (self.k + rank);
        }
        shares
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn places_count_by_their_rank_and_ties_are_equal() {
        let fusion = RankFusion::default();
        let shares = fusion.rank_shares(&[0.5, 0.9, 0.5, 0.0], 0.0, 2.0);
        let expected = [2.0 / 62.0, 2.0 / 61.0, 2.0 / 62.0, 0.0];
        for (share, expected) in shares.iter().zip(expected) {
            assert!((share - expected).abs() < 1e-12, "{shares:?}");
        }
    }

    proptest! {
        #[test]
        fn a_better_score_never_has_a_smaller_share(scores in proptest::collection::vec(0.0..1.0_f64, 1..20)) {
            let shares = RankFusion::default().rank_shares(&scores, 0.0, 1.0);
            for (a, score) in scores.iter().enumerate() {
                for (b, other) in scores.iter().enumerate() {
                    prop_assert!(score <= other || shares[a] > shares[b]);
                }
            }
        }
    }
}
