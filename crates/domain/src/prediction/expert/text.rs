//! How well tools fit what the client says that it is doing.

use crate::prediction::view::{View, normalise};
use crate::prediction::vocabulary::{Slot, Vocabulary};
use crate::retrieval::{Query, RankingRules, ToolIndex};

/// How much likelier the best tool is than one without any score: `e^4` times.
const SHARPNESS: f64 = 4.0;

/// Returns the tools by `exp(4 s / s_best)`; without scores an even distribution, which says
/// nothing.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let scores = view.trail.text().map_or(&[][..], |text| &text.scores);
    let best = scores.iter().map(|(_, score)| *score).fold(0.0, f64::max);
    if best <= 0.0 {
        return view.even();
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

/// Returns how well the tools of an index fit a text, for
/// [`TextEvidence::with_scores`](crate::prediction::TextEvidence::with_scores): the scores of a
/// search, of the tools that the vocabulary has.
#[must_use]
pub fn text_scores(
    index: &ToolIndex,
    query: &Query,
    rules: &RankingRules,
    vocabulary: &Vocabulary,
) -> Vec<(Slot, f64)> {
    let hits = index.rank(query, rules, None, index.tools().len());
    (hits.into_iter())
        .filter_map(|hit| {
            let slot = vocabulary.slot(index.tools()[hit.position].tool())?;
            Some((slot, hit.score))
        })
        .collect()
}
