//! The decision about a list: its length, from what sessions before needed, and its tools.

use super::bounds::ListBounds;
use super::choice::{Candidates, Choice, choose, to_f64};
use super::prices::ListPrices;
use super::size::{CatalogSize, Finding, ListSize, SessionOutlook};

/// What was decided.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Everything is shown, but for what is banned; why.
    All(WhyAll),
    /// These are shown.
    Some(Choice),
}

/// Why everything is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhyAll {
    /// No session was learned from, and there are no more tools than a list may have at most, or they
    /// cost less than one search with its weight.
    ColdStart,
    /// There are no more tools than a list has at least, or their definitions are so short that hiding
    /// some could never pay.
    SmallCatalog,
    /// By the sessions before, the searches for what a shorter list leaves out would cost more than
    /// it saves.
    NotPaying,
}

/// The evidence for the size of a list.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// The session as it is expected.
    pub outlook: &'a SessionOutlook,
    /// The way in which the client finds what the list leaves out.
    pub finding: Finding,
    /// How many tokens the definitions of all tools have.
    pub all_tokens: u64,
}

/// Decides how many tools a list shows. Everything is shown where that costs less than every shorter
/// list; bounds that leave no choice are held whether that pays or not: a catalog of more tokens than
/// the budget is never shown whole, and of what is predicted never more than `max_tools` are.
///
/// # Errors
///
/// Returns why everything is shown, where it is.
pub fn size_of(
    candidates: &impl Candidates,
    evidence: &Evidence<'_>,
    bounds: &ListBounds,
    prices: &ListPrices,
) -> Result<usize, WhyAll> {
    let catalog = CatalogSize {
        n_tools: candidates.len(),
        tokens: to_f64(evidence.all_tokens),
    };
    let outlook = evidence.outlook;
    let is_over_budget = (bounds.token_budget).is_some_and(|budget| evidence.all_tokens > budget);
    let whole = if catalog.n_tools <= bounds.min_tools
        || prices.is_small(&catalog, outlook.n_calls, bounds.min_tools)
    {
        Err(WhyAll::SmallCatalog)
    } else if !outlook.is_learned() {
        match prices.first_size(&catalog, outlook.n_calls, bounds.max_tools) {
            ListSize::All => Err(WhyAll::ColdStart),
            ListSize::Tools(n) => Ok(n),
        }
    } else {
        match prices.best_size(&catalog, outlook, evidence.finding) {
            ListSize::All => Err(WhyAll::NotPaying),
            ListSize::Tools(n) => Ok(n),
        }
    };
    match whole {
        Err(_) if is_over_budget => Ok(bounds.max_tools),
        Err(why) => Err(why),
        Ok(n) => Ok(n.clamp(bounds.min_tools.min(bounds.max_tools), bounds.max_tools)),
    }
}

/// Decides what a list shows, see [`size_of`]. `ranked` has positions with the probability that the tool
/// is called next, the most likely first.
pub fn decide(
    candidates: &impl Candidates,
    ranked: &[(usize, f64)],
    evidence: &Evidence<'_>,
    bounds: &ListBounds,
    prices: &ListPrices,
) -> Decision {
    match size_of(candidates, evidence, bounds, prices) {
        Err(why) => Decision::All(why),
        Ok(max_tools) => {
            let bounds = ListBounds {
                max_tools,
                ..*bounds
            };
            Decision::Some(choose(candidates, ranked, &bounds))
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::listing::{LIST_SIZES, Standing};

    struct Alike {
        n_tools: usize,
        tokens: u64,
    }

    impl Candidates for Alike {
        fn len(&self) -> usize {
            self.n_tools
        }
        fn standing(&self, _position: usize) -> Standing {
            Standing::Free
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

    /// Returns the number of tools that are shown, and why all where all are.
    fn shown(
        n_tools: usize,
        tokens: u64,
        outlook: &SessionOutlook,
        bounds: ListBounds,
    ) -> (usize, Option<WhyAll>) {
        let tools = Alike { n_tools, tokens };
        let ranked: Vec<(usize, f64)> = (0..n_tools).map(|at| (at, 0.5)).collect();
        let evidence = Evidence {
            outlook,
            finding: Finding::ProxySearch,
            all_tokens: tokens * n_tools as u64,
        };
        match decide(&tools, &ranked, &evidence, &bounds, &ListPrices::default()) {
            Decision::All(why) => (n_tools, Some(why)),
            Decision::Some(choice) => (choice.shown.len(), None),
        }
    }

    #[test]
    fn all_are_shown_only_where_that_costs_less() {
        let bounds = ListBounds::default();
        let none = outlook(false, [0.0; 5]);
        let sure = outlook(true, [1.0, 0.0, 0.0, 0.0, 0.0]);
        let unsure = outlook(true, [9.0, 8.0, 7.0, 6.0, 5.0]);
        let whole = |n, why| (n, Some(why));
        assert_eq!(
            shown(14, 200, &none, bounds),
            whole(14, WhyAll::SmallCatalog)
        );
        assert_eq!(
            shown(14, 200, &sure, bounds),
            whole(14, WhyAll::SmallCatalog)
        );
        assert_eq!(shown(50, 104, &none, bounds), whole(50, WhyAll::ColdStart));
        assert_eq!(shown(500, 200, &none, bounds), (20, None));
        assert_eq!(shown(50, 104, &sure, bounds), (10, None));
        assert_eq!(
            shown(60, 200, &unsure, bounds),
            whole(60, WhyAll::NotPaying)
        );
        assert_eq!(shown(2_000, 200, &unsure, bounds), (20, None));
    }

    #[test]
    fn bounds_hold_whether_they_pay_or_not() {
        let unsure = outlook(true, [9.0, 8.0, 7.0, 6.0, 5.0]);
        let bounds = |min_tools, max_tools, token_budget| ListBounds {
            min_tools,
            max_tools,
            token_budget,
        };
        assert_eq!(
            shown(60, 200, &unsure, bounds(5, 20, Some(3_000))),
            (15, None)
        );
        assert_eq!(shown(2_000, 200, &unsure, bounds(0, 3, None)), (3, None));
        let sure = outlook(true, [0.0; 5]);
        assert_eq!(shown(500, 200, &sure, bounds(12, 20, None)), (12, None));
        // What contradicts itself is held from above.
        assert_eq!(shown(500, 200, &sure, bounds(30, 20, None)).0, 20);
    }

    proptest! {
        #[test]
        fn a_list_never_becomes_longer_because_a_shorter_one_is_asked_for(
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
                shown(n_tools, tokens, &outlook, bounds).0
            };
            prop_assert!(with(few) <= with(few + more));
        }
    }
}
