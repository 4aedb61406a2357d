//! Prices of tools in a list, and of the searches that they save.

use crate::selection::economics::CostModel;

/// The expected activity of a session for which a list is chosen.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionShape {
    /// Number of calls.
    pub n_calls: f64,
    /// Number of distinct tools that it uses.
    pub n_tools: f64,
}

impl SessionShape {
    /// The assumed session without any knowledge.
    pub const TYPICAL: Self = Self {
        n_calls: 10.0,
        n_tools: 8.0,
    };
}

/// The prices by which lists are chosen, in tokens at the price of an uncached token.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListPrices {
    /// Assumptions about the client and its model.
    pub model: CostModel,
    /// Assumptions about its session.
    pub shape: SessionShape,
    /// Number of definitions in the answer of a search.
    pub n_inline: u32,
    /// Maximum number of tokens of such an answer, however long definitions are.
    pub answer_tokens: f64,
    /// Weight of the price of a search in the weighted cost of a list. It is above 1 because a
    /// search also costs a turn of the model, and time.
    pub search_weight: f64,
    /// Price, in the same unit, of a hidden tool that a session needs and its client does not look
    /// for: the work is done without the tool, or done again.
    pub lost_tool: f64,
    /// List sizes whose weighted costs differ by less than this share count as equal.
    pub margin: f64,
}

impl Default for ListPrices {
    fn default() -> Self {
        Self {
            model: CostModel::default(),
            shape: SessionShape::TYPICAL,
            n_inline: 10,
            answer_tokens: 2_500.0,
            search_weight: 3.0,
            lost_tool: 60_000.0,
            margin: 0.04,
        }
    }
}

impl ListPrices {
    /// Number of definitions that a client's own search loads.
    pub const N_LOADED: f64 = 5.0;

    /// Returns the price of `tokens` in the list of a session of `n_calls` calls: one write to the
    /// prompt cache and one read for each call.
    #[must_use]
    pub fn listing_price(&self, tokens: f64, n_calls: f64) -> f64 {
        tokens * (self.model.cache_write + self.model.cached_read * n_calls)
    }

    /// Returns the price of a search with a list of `list_tokens` and definitions of `tool_tokens`
    /// each: a prompt of its own, the query, and an answer with as many definitions as it has room
    /// for.
    #[must_use]
    pub fn search(&self, list_tokens: f64, tool_tokens: f64) -> f64 {
        self.search_price(list_tokens, self.answer_definition_tokens(tool_tokens))
    }

    /// Returns the price of a client's own search, which loads a few definitions.
    #[must_use]
    pub fn own_search(&self, list_tokens: f64, tool_tokens: f64) -> f64 {
        self.search_price(list_tokens, Self::N_LOADED * tool_tokens)
    }

    /// Returns the number of tokens of definitions in the answer of a search.
    #[must_use]
    pub fn answer_definition_tokens(&self, tool_tokens: f64) -> f64 {
        (f64::from(self.n_inline) * tool_tokens).min(self.answer_tokens)
    }

    fn search_price(&self, list_tokens: f64, answer_tokens: f64) -> f64 {
        let model = &self.model;
        model.cached_read * (model.context_tokens + list_tokens)
            + model.inline_search
            + model.cache_write * answer_tokens
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn search_costs_are_bounded_by_the_answer_size() {
        let prices = ListPrices::default();
        // 0.1 * 22,000 + 600 + 1.25 * 2,000.
        assert!((prices.search(2_000.0, 200.0) - 5_300.0).abs() < 1e-9);
        // 2,500 tokens of answer, whether of four tools or of two.
        assert!((prices.search(2_000.0, 600.0) - 5_925.0).abs() < 1e-9);
        assert!((prices.search(2_000.0, 1_200.0) - 5_925.0).abs() < 1e-9);
        assert!((prices.own_search(2_000.0, 200.0) - 4_050.0).abs() < 1e-9);
        assert!((prices.listing_price(200.0, 10.0) - 450.0).abs() < 1e-9);
    }
}
