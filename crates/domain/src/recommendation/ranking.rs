//! Ranking of candidates for an intent.

use super::analysis::IntentAnalysis;
use super::candidates::Candidate;
use super::factors::{FactorWeights, Factors};

/// The factor by which relevance is multiplied if a long text negates the actions, domains or terms
/// of the tool.
const NEGATED_RELEVANCE: f64 = 0.5;

/// A tool with its factors and its score.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RankedTool<T> {
    /// The tool.
    pub tool: T,
    /// Its factors.
    pub factors: Factors,
    /// The weighted sum of the factors, of 0 to 1.
    pub score: f64,
}

/// Returns the relevance for each score, of 0 to 1: the share of the largest score. The scores may
/// have any scale. A score of 0 or less means no fit and has relevance 0. The order is the order of
/// the scores.
#[must_use]
pub fn relevance_scores(scores: &[f64]) -> Vec<f64> {
    let largest = scores.iter().copied().fold(0.0, f64::max);
    let share = |score: &f64| {
        if largest > 0.0 {
            (score / largest).clamp(0.0, 1.0)
        } else {
            0.0
        }
    };
    scores.iter().map(share).collect()
}

/// Returns the candidates for an intent, best first.
///
/// `scores` has the fit of each tool, by its position, on any scale. `factors` returns the factors
/// of a candidate for its relevance among the candidates. Negated candidates come last; if the
/// intent is a long text, their relevance is halved instead.
#[must_use]
pub fn rank_candidates(
    intent: &IntentAnalysis,
    candidates: Vec<Candidate>,
    scores: &[f64],
    weights: &FactorWeights,
    mut factors: impl FnMut(&Candidate, f64) -> Factors,
) -> Vec<RankedTool<Candidate>> {
    let score = |one: &Candidate| scores.get(one.position).copied().unwrap_or(0.0);
    let of: Vec<f64> = candidates.iter().map(score).collect();
    let with_factors = candidates.into_iter().zip(relevance_scores(&of));
    let with_factors = with_factors.map(|(candidate, relevance)| {
        let is_wanted = !candidate.signals.is_negated;
        let relevance = if is_wanted {
            relevance
        } else {
            NEGATED_RELEVANCE * relevance
        };
        let factors = factors(&candidate, relevance);
        (candidate, factors)
    });
    let mut ranked = rank_tools(with_factors, weights);
    if !intent.is_long {
        ranked.sort_by_key(|one| one.tool.signals.is_negated);
    }
    ranked
}

/// Returns the tools, best first. Tools with the same score keep their order.
#[must_use]
pub fn rank_tools<T>(
    tools: impl IntoIterator<Item = (T, Factors)>,
    weights: &FactorWeights,
) -> Vec<RankedTool<T>> {
    let scored = tools.into_iter().map(|(tool, factors)| RankedTool {
        tool,
        score: weights.score(&factors),
        factors,
    });
    let mut ranked: Vec<RankedTool<T>> = scored.collect();
    ranked.sort_by(|a, b| b.score.total_cmp(&a.score));
    ranked
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn relevance_is_the_share_of_the_best_fit() {
        assert_eq!(
            relevance_scores(&[0.5, 2.0, -1.0, 1.0]),
            [0.25, 1.0, 0.0, 0.5]
        );
        assert_eq!(relevance_scores(&[-0.5, 0.0]), [0.0, 0.0]);
        assert!(relevance_scores(&[]).is_empty());
    }

    #[test]
    fn tools_are_ranked_by_score_and_ties_keep_their_order() {
        let of = |relevance| Factors::new([relevance, 0.5, 0.5, 0.5, 0.5]);
        let tools = [("b", of(0.2)), ("a", of(0.9)), ("c", of(0.2))];
        let ranked = rank_tools(tools, &FactorWeights::default());
        let names: Vec<_> = ranked.iter().map(|one| one.tool).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert!((ranked[0].score - (0.35 * 0.9 + 0.65 * 0.5)).abs() < 1e-12);
    }

    #[test]
    fn candidates_are_ranked_by_the_scores_at_their_positions() {
        let candidate = |position| Candidate {
            position,
            ..Candidate::default()
        };
        let candidates = vec![candidate(2), candidate(0), candidate(7)];
        let ranked = rank_candidates(
            &IntentAnalysis::default(),
            candidates,
            &[0.5, 9.0, 0.25],
            &FactorWeights::default(),
            |_, relevance| Factors::new([relevance, 0.0, 0.0, 0.0, 0.0]),
        );
        let positions: Vec<_> = ranked.iter().map(|one| one.tool.position).collect();
        assert_eq!(positions, [0, 2, 7]);
        assert!((ranked[1].factors.values()[0] - 0.5).abs() < 1e-12);
    }

    #[test]
    fn negated_tools_rank_last_unless_the_text_is_long() {
        let candidate = |position, is_negated| Candidate {
            position,
            signals: crate::recommendation::CandidateSignals {
                is_negated,
                ..Default::default()
            },
        };
        let positions = |is_long| {
            let intent = IntentAnalysis {
                is_long,
                ..IntentAnalysis::default()
            };
            let candidates = vec![candidate(0, true), candidate(1, false), candidate(2, false)];
            let scores = [1.0, 0.6, 0.2];
            let factors = |_: &Candidate, relevance| Factors::new([relevance, 0.0, 0.0, 0.0, 0.0]);
            let weights = FactorWeights::default();
            let ranked = rank_candidates(&intent, candidates, &scores, &weights, factors);
            ranked
                .iter()
                .map(|one| one.tool.position)
                .collect::<Vec<_>>()
        };
        assert_eq!(positions(false), [1, 2, 0]);
        assert_eq!(positions(true), [1, 0, 2]);
    }

    proptest! {
        #[test]
        fn a_tool_better_in_every_factor_comes_first(
            values in proptest::collection::vec(proptest::array::uniform5(0.0..1.0_f64), 2..20),
        ) {
            let tools = values.iter().map(|values| (*values, Factors::new(*values)));
            let ranked = rank_tools(tools, &FactorWeights::default());
            for pair in ranked.windows(2) {
                let [first, second] = pair else { continue };
                let is_worse = first.tool.iter().zip(&second.tool).all(|(a, b)| a < b);
                prop_assert!(!is_worse);
            }
        }
    }
}
