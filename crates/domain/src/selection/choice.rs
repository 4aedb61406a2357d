//! The choice of the tools of a list, by rank, within bounds.

use super::bounds::ListBounds;

/// An earlier decision about a tool, which predictions do not change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolDecision {
    /// No decision.
    #[default]
    Free,
    /// The tool is always shown: it was pinned, or the session has used it.
    Kept,
    /// The tool is never shown, whatever else was decided.
    Banned,
}

/// The tools to choose from.
pub trait Candidates {
    /// Returns the number of tools.
    fn len(&self) -> usize;

    /// Returns whether there are no tools.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the decision about the tool at a position.
    fn decision(&self, position: usize) -> ToolDecision;

    /// Returns the number of tokens of the definition of the tool at a position. Called only for
    /// tools that may be shown.
    fn tokens(&self, position: usize) -> u64;
}

/// A choice of tools.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListChoice {
    /// Positions of the shown tools, ascending.
    pub shown: Vec<usize>,
    /// Number of tokens of their definitions.
    pub tokens: u64,
    /// Number of shown tools with the standing [`ToolDecision::Kept`].
    pub n_kept: usize,
    /// Number of tools that were left out because of the token budget.
    pub n_over_budget: usize,
}

/// Chooses all kept tools, and up to `max_tools` free ones, the most likely first, within the token
/// budget. `ranked` has positions with probabilities, the most likely first. Unranked tools come
/// last, in catalog order.
pub fn choose_tools(
    candidates: &impl Candidates,
    ranked: &[(usize, f64)],
    bounds: &ListBounds,
) -> ListChoice {
    let n = candidates.len();
    let mut choice = ListChoice::default();
    let mut is_taken = vec![false; n];
    for (position, taken) in is_taken.iter_mut().enumerate() {
        match candidates.decision(position) {
            ToolDecision::Free => continue,
            ToolDecision::Banned => {}
            ToolDecision::Kept => {
                choice.shown.push(position);
                // Kept tools use up the budget, but are shown even above it.
                choice.tokens = choice.tokens.saturating_add(candidates.tokens(position));
            }
        }
        *taken = true;
    }
    choice.n_kept = choice.shown.len();
    let mut rest: Vec<usize> = Vec::with_capacity(n);
    let mut is_ranked = vec![false; n];
    let ranked = ranked.iter().filter(|(position, _)| *position < n);
    for (position, _) in ranked {
        if !is_ranked[*position] && !is_taken[*position] {
            rest.push(*position);
        }
        is_ranked[*position] = true;
    }
    let unranked = (0..n).filter(|position| !is_ranked[*position] && !is_taken[*position]);
    rest.extend(unranked);
    for position in rest {
        if choice.shown.len() - choice.n_kept >= bounds.max_tools {
            break;
        }
        let tokens = candidates.tokens(position);
        let with_it = choice.tokens.saturating_add(tokens);
        if bounds.token_budget.is_some_and(|budget| with_it > budget) {
            choice.n_over_budget += 1;
            continue;
        }
        choice.tokens = with_it;
        choice.shown.push(position);
    }
    choice.shown.sort_unstable();
    choice
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[derive(Debug, Clone)]
    struct Tools(Vec<(ToolDecision, u64)>);

    impl Candidates for Tools {
        fn len(&self) -> usize {
            self.0.len()
        }
        fn decision(&self, position: usize) -> ToolDecision {
            self.0[position].0
        }
        fn tokens(&self, position: usize) -> u64 {
            self.0[position].1
        }
    }

    fn free(n: usize) -> Tools {
        Tools(vec![(ToolDecision::Free, 200); n])
    }

    fn bounds(min_tools: usize, max_tools: usize, token_budget: Option<u64>) -> ListBounds {
        ListBounds {
            min_tools,
            max_tools,
            token_budget,
        }
    }

    #[test]
    fn the_most_likely_tools_are_shown() {
        let ranked = [(3, 0.5), (1, 0.3), (0, 0.1), (4, 0.003), (2, 0.001)];
        let choice = choose_tools(&free(6), &ranked, &bounds(1, 3, None));
        assert_eq!(choice.shown, [0, 1, 3]);
        assert_eq!((choice.tokens, choice.n_kept), (600, 0));
        let choice = choose_tools(&free(6), &ranked, &bounds(0, 6, None));
        assert_eq!(choice.shown, [0, 1, 2, 3, 4, 5]);
    }

    #[test]
    fn kept_tools_are_shown_and_banned_tools_are_not() {
        let tools = Tools(vec![
            (ToolDecision::Banned, 1),
            (ToolDecision::Kept, 1),
            (ToolDecision::Free, 1),
        ]);
        let ranked = [(0, 0.9), (2, 0.1)];
        let choice = choose_tools(&tools, &ranked, &bounds(0, 0, None));
        assert_eq!((choice.shown, choice.n_kept), (vec![1], 1));
        // A kept tool does not count against `max_tools`.
        let choice = choose_tools(&tools, &ranked, &bounds(0, 1, None));
        assert_eq!((choice.shown, choice.n_kept), (vec![1, 2], 1));
    }

    #[test]
    fn a_budget_below_one_tool_leaves_the_list_empty() {
        let choice = choose_tools(&free(3), &[(1, 0.9)], &bounds(2, 3, Some(199)));
        assert_eq!((choice.shown, choice.n_over_budget), (Vec::new(), 3));
    }

    fn tools() -> impl Strategy<Value = Tools> {
        let standing = prop_oneof![
            4 => Just(ToolDecision::Free),
            1 => Just(ToolDecision::Kept),
            1 => Just(ToolDecision::Banned)
        ];
        proptest::collection::vec((standing, 1..2_000_u64), 0..60).prop_map(Tools)
    }

    proptest! {
        #[test]
        fn bounds_hold_for_any_catalog_and_any_scores(
            tools in tools(),
            scores in proptest::collection::vec((0..80_usize, 0.0..1.0_f64), 0..80),
            (min_tools, more) in (0..10_usize, 0..20_usize),
            token_budget in proptest::option::of(0..20_000_u64),
        ) {
            let bounds = bounds(min_tools, min_tools + more, token_budget);
            prop_assert!(bounds.check().is_ok());
            let choice = choose_tools(&tools, &scores, &bounds);
            let standing = |standing| {
                let all = tools.0.iter().enumerate();
                all.filter(|(_, tool)| tool.0 == standing).map(|(at, _)| at).collect::<Vec<_>>()
            };
            let (kept, banned) = (standing(ToolDecision::Kept), standing(ToolDecision::Banned));
            prop_assert!(choice.shown.is_sorted_by(|a, b| a < b));
            prop_assert!(kept.iter().all(|at| choice.shown.contains(at)));
            prop_assert!(!banned.iter().any(|at| choice.shown.contains(at)));
            prop_assert_eq!(choice.n_kept, kept.len());
            prop_assert!(choice.shown.len() <= bounds.max_tools + kept.len());
            let tokens: u64 = choice.shown.iter().map(|at| tools.0[*at].1).sum();
            prop_assert_eq!(tokens, choice.tokens);
            let kept_tokens: u64 = kept.iter().map(|at| tools.0[*at].1).sum();
            if let Some(budget) = token_budget {
                prop_assert!(tokens <= budget.max(kept_tokens));
            }
            // Shorter than `min_tools` only if no other tool fits the budget.
            if choice.shown.len() - kept.len() < min_tools {
                let fits = |at: &usize| {
                    token_budget.is_none_or(|budget| tokens + tools.0[*at].1 <= budget)
                };
                let left = standing(ToolDecision::Free);
                let mut left = left.iter().filter(|at| !choice.shown.contains(at));
                prop_assert!(!left.any(fits));
            }
        }

        #[test]
        fn repeated_and_unknown_positions_do_not_change_a_choice(
            tools in tools(), seed in proptest::collection::vec(0.0..1.0_f64, 60),
        ) {
            let mut ranked: Vec<(usize, f64)> =
                (0..tools.0.len()).map(|at| (at, seed[at])).collect();
            ranked.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
            let bounds = ListBounds::default();
            let once = choose_tools(&tools, &ranked, &bounds);
            // Duplicates count once, unknown positions not at all.
            let mut twice = ranked.clone();
            twice.extend(ranked.iter().copied());
            twice.push((1_000, 1.0));
            prop_assert_eq!(once, choose_tools(&tools, &twice, &bounds));
        }
    }
}
