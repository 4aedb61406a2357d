//! The decision whether to append tools to a list that the client already has.

use super::prices::ListPrices;
use crate::num::to_f64;

/// A tool that could be appended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct AppendCandidate {
    /// Probability that it is called next.
    pub probability: f64,
    /// Number of tokens of its definition.
    pub tokens: u64,
    /// Whether the client already knows it from the answer to a search. Listing it then saves no
    /// search.
    pub is_known: bool,
}

/// Returns whether appending tools saves more than it costs. Cost: the list and the conversation
/// after it are written to the prompt cache again, once, and the tools are read at every later
/// call. Savings: the searches for the tools that the session needs later. `list_tokens` is the
/// size of the list before. `n_calls` is the number of calls of the session so far; as many again
/// are expected.
#[must_use]
pub fn pays_to_append(
    prices: &ListPrices,
    list_tokens: u64,
    n_calls: u64,
    additions: &[AppendCandidate],
) -> bool {
    let model = &prices.model;
    let added: f64 = additions.iter().map(|tool| to_f64(tool.tokens)).sum();
    let n_left = to_f64(n_calls.clamp(1, 1_000));
    let rewritten = model.context_tokens + to_f64(list_tokens);
    let price = (model.cache_write - model.cached_read).max(0.0) * rewritten
        + model.cache_write * added
        + model.cached_read * n_left * added;
    let saved: f64 = (additions.iter())
        .map(|tool| {
            let tokens = to_f64(tool.tokens);
            let is_needed = (tool.probability * n_left.min(prices.shape.n_tools)).clamp(0.0, 1.0);
            let search = if tool.is_known {
                0.0
            } else {
                prices.search(to_f64(list_tokens), tokens)
            };
            is_needed * search
        })
        .sum();
    // False for NaN: unknown prices justify no change.
    saved > price
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::selection::economics::CostModel;

    const LIKELY: AppendCandidate = AppendCandidate {
        probability: 0.3,
        tokens: 200,
        is_known: false,
    };

    #[test]
    fn a_prompt_cache_is_not_broken_for_one_search() {
        let prices = ListPrices::default();
        assert!(!pays_to_append(&prices, 4_000, 10, &[LIKELY]));
        assert!(!pays_to_append(&prices, 4_000, 10, &[]));
        // Many likely tools together save more than the cost of rewriting.
        assert!(pays_to_append(&prices, 4_000, 10, &[LIKELY; 8]));
    }

    #[test]
    fn without_a_prompt_cache_a_likely_tool_is_added() {
        let prices = ListPrices {
            model: CostModel {
                cached_read: 1.0,
                cache_write: 1.0,
                ..CostModel::default()
            },
            ..ListPrices::default()
        };
        assert!(pays_to_append(&prices, 4_000, 10, &[LIKELY]));
        let known = AppendCandidate {
            is_known: true,
            ..LIKELY
        };
        assert!(!pays_to_append(&prices, 4_000, 10, &[known]));
        let unlikely = AppendCandidate {
            probability: f64::NAN,
            ..LIKELY
        };
        assert!(!pays_to_append(&prices, 4_000, 10, &[unlikely]));
    }
}
