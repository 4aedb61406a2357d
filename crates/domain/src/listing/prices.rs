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
    /// How many times its price a search counts when the place of a tool is weighed against it: a
    /// search also costs a turn of the model, and time.
    pub search_weight: f64,
    /// A list is made shorter only if it would still have paid after this many searches more than
    /// expected: no session should cost more than one that is shown everything.
    pub n_spare_searches: f64,
}

impl Default for ListPrices {
    fn default() -> Self {
        Self {
            model: CostModel::default(),
            shape: SessionShape::TYPICAL,
            n_inline: 10,
            answer_tokens: 2_500.0,
            search_weight: 3.0,
            n_spare_searches: 3.0,
        }
    }
}

impl ListPrices {
    /// Returns what a session pays for `tokens` in its list: they are written to the cache once and
    /// read at every call.
    #[must_use]
    pub fn listed(&self, tokens: f64) -> f64 {
        tokens * (self.model.cache_write + self.model.cached_read * self.shape.n_calls)
    }

    /// Returns what a search costs with a list of `list_tokens`, where the definition of a tool has
    /// `tool_tokens`: a prompt of its own, its question, and an answer that carries definitions, as many as it has room for.
    #[must_use]
    pub fn search(&self, list_tokens: f64, tool_tokens: f64) -> f64 {
        let model = &self.model;
        let carried = (f64::from(self.n_inline) * tool_tokens).min(self.answer_tokens);
        model.cached_read * (model.context_tokens + list_tokens)
            + model.inline_search
            + model.cache_write * carried
    }

    /// Returns whether a tool is worth its place: what it costs there is at most the price of the
    /// search, times its weight, times the probability that the session needs the tool. `probability` is that it
    /// is called next.
    #[must_use]
    pub fn is_worth(&self, probability: f64, tokens: f64, search: f64) -> bool {
        let is_needed = (probability * self.shape.n_tools).clamp(0.0, 1.0);
        is_needed * search * self.search_weight >= self.listed(tokens)
    }

    /// Returns whether a list of `shown` tokens costs less than the whole one of `all`, with
    /// `missed` as the predicted probability that the next tool is not in it, and some searches to
    /// spare.
    #[must_use]
    pub fn pays(&self, all: f64, shown: f64, missed: f64, search: f64) -> bool {
        let n_searches = missed.clamp(0.0, 1.0) * self.shape.n_tools + self.n_spare_searches;
        self.listed(all - shown) > n_searches * search
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_tool_is_worth_its_place_if_it_is_likely_enough() {
        let prices = ListPrices::default();
        let search = prices.search(2_000.0, 200.0);
        // 0.1 * 22,000 + 600 + 1.25 * 2,000 against 200 * (1.25 + 1).
        assert!((search - 5_300.0).abs() < 1e-9);
        assert!((prices.listed(200.0) - 450.0).abs() < 1e-9);
        assert!(prices.is_worth(0.003_6, 200.0, search));
        assert!(!prices.is_worth(0.003_5, 200.0, search));
        assert!(!prices.is_worth(f64::NAN, 200.0, search));
    }

    #[test]
    fn a_small_catalog_is_not_worth_hiding() {
        let prices = ListPrices::default();
        let search = prices.search(1_000.0, 200.0);
        assert!(!prices.pays(2_800.0, 1_000.0, 0.0, search));
        assert!(prices.pays(48_600.0, 4_000.0, 0.5, search));
    }

    #[test]
    fn an_answer_has_no_more_definitions_than_it_has_room_for() {
        let prices = ListPrices::default();
        // 2,500 tokens of answer, be they of four tools or of two.
        assert!((prices.search(2_000.0, 600.0) - 5_925.0).abs() < 1e-9);
        assert!((prices.search(2_000.0, 1_200.0) - 5_925.0).abs() < 1e-9);
        // 35 long definitions of which 5 will do, with one miss in ten calls.
        let search = prices.search(2_000.0, 400.0);
        assert!(prices.pays(14_000.0, 2_000.0, 0.1, search));
    }

    proptest! {
        #[test]
        fn what_pays_pays_with_a_shorter_list_and_fewer_misses(
            all in 0.0..100_000.0_f64, share in 0.0..1.0_f64, missed in 0.0..1.0_f64,
            less in 0.0..1.0_f64,
        ) {
            let prices = ListPrices::default();
            let search = prices.search(all * share, 200.0);
            if prices.pays(all, all * share, missed, search) {
                prop_assert!(prices.pays(all, all * share * less, missed * less, search));
            }
        }
    }
}
