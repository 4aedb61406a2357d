//! What a tool costs in a list, and what it saves.

use crate::economics::CostModel;

/// What a session does that a list is chosen for.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionShape {
    /// How many calls it makes.
    pub n_calls: f64,
    /// How many different tools it uses.
    pub n_tools: f64,
}

impl SessionShape {
    /// A session of which nothing is known.
    pub const TYPICAL: Self = Self {
        n_calls: 10.0,
        n_tools: 8.0,
    };
}

/// The prices by which lists are chosen, in tokens at the price of one that is in no cache.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ListPrices {
    /// What is assumed of the client and its model.
    pub model: CostModel,
    /// What is assumed of its session.
    pub shape: SessionShape,
    /// How many definitions the answer of a search carries.
    pub n_inline: u32,
    /// The most tokens that such an answer has, however long definitions are.
    pub answer_tokens: f64,
    /// Factor by which the price of a search counts in the weighed cost of a list: a search also costs a
    /// turn of the model, and time.
    pub search_weight: f64,
    /// Price, in the same unit, of a tool that a session needs, is not listed, and that its client
    /// does not look for: the work is done without it, or done again.
    pub lost_tool: f64,
    /// Sizes of lists whose weighed costs differ by less than this share count as equal.
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

    /// Returns the price of `tokens` in the list of a session of `n_calls` calls: they are written to
    /// the cache once and read at every call.
    #[must_use]
    pub fn listed_for(&self, tokens: f64, n_calls: f64) -> f64 {
        tokens * (self.model.cache_write + self.model.cached_read * n_calls)
    }

    /// Returns what a search costs with a list of `list_tokens`, where the definition of a tool has
    /// `tool_tokens`: a prompt of its own, its question, and an answer that carries definitions, as
    /// many as it has room for.
    #[must_use]
    pub fn search(&self, list_tokens: f64, tool_tokens: f64) -> f64 {
        self.found(list_tokens, self.carried(tool_tokens))
    }

    /// Returns the price of a client's own search, which loads a few tools: the same with their
    /// definitions.
    #[must_use]
    pub fn load(&self, list_tokens: f64, tool_tokens: f64) -> f64 {
        self.found(list_tokens, Self::N_LOADED * tool_tokens)
    }

    /// Returns the number of tokens of definitions the answer of a search carries.
    #[must_use]
    pub fn carried(&self, tool_tokens: f64) -> f64 {
        (f64::from(self.n_inline) * tool_tokens).min(self.answer_tokens)
    }

    fn found(&self, list_tokens: f64, answer_tokens: f64) -> f64 {
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
    fn an_answer_has_no_more_definitions_than_it_has_room_for() {
        let prices = ListPrices::default();
        // 0.1 * 22,000 + 600 + 1.25 * 2,000.
        assert!((prices.search(2_000.0, 200.0) - 5_300.0).abs() < 1e-9);
        // 2,500 tokens of answer, be they of four tools or of two.
        assert!((prices.search(2_000.0, 600.0) - 5_925.0).abs() < 1e-9);
        assert!((prices.search(2_000.0, 1_200.0) - 5_925.0).abs() < 1e-9);
        assert!((prices.load(2_000.0, 200.0) - 4_050.0).abs() < 1e-9);
        assert!((prices.listed_for(200.0, 10.0) - 450.0).abs() < 1e-9);
    }
}
