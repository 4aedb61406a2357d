//! The decision about a list: its length, from the needs of earlier sessions, and its tools.

use super::bounds::ListBounds;
use super::choice::{Candidates, ListChoice, choose_tools};
use super::prices::ListPrices;
use super::size::{CatalogSize, HiddenToolSearch, ListSize, SessionOutlook};
use crate::num::to_f64;

/// The decision about a list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ListDecision {
    /// All tools except banned ones are shown, for this reason.
    All(ShowAllReason),
    /// The chosen tools are shown.
    Some(ListChoice),
}

/// The reason for showing all tools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShowAllReason {
    /// No session has been learned from, and the tools are not more than the maximum of a list, or
    /// cost less than one weighted search.
    ColdStart,
    /// The tools are not more than the minimum of a list, or their definitions are so short that
    /// hiding some could never pay.
    SmallCatalog,
    /// In earlier sessions, the searches for hidden tools would have cost more than a shorter list
    /// saves.
    NotPaying,
}

/// The evidence for the size of a list.
#[derive(Clone, Copy, Debug)]
pub struct SizeEvidence<'a> {
    /// The expected session.
    pub outlook: &'a SessionOutlook,
    /// The way in which the client finds hidden tools.
    pub finding: HiddenToolSearch,
    /// Number of tokens of the definitions of all tools.
    pub all_tokens: u64,
}

/// Decides the number of tools in a list. All tools are shown if that costs less than every shorter
/// list. Upper bounds hold in any case: a catalog with more tokens than the budget is never shown
/// as a whole, and at most `max_tools` predicted tools are shown.
///
/// # Errors
///
/// Returns the reason if all tools are shown.
pub fn list_size(
    candidates: &impl Candidates,
    evidence: &SizeEvidence<'_>,
    bounds: &ListBounds,
    prices: &ListPrices,
) -> Result<usize, ShowAllReason> {
    let catalog = CatalogSize {
        n_tools: candidates.len(),
        tokens: to_f64(evidence.all_tokens),
    };
    let outlook = evidence.outlook;
    let is_over_budget = (bounds.token_budget).is_some_and(|budget| evidence.all_tokens > budget);
    let whole = if catalog.n_tools <= bounds.min_tools
        || prices.is_small(&catalog, outlook.n_calls, bounds.min_tools)
    {
        Err(ShowAllReason::SmallCatalog)
    } else if !outlook.is_learned() {
        match prices.first_size(&catalog, outlook.n_calls, bounds.max_tools) {
            ListSize::All => Err(ShowAllReason::ColdStart),
            ListSize::Tools(n) => Ok(n),
        }
    } else {
        match prices.best_size(&catalog, outlook, evidence.finding) {
            ListSize::All => Err(ShowAllReason::NotPaying),
            ListSize::Tools(n) => Ok(n),
        }
    };
    match whole {
        // The budget holds even if showing all tools would cost less.
        Err(_) if is_over_budget => Ok(bounds.max_tools),
        Err(why) => Err(why),
        // `clamp` panics if its bounds are reversed.
        Ok(n) => Ok(n.clamp(bounds.min_tools.min(bounds.max_tools), bounds.max_tools)),
    }
}

/// Decides the tools of a list, see [`size_of`]. `ranked` has positions with the probability that
/// the tool is called next, the most likely first.
pub fn decide_list(
    candidates: &impl Candidates,
    ranked: &[(usize, f64)],
    evidence: &SizeEvidence<'_>,
    bounds: &ListBounds,
    prices: &ListPrices,
) -> ListDecision {
    match list_size(candidates, evidence, bounds, prices) {
        Err(why) => ListDecision::All(why),
        Ok(max_tools) => {
            let bounds = ListBounds {
                max_tools,
                ..*bounds
            };
            ListDecision::Some(choose_tools(candidates, ranked, &bounds))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::selection::{LIST_SIZES, ToolDecision};

    struct UniformCatalog {
        n_tools: usize,
        tokens: u64,
    }

    impl Candidates for UniformCatalog {
        fn len(&self) -> usize {
            self.n_tools
        }
        fn decision(&self, _position: usize) -> ToolDecision {
            ToolDecision::Free
        }
        fn tokens(&self, _position: usize) -> u64 {
            self.tokens
        }
    }

    fn outlook(is_learned: bool, searches: [f64; LIST_SIZES.len()]) -> SessionOutlook {
        SessionOutlook {
            n_sessions: if is_learned { 40.0 } else { 0.0 },
            n_calls: 10.0,
            searches,
            loads: searches,
            needs: searches,
            seeks: 1.0,
        }
    }

    /// Returns the number of shown tools, and the reason if all are shown.
    fn shown_count(
        n_tools: usize,
        tokens: u64,
        outlook: &SessionOutlook,
        bounds: ListBounds,
    ) -> (usize, Option<ShowAllReason>) {
        let tools = UniformCatalog { n_tools, tokens };
        let ranked: Vec<(usize, f64)> = (0..n_tools).map(|at| (at, 0.5)).collect();
        let evidence = SizeEvidence {
            outlook,
            finding: HiddenToolSearch::ProxySearch,
            all_tokens: tokens * n_tools as u64,
        };
        match decide_list(&tools, &ranked, &evidence, &bounds, &ListPrices::default()) {
            ListDecision::All(why) => (n_tools, Some(why)),
            ListDecision::Some(choice) => (choice.shown.len(), None),
        }
    }

    #[test]
    fn large_catalogs_are_shown_whole_only_if_cheaper() {
        let bounds = ListBounds::default();
        let none = outlook(false, [0.0; 5]);
        let sure = outlook(true, [1.0, 0.0, 0.0, 0.0, 0.0]);
        let unsure = outlook(true, [9.0, 8.0, 7.0, 6.0, 5.0]);
        let whole = |n, why| (n, Some(why));
        assert_eq!(
            shown_count(14, 200, &none, bounds),
            whole(14, ShowAllReason::SmallCatalog)
        );
        assert_eq!(
            shown_count(14, 200, &sure, bounds),
            whole(14, ShowAllReason::SmallCatalog)
        );
        assert_eq!(
            shown_count(50, 104, &none, bounds),
            whole(50, ShowAllReason::ColdStart)
        );
        assert_eq!(shown_count(500, 200, &none, bounds), (20, None));
        assert_eq!(shown_count(50, 104, &sure, bounds), (10, None));
        assert_eq!(
            shown_count(60, 200, &unsure, bounds),
            whole(60, ShowAllReason::NotPaying)
        );
        assert_eq!(shown_count(2_000, 200, &unsure, bounds), (20, None));
    }

    #[test]
    fn bounds_hold_regardless_of_the_cost() {
        let unsure = outlook(true, [9.0, 8.0, 7.0, 6.0, 5.0]);
        let bounds = |min_tools, max_tools, token_budget| ListBounds {
            min_tools,
            max_tools,
            token_budget,
        };
        assert_eq!(
            shown_count(60, 200, &unsure, bounds(5, 20, Some(3_000))),
            (15, None)
        );
        assert_eq!(
            shown_count(2_000, 200, &unsure, bounds(0, 3, None)),
            (3, None)
        );
        let sure = outlook(true, [0.0; 5]);
        assert_eq!(
            shown_count(500, 200, &sure, bounds(12, 20, None)),
            (12, None)
        );
        // What contradicts itself is held from above.
        assert_eq!(shown_count(500, 200, &sure, bounds(30, 20, None)).0, 20);
    }

    proptest! {
        #[test]
        fn a_smaller_maximum_never_makes_a_list_longer(
            n_tools in 1..300_usize, tokens in 1..1_500_u64, is_learned: bool,
            searches in proptest::array::uniform5(0.0..10.0_f64),
            (few, more) in (1..100_usize, 0..100_usize),
            min_tools in 0..8_usize, token_budget in proptest::option::of(0..50_000_u64),
        ) {
            let outlook = outlook(is_learned, searches);
            let with = |max_tools| {
                let bounds = ListBounds {
                    min_tools: min_tools.min(few), max_tools, token_budget,
                };
                shown_count(n_tools, tokens, &outlook, bounds).0
            };
            prop_assert!(with(few) <= with(few + more));
        }
    }
}
