//! Scores of tools from a predictor outside of the engine, as evidence for one prediction.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::vocabulary::ToolIx;

/// The scores that another predictor gives to tools for the next call of a session.
///
/// Scores are shares: finite, above 0, and with the sum 1. There is at least one. Each tool occurs
/// once.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Advice {
    /// Ascending by tool.
    shares: Vec<(ToolIx, f64)>,
    /// The reasons in words, for some of the tools.
    reasons: BTreeMap<ToolIx, String>,
}

impl Advice {
    /// Maximum length of a reason, in characters. Longer ones are truncated.
    pub const MAX_REASON: usize = 200;

    /// Returns the advice of these scores, which may be on any scale; `None` if none is above 0.
    /// Scores that are not finite or not above 0 are dropped. If a tool occurs more than once, its
    /// first score counts.
    #[must_use]
    pub fn new(scores: impl IntoIterator<Item = (ToolIx, f64)>) -> Option<Self> {
        let mut shares: Vec<(ToolIx, f64)> = (scores.into_iter())
            .filter(|(_, score)| score.is_finite() && *score > 0.0)
            .collect();
        shares.sort_by_key(|(tool, _)| *tool);
        shares.dedup_by_key(|(tool, _)| *tool);
        let largest = shares.iter().map(|(_, score)| *score).fold(0.0, f64::max);
        // Dividing by the largest first keeps the sum finite for all scores.
        let sum: f64 = shares.iter().map(|(_, score)| score / largest).sum();
        for (_, score) in &mut shares {
            *score = *score / largest / sum;
        }
        shares.retain(|(_, share)| *share > 0.0);
        (!shares.is_empty()).then(|| Self {
            shares,
            reasons: BTreeMap::new(),
        })
    }

    /// Adds reasons in words. Control characters are removed, and long or blank reasons truncated or
    /// dropped. If a tool occurs more than once, its last reason counts.
    #[must_use]
    pub fn with_reasons(mut self, reasons: impl IntoIterator<Item = (ToolIx, String)>) -> Self {
        let reasons = reasons.into_iter().filter_map(|(tool, reason)| {
            let reason: String = (reason.trim().chars())
                .filter(|c| !c.is_control())
                .take(Self::MAX_REASON)
                .collect();
            (!reason.is_empty()).then_some((tool, reason))
        });
        self.reasons = reasons.collect();
        self
    }

    /// Returns the tools with their shares, ascending by tool.
    #[must_use]
    pub fn shares(&self) -> &[(ToolIx, f64)] {
        &self.shares
    }

    /// Returns the reason for the score of a tool, if there is one.
    #[must_use]
    pub fn reason(&self, tool: ToolIx) -> Option<&str> {
        self.reasons.get(&tool).map(String::as_str)
    }

    /// Returns whether the advice is what [`Self::new`] could have made for a vocabulary of `n_tools`
    /// tools. Advice that was read from bytes may be anything.
    pub(super) fn is_over(&self, n_tools: usize) -> bool {
        let sum: f64 = self.shares.iter().map(|(_, share)| share).sum();
        (self.shares.iter())
            .all(|(tool, share)| tool.index() < n_tools && share.is_finite() && *share > 0.0)
            && self.shares.is_sorted_by_key(|(tool, _)| *tool)
            && (sum - 1.0).abs() < 1e-6
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const A: ToolIx = ToolIx(0);
    const B: ToolIx = ToolIx(1);

    #[test]
    fn scores_become_shares_and_invalid_ones_are_dropped() {
        let scores = [(B, 3.0), (A, 1.0), (A, 9.0), (ToolIx(2), f64::NAN)];
        let advice = Advice::new(scores).unwrap();
        assert_eq!(advice.shares(), [(A, 0.25), (B, 0.75)]);
        assert_eq!(Advice::new([(A, 0.0), (B, -1.0)]), None);
        assert_eq!(Advice::new([]), None);
    }

    #[test]
    fn reasons_are_text_without_control_characters_and_short() {
        let advice = Advice::new([(A, 1.0), (B, 1.0)]).unwrap();
        let reasons = [(A, "\u{1b}[31mred\n".into()), (B, " \t ".into())];
        let advice = advice.with_reasons(reasons);
        assert_eq!(
            (advice.reason(A), advice.reason(B)),
            (Some("[31mred"), None)
        );
        let long = Advice::new([(A, 1.0)]).unwrap();
        let long = long.with_reasons([(A, "é".repeat(300))]);
        assert_eq!(long.reason(A).unwrap().chars().count(), Advice::MAX_REASON);
    }

    proptest! {
        #[test]
        fn shares_of_any_scores_sum_to_one(
            scores in proptest::collection::vec((0_u32..8, any::<f64>()), 0..12)
        ) {
            let named = scores.iter().map(|(tool, score)| (ToolIx(*tool), *score));
            if let Some(advice) = Advice::new(named) {
                prop_assert!(advice.is_over(8));
            } else {
                prop_assert!(scores.iter().all(|(_, score)| !(score.is_finite() && *score > 0.0)));
            }
        }
    }
}
