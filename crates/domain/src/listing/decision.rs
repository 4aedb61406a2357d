//! What a list shows, from a prediction to the choice: the whole of it where that is better.

use super::bounds::ListBounds;
use super::choice::{Candidates, Choice, choose, to_f64};
use super::prices::ListPrices;
use crate::prediction::Band;

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
    /// Too little is known of what is needed.
    ColdStart,
    /// There are no more tools than a list may have, or their definitions are so short that hiding
    /// some could cost more than it saves.
    NotPaying,
}

/// What a list is chosen by.
#[derive(Clone, Copy, Debug)]
pub struct Evidence<'a> {
    /// Positions with the probability that the tool is called next, the most likely first.
    pub ranked: &'a [(usize, f64)],
    /// How far they are to be trusted.
    pub band: Band,
    /// How many tokens the definitions of all tools have.
    pub all_tokens: u64,
}

/// Decides what a list shows. Bounds that leave no choice are held whether that pays or not: a
/// catalog of more tokens than the budget is never shown whole, unless nothing is known.
pub fn decide(
    candidates: &impl Candidates,
    evidence: &Evidence<'_>,
    bounds: &ListBounds,
    prices: &ListPrices,
) -> Decision {
    if evidence.band == Band::ShowAll {
        return Decision::All(WhyAll::ColdStart);
    }
    let choice = choose(candidates, evidence.ranked, bounds, Some(prices));
    let is_over_budget = (bounds.token_budget).is_some_and(|budget| evidence.all_tokens > budget);
    if is_over_budget {
        return Decision::Some(choice);
    }
    let covered: f64 = (evidence.ranked.iter())
        .filter(|(position, _)| choice.shown.binary_search(position).is_ok())
        .map(|(_, probability)| probability)
        .sum();
    let n_all = u64::try_from(candidates.len().max(1)).unwrap_or(u64::MAX);
    let (all, shown) = (to_f64(evidence.all_tokens), to_f64(choice.tokens));
    let search = prices.search(shown, all / to_f64(n_all));
    if prices.pays(all, shown, 1.0 - covered, search) {
        Decision::Some(choice)
    } else {
        Decision::All(WhyAll::NotPaying)
    }
}
