//! The list size with the lowest weighted cost.
//!
//! The weighted cost of a list is the price of its tokens plus the price of the tools that a
//! session needs and does not see. A client that looks for them pays for a search each, which
//! weighs more than its tokens ([`ListPrices::search_weight`]). A client that does not look for
//! them works without them ([`ListPrices::lost_tool`]). The number of searches with a list of each
//! size is learned from earlier sessions ([`SizeHistory`](super::SizeHistory)): from every session
//! for all sizes, whatever list it had. Following the best size so far costs, per session, at most
//! a multiple of `sqrt(ln N / T)` more than the best fixed size in hindsight, for N sizes and T
//! sessions (Freund and Schapire 1997, <https://doi.org/10.1006/jcss.1997.1504>, for the randomised
//! rule). This implementation takes the best size itself, and stays with it while others cost about
//! the same.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use super::prices::ListPrices;
use crate::num::to_f64;

/// The list sizes whose costs are followed. Showing all tools is the other option.
pub const LIST_SIZES: [usize; 5] = [5, 10, 20, 40, 80];

/// The share by which showing all tools must cost less than a shorter list, before any session is
/// learned from.
const INITIAL_MARGIN: f64 = 0.1;
/// Number of sessions after which this share is halved.
const MARGIN_HALF_SESSIONS: f64 = 5.0;

/// Number of predicted tools in a list. Its text is the number, or `all`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum ListSize {
    /// This number of the most likely tools.
    Tools(usize),
    /// All tools.
    All,
}

impl fmt::Display for ListSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tools(n) => n.fmt(f),
            Self::All => f.write_str("all"),
        }
    }
}

/// The error for a text that is no list size.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("expected a number of tools or \"all\", not {0:?}")]
pub struct UnknownListSize(pub String);

impl FromStr for ListSize {
    type Err = UnknownListSize;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if text == "all" {
            return Ok(Self::All);
        }
        text.parse()
            .map(Self::Tools)
            .map_err(|_| UnknownListSize(text.to_owned()))
    }
}

impl TryFrom<String> for ListSize {
    type Error = UnknownListSize;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        text.parse()
    }
}

impl From<ListSize> for String {
    fn from(size: ListSize) -> Self {
        size.to_string()
    }
}

/// The way in which a client finds a hidden tool.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum HiddenToolSearch {
    /// Search by the proxy, whose answer has likely tools in addition to the found one.
    #[default]
    ProxySearch,
    /// The client's own search: it sees the names of all tools and loads the needed one.
    OwnSearch,
}

/// The expectation for a session before it begins.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SessionOutlook {
    /// Number of sessions learned from, weighted by recency. If it is 0, the other numbers are
    /// assumptions.
    pub n_sessions: f64,
    /// Number of calls.
    pub n_calls: f64,
    /// Number of searches with a list of each of [`LIST_SIZES`].
    pub searches: [f64; LIST_SIZES.len()],
    /// Number of the client's own searches with a list of each of [`LIST_SIZES`].
    pub loads: [f64; LIST_SIZES.len()],
    /// Predicted number of needed tools missing from a list of each of [`LIST_SIZES`]. It is
    /// predicted, because a client that does not look for them makes no call.
    pub needs: [f64; LIST_SIZES.len()],
    /// Probability that the client looks for a hidden tool that it needs.
    pub seeks: f64,
}

impl SessionOutlook {
    /// Returns whether any session has been learned from.
    #[must_use]
    pub fn is_learned(&self) -> bool {
        self.n_sessions > 0.0
    }

    /// Returns the share by which showing all tools must cost less than a shorter list. It is
    /// higher after few sessions, so that a few sessions alone do not decide to hide nothing.
    fn show_all_margin(&self) -> f64 {
        INITIAL_MARGIN * MARGIN_HALF_SESSIONS / (MARGIN_HALF_SESSIONS + self.n_sessions)
    }
}

/// The size of a catalog.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CatalogSize {
    /// Number of tools that may be shown.
    pub n_tools: usize,
    /// Number of tokens of all definitions together.
    pub tokens: f64,
}

impl CatalogSize {
    /// Returns the mean number of tokens of a definition.
    fn tokens_per_tool(&self) -> f64 {
        self.tokens / to_f64(self.n_tools.max(1))
    }

    /// Returns the number of tokens of a list of this size.
    fn list_tokens(&self, size: ListSize) -> f64 {
        match size {
            ListSize::Tools(n) if n < self.n_tools => self.tokens_per_tool() * to_f64(n),
            _ => self.tokens,
        }
    }
}

impl ListPrices {
    /// Returns whether hiding tools can never pay: leaving out all but `min_tools` saves less than
    /// the cost of one search.
    #[must_use]
    pub fn is_small(&self, catalog: &CatalogSize, n_calls: f64, min_tools: usize) -> bool {
        let shown = catalog.list_tokens(ListSize::Tools(min_tools));
        let saved = self.listing_price(catalog.tokens - shown, n_calls);
        let pays = saved > self.search(shown, catalog.tokens_per_tool());
        // True for NaN: unknown prices justify no hiding.
        !pays
    }

    /// Returns the list size without learned data: all tools if that costs less than one weighted
    /// search, else `max_tools`.
    #[must_use]
    pub fn first_size(&self, catalog: &CatalogSize, n_calls: f64, max_tools: usize) -> ListSize {
        let shown = catalog.list_tokens(ListSize::Tools(max_tools));
        let search = self.search(shown, catalog.tokens_per_tool()) * self.search_weight;
        if catalog.n_tools <= max_tools || self.listing_price(catalog.tokens, n_calls) <= search {
            ListSize::All
        } else {
            ListSize::Tools(max_tools)
        }
    }

    /// Returns the size with the lowest weighted cost. Bounds are ignored, so that a lower bound
    /// never makes a list longer. Of sizes with about the same cost ([`ListPrices::margin`]) it is
    /// the longest. All tools are shown only if that costs less than each of them.
    #[must_use]
    pub fn best_size(
        &self,
        catalog: &CatalogSize,
        outlook: &SessionOutlook,
        finding: HiddenToolSearch,
    ) -> ListSize {
        let sizes = LIST_SIZES.iter().enumerate();
        let sizes = sizes.filter(|(_, size)| **size < catalog.n_tools);
        let costs: Vec<(usize, f64)> = sizes
            .map(|(at, size)| {
                let size = *size;
                (size, self.weighed_cost(catalog, outlook, finding, at, size))
            })
            .collect();
        let lowest = costs.iter().map(|(_, cost)| *cost).fold(f64::MAX, f64::min);
        let all = self.listing_price(catalog.tokens, outlook.n_calls) + self.context(outlook);
        if costs.is_empty() || all < lowest * (1.0 - outlook.show_all_margin()) {
            return ListSize::All;
        }
        let as_good = (costs.iter().rev()).find(|(_, cost)| *cost <= lowest * (1.0 + self.margin));
        // Without a finite price no size is better: the longest size below the whole catalog.
        let longest = costs.last();
        as_good
            .or(longest)
            .map_or(ListSize::All, |(size, _)| ListSize::Tools(*size))
    }

    /// Returns the weighted cost of a session with a list of one of [`LIST_SIZES`].
    fn weighed_cost(
        &self,
        catalog: &CatalogSize,
        outlook: &SessionOutlook,
        finding: HiddenToolSearch,
        at: usize,
        size: usize,
    ) -> f64 {
        let listed = catalog.list_tokens(ListSize::Tools(size));
        let tool = catalog.tokens_per_tool();
        let (n_misses, found, carried) = match finding {
            HiddenToolSearch::ProxySearch => (
                outlook.searches[at],
                self.search(listed, tool),
                self.answer_definition_tokens(tool),
            ),
            HiddenToolSearch::OwnSearch => (
                outlook.loads[at],
                self.own_search(listed, tool),
                Self::N_LOADED * tool,
            ),
        };
        // The definitions in an answer stay in the prompt: on average for half of the session.
        let later = self.model.cached_read * carried * outlook.n_calls / 2.0;
        let seeks = outlook.seeks.clamp(0.0, 1.0);
        let looked_for = n_misses * (found * self.search_weight + later);
        // A client that does not look makes no calls to count, so the predicted needs count, too.
        let lost = n_misses.max(outlook.needs[at]) * self.lost_tool;
        let misses = seeks * looked_for + (1.0 - seeks) * lost;
        self.listing_price(listed, outlook.n_calls) + misses + self.context(outlook)
    }

    /// Returns the price of the prompts after the list of a session. It does not depend on the
    /// list.
    fn context(&self, outlook: &SessionOutlook) -> f64 {
        self.model.cached_read * self.model.context_tokens * outlook.n_calls
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::selection::economics::CostModel;

    fn catalog(n_tools: usize, tokens_per_tool: f64) -> CatalogSize {
        CatalogSize {
            n_tools,
            tokens: to_f64(n_tools) * tokens_per_tool,
        }
    }

    fn outlook(searches: [f64; 5]) -> SessionOutlook {
        SessionOutlook {
            n_sessions: 40.0,
            n_calls: 10.0,
            searches,
            loads: searches,
            needs: searches,
            seeks: 1.0,
        }
    }

    #[test]
    fn list_size_balances_token_costs_against_saved_searches() {
        let prices = ListPrices::default();
        let best = |n_tools, searches| {
            let catalog = catalog(n_tools, 200.0);
            prices.best_size(&catalog, &outlook(searches), HiddenToolSearch::ProxySearch)
        };
        assert_eq!(best(500, [0.0; 5]), ListSize::Tools(5));
        assert_eq!(best(500, [3.0, 2.0, 0.2, 0.2, 0.2]), ListSize::Tools(20));
        assert_eq!(best(500, [9.0, 9.0, 9.0, 9.0, 1.0]), ListSize::Tools(80));
        assert_eq!(best(60, [4.0, 3.0, 2.0, 1.5, 1.0]), ListSize::All);
        assert_eq!(best(5, [0.0; 5]), ListSize::All);
        // About equal costs: the longer list, but not all tools.
        assert_eq!(best(500, [0.4, 0.25, 0.0, 0.0, 0.0]), ListSize::Tools(20));
        assert_eq!(best(21, [0.6, 0.5, 0.02, 0.0, 0.0]), ListSize::Tools(20));
    }

    #[test]
    fn clients_without_searches_get_longer_lists() {
        let prices = ListPrices::default();
        let searches = [0.5, 0.2, 0.1, 0.05, 0.02];
        let best = |seeks| {
            let outlook = SessionOutlook {
                seeks,
                ..outlook(searches)
            };
            prices.best_size(
                &catalog(500, 200.0),
                &outlook,
                HiddenToolSearch::ProxySearch,
            )
        };
        assert_eq!(best(1.0), ListSize::Tools(10));
        assert_eq!(best(0.0), ListSize::Tools(20));
    }

    #[test]
    fn small_catalogs_are_shown_whole_before_anything_is_known() {
        let prices = ListPrices::default();
        let first = |n_tools, tokens| {
            let catalog = catalog(n_tools, tokens);
            let is_small = prices.is_small(&catalog, 10.0, 5);
            (is_small, prices.first_size(&catalog, 10.0, 20))
        };
        assert_eq!(first(14, 200.0), (true, ListSize::All));
        assert_eq!(first(19, 2_000.0), (false, ListSize::All));
        assert_eq!(first(50, 104.0), (false, ListSize::All));
        assert_eq!(first(100, 200.0), (false, ListSize::Tools(20)));
        assert_eq!(first(500, 200.0), (false, ListSize::Tools(20)));
    }

    fn prices() -> impl Strategy<Value = ListPrices> {
        let number = prop_oneof![Just(0.0), 0.0..2.0_f64, 0.0..1e6_f64, Just(f64::MAX)];
        proptest::array::uniform7(number).prop_map(|numbers| {
            let [read, write, context, search, weight, lost, margin] = numbers;
            ListPrices {
                model: CostModel {
                    cached_read: read,
                    cache_write: write,
                    context_tokens: context,
                    inline_search: search,
                    ..CostModel::default()
                },
                search_weight: weight,
                lost_tool: lost,
                margin,
                ..ListPrices::default()
            }
        })
    }

    proptest! {
        #[test]
        fn list_sizes_are_valid_for_any_prices(
            prices in prices(), n_tools in 0..3_000_usize, tokens in 0.0..5_000.0_f64,
            searches in proptest::array::uniform5(0.0..20.0_f64), seeks in 0.0..1.0_f64,
        ) {
            let catalog = catalog(n_tools, tokens);
            let outlook = SessionOutlook { seeks, ..outlook(searches) };
            for finding in [HiddenToolSearch::ProxySearch, HiddenToolSearch::OwnSearch] {
                if let ListSize::Tools(n) = prices.best_size(&catalog, &outlook, finding) {
                    prop_assert!(n < n_tools && LIST_SIZES.contains(&n));
                }
            }
            let _ = prices.is_small(&catalog, 10.0, 5);
            let _ = prices.first_size(&catalog, 10.0, 20);
        }

        #[test]
        fn more_searches_for_shorter_lists_never_make_a_list_shorter(
            mut searches in proptest::array::uniform5(0.0..5.0_f64), more in 0.0..5.0_f64,
        ) {
            searches.sort_by(|a, b| b.total_cmp(a));
            let prices = ListPrices::default();
            let best = |searches| {
                let catalog = catalog(900, 200.0);
                match prices.best_size(&catalog, &outlook(searches), HiddenToolSearch::ProxySearch) {
                    ListSize::Tools(n) => n,
                    ListSize::All => usize::MAX,
                }
            };
            let before = best(searches);
            for (size, n) in LIST_SIZES.iter().zip(&mut searches) {
                if *size < before {
                    *n += more;
                }
            }
            prop_assert!(best(searches) >= before);
        }
    }
}
