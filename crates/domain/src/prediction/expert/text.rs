//! The expert for the fit of tools to the text about the current task.

use crate::prediction::view::{View, normalise};
use crate::prediction::vocabulary::{ToolIx, Vocabulary};
use crate::retrieval::{Query, RankingRules, ToolIndex};

/// Logarithm of the ratio between the best tool and a tool without score: `e^4` times.
const SHARPNESS: f64 = 4.0;

/// Returns the tools by `exp(4 s / s_best)`. Without scores, returns the uniform distribution,
/// which is no evidence.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let scores = view.history.text().map_or(&[][..], |text| &text.scores);
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    if best <= 0.0 {
        return view.uniform();
    }
    let mut p = vec![1.0; view.n()];
    for (slot, score) in scores {
        if let Some(value) = p.get_mut(slot.index()) {
            *value = (SHARPNESS * score / best).exp();
        }
    }
    normalise(&mut p);
    p
}

/// Returns the scores of a search for the tools of an index that the vocabulary has, for
/// [`TextEvidence::with_scores`](crate::prediction::TextEvidence::with_scores).
#[must_use]
pub fn text_scores(
    index: &ToolIndex,
    query: &Query,
    rules: &RankingRules,
    vocabulary: &Vocabulary,
) -> Vec<(ToolIx, f64)> {
    let hits = index.rank(query, rules, None, index.tools().len());
    (hits.into_iter())
        .filter_map(|hit| {
            let slot = vocabulary.slot(index.tools()[hit.position].tool())?;
            Some((slot, hit.score))
        })
        .collect()
}
