//! Cost model of a tool list: the price of a list, and of a change to it, for a client whose model
//! caches its prompt.
//!
//! The tool definitions are the head of the prompt. While their bytes stay the same, a provider
//! reads them, and the conversation after them, from its cache at a fraction of the price. A
//! changed list makes it write all of that again, so a change can cost more than a shorter list
//! saves. These prices show which is the case.
//!
//! Prices are in tokens: 1 is the price of one prompt token that is neither read from a cache nor
//! written to one. Output has no price, since every list leads to the same calls. A search has a
//! price, since it adds a round trip.

use crate::num::to_f64;

/// The assumptions about a client, its model and its provider. List policies are compared under the
/// defaults. A client that is known better has its own numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// The price of a token that is read from the cache: 0.1.
    pub cached_read: f64,
    /// The price of a token that is written to the cache: 1.25.
    pub cache_write: f64,
    /// The number of tokens in the definition of one tool: 200.
    pub tokens_per_tool: f64,
    /// The number of tokens after the tools, system prompt and conversation, on average over the
    /// calls of a session: 20,000.
    pub context_tokens: f64,
    /// The price of the request and the answer of a search with a short answer: 1,000.
    pub search: f64,
    /// The price of the request and the answer of a search with definitions in the answer: 600. The
    /// definitions are priced separately, by their number.
    pub inline_search: f64,
}

impl Default for CostModel {
    fn default() -> Self {
        Self {
            cached_read: 0.1,
            cache_write: 1.25,
            tokens_per_tool: 200.0,
            context_tokens: 20_000.0,
            search: 1_000.0,
            inline_search: 600.0,
        }
    }
}

/// The error for a number of a cost model that is negative or not finite.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
#[error("{name} must be a finite number of at least 0, not {value}")]
pub struct CostModelError {
    /// The name of the number.
    pub name: &'static str,
    /// The rejected value.
    pub value: f64,
}

impl CostModel {
    /// Requires every number to be finite and not negative, so that every price is so too.
    ///
    /// # Errors
    ///
    /// Returns [`CostModelError`] for the first invalid number.
    pub fn check(&self) -> Result<(), CostModelError> {
        let numbers = [
            ("cached_read", self.cached_read),
            ("cache_write", self.cache_write),
            ("tokens_per_tool", self.tokens_per_tool),
            ("context_tokens", self.context_tokens),
            ("search", self.search),
            ("inline_search", self.inline_search),
        ];
        for (name, value) in numbers {
            if !value.is_finite() || value < 0.0 {
                return Err(CostModelError { name, value });
            }
        }
        Ok(())
    }

    /// Returns the number of tokens in the definitions of `n_tools` tools.
    #[must_use]
    pub fn list_tokens(&self, n_tools: usize) -> f64 {
        self.tokens_per_tool * to_f64(n_tools)
    }

    /// Returns the price of the first list of a session: it is written to the cache. The context is
    /// left out, since it costs the same for every list.
    #[must_use]
    pub fn first_list(&self, n_tools: usize) -> f64 {
        self.list_written(self.list_tokens(n_tools))
    }

    /// Returns the price of a list of this many tokens that is written to the cache.
    #[must_use]
    pub fn list_written(&self, list_tokens: f64) -> f64 {
        self.cache_write * list_tokens
    }

    /// Returns the price of the prompt of one call with an unchanged list of this many tokens.
    #[must_use]
    pub fn prompt(&self, list_tokens: f64) -> f64 {
        self.cached_read * (self.context_tokens + list_tokens)
    }

    /// Returns the additional price of the next prompt after a change to a list of this many
    /// tokens.
    #[must_use]
    pub fn prompt_rewritten(&self, list_tokens: f64) -> f64 {
        self.rewrite() * (self.context_tokens + list_tokens)
    }

    /// Returns the price of the prompt of one call with an unchanged list: list and context are
    /// read from the cache.
    #[must_use]
    pub fn call(&self, n_tools: usize) -> f64 {
        self.prompt(self.list_tokens(n_tools))
    }

    /// Returns the additional price of the next call after a change to a list of `n_tools`: list
    /// and context are written to the cache, not read from it.
    #[must_use]
    pub fn list_change(&self, n_tools: usize) -> f64 {
        self.prompt_rewritten(self.list_tokens(n_tools))
    }

    /// Returns the price of a search with `n_tools` tools in the prompt: another prompt, and the
    /// request with its short answer.
    #[must_use]
    pub fn search(&self, n_tools: usize) -> f64 {
        self.call(n_tools) + self.search
    }

    /// Returns the price of a search whose answer carries the definitions of `n_inline` tools into
    /// the conversation: another prompt, the request with the answer, and the definitions, which
    /// are written to the end of the cache. The prompt before them stays cached.
    #[must_use]
    pub fn search_with_inline(&self, n_tools: usize, n_inline: usize) -> f64 {
        self.call(n_tools) + self.inline_search + self.first_list(n_inline)
    }

    /// Returns the price of `n_calls` calls in `n_sessions` sessions that always show all `n_tools`
    /// tools: the baseline for list policies.
    #[must_use]
    pub fn showing_all(&self, n_tools: usize, n_calls: u64, n_sessions: u64) -> f64 {
        to_f64(n_calls) * self.call(n_tools) + to_f64(n_sessions) * self.first_list(n_tools)
    }

    /// Returns the number of turns after which a change from a list of `before` tokens to one of
    /// `after` tokens has paid for itself, with `behind` tokens of system prompt and history after
    /// the list.
    ///
    /// The formula is `(write - read) / read * (after + behind) / (before - after)`, which is 11.5
    /// times the ratio at the default prices. Returns `None` if the change never pays: the new list
    /// is not shorter, or reading costs nothing.
    #[must_use]
    pub fn break_even_turns(&self, before: f64, after: f64, behind: f64) -> Option<f64> {
        let saved_each_turn = self.cached_read * (before - after);
        let price = (self.rewrite() * (after + behind)).max(0.0);
        let turns = price / saved_each_turn;
        (saved_each_turn > 0.0 && turns.is_finite()).then_some(turns)
    }

    /// Returns the additional price of writing a token to the cache over reading it.
    fn rewrite(&self) -> f64 {
        self.cache_write - self.cached_read
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn near(a: f64, b: f64) -> bool {
        (a - b).abs() < 1e-9 * a.abs().max(1.0)
    }

    #[test]
    fn the_default_prices_are_those_of_a_cached_prompt() {
        let model = CostModel::default();
        assert!(near(model.first_list(10), 2_500.0));
        assert!(near(model.call(10), 2_200.0));
        assert!(near(model.list_change(10), 1.15 * 22_000.0));
        assert!(near(model.search(10), 3_200.0));
        assert!(near(
            model.search_with_inline(10, 4),
            2_200.0 + 600.0 + 1_000.0
        ));
        assert!(near(
            model.showing_all(50, 3, 2),
            3.0 * 3_000.0 + 2.0 * 12_500.0
        ));
        assert_eq!(model.check(), Ok(()));
    }

    #[test]
    fn a_change_pays_for_itself_after_the_turns_of_the_formula() {
        let model = CostModel::default();
        let turns = model.break_even_turns(10_000.0, 2_000.0, 6_000.0);
        assert!(turns.is_some_and(|turns| near(turns, 11.5)));
        assert_eq!(model.break_even_turns(2_000.0, 2_000.0, 0.0), None);
        assert_eq!(model.break_even_turns(1_000.0, 2_000.0, 0.0), None);
        let free = CostModel {
            cached_read: 0.0,
            ..model
        };
        assert_eq!(free.break_even_turns(2_000.0, 1_000.0, 0.0), None);
    }

    #[test]
    fn an_invalid_price_is_named() {
        let model = CostModel {
            cache_write: f64::NAN,
            ..CostModel::default()
        };
        let error = model.check().unwrap_err();
        assert!(error.to_string().starts_with("cache_write must be"));
        let model = CostModel {
            tokens_per_tool: -1.0,
            ..CostModel::default()
        };
        assert_eq!(model.check().unwrap_err().name, "tokens_per_tool");
    }

    proptest! {
        #[test]
        fn after_the_break_even_the_shorter_list_has_cost_less(
            after in 0.0..50_000.0_f64, saved in 1.0..50_000.0_f64, behind in 0.0..100_000.0_f64,
        ) {
            let model = CostModel::default();
            let turns = model.break_even_turns(after + saved, after, behind).unwrap();
            let spent = |turns: f64| {
                let change = (model.cache_write - model.cached_read) * (after + behind);
                let stay = turns * model.cached_read * (after + saved + behind);
                change + turns * model.cached_read * (after + behind) - stay
            };
            prop_assert!(spent(turns * 1.01 + 0.01) < 0.0);
            prop_assert!(turns < 0.02 || spent(turns * 0.99 - 0.01) > 0.0);
        }
    }
}
