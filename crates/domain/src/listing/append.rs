//! Whether to add tools to a list that the client has already.

use super::choice::to_f64;
use super::prices::ListPrices;

/// A tool that could be added.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Addition {
    /// The probability that it is called next.
    pub probability: f64,
    /// How many tokens its definition has.
    pub tokens: u64,
    /// The client knows it already, from the answer to a search: listed, it saves no search.
    pub is_known: bool,
}

/// Returns whether adding tools saves more than it costs: list and conversation behind it are
/// written to the prompt cache anew, once, and the tools are read at every call from then on;
/// saved are the searches for those that the session needs later. `list_tokens` are those of the
/// list before, `n_calls` those of the session so far: as many are expected again.
#[must_use]
pub fn pays_to_append(
    prices: &ListPrices,
    list_tokens: u64,
    n_calls: u64,
    additions: &[Addition],
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
    // What is no number pays for nothing.
    saved > price
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::economics::CostModel;

    const LIKELY: Addition = Addition {
        probability: 0.3,
        tokens: 200,
        is_known: false,
    };

    #[test]
    fn a_prompt_cache_is_not_broken_for_one_search() {
        let prices = ListPrices::default();
        assert!(!pays_to_append(&prices, 4_000, 10, &[LIKELY]));
        assert!(!pays_to_append(&prices, 4_000, 10, &[]));
        // Many likely tools at once save more than the rewriting costs.
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
        let known = Addition {
            is_known: true,
            ..LIKELY
        };
        assert!(!pays_to_append(&prices, 4_000, 10, &[known]));
        let unlikely = Addition {
            probability: f64::NAN,
            ..LIKELY
        };
        assert!(!pays_to_append(&prices, 4_000, 10, &[unlikely]));
    }
}
