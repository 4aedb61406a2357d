//! A list that is steered to cover a share of the calls.

use std::collections::BTreeSet;

use crate::conformal::ConformalThreshold;

/// A list for a client that re-lists and has no prompt cache: every tool that is likely enough,
/// and what the session used. How likely that is, is steered by what happened
/// ([`ConformalThreshold`]). It stays as it is while it has all of these and is not much longer than
/// they need, so that it changes seldom.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SteeredList {
    listed: BTreeSet<usize>,
}

/// A list is made anew when it has more than this many times what it needs.
const MOST_SURPLUS: usize = 2;

impl SteeredList {
    /// Returns the positions of the tools, ascending.
    #[must_use]
    pub fn listed(&self) -> &BTreeSet<usize> {
        &self.listed
    }

    /// Makes the list hold what `ranked` and `used` need now; returns whether it is another one.
    /// `ranked` has positions with probabilities, the most likely first; at least the first
    /// `min_tools` and at most `max_tools` are in the list, besides those that were used.
    pub fn follow(
        &mut self,
        threshold: &ConformalThreshold,
        ranked: &[(usize, f64)],
        used: impl IntoIterator<Item = usize>,
        (min_tools, max_tools): (usize, usize),
    ) -> bool {
        let mut needed: BTreeSet<usize> = used.into_iter().collect();
        let n_admitted = ranked
            .iter()
            .take_while(|(_, probability)| threshold.admits(*probability))
            .count();
        for (position, _) in ranked.iter().take(n_admitted.max(min_tools)) {
            if needed.len() >= max_tools {
                break;
            }
            needed.insert(*position);
        }
        let is_enough = needed.is_subset(&self.listed);
        let is_much = self.listed.len() > needed.len().saturating_mul(MOST_SURPLUS).max(min_tools);
        if is_enough && !is_much {
            return false;
        }
        self.listed = needed;
        true
    }

    /// Adds a tool that the session needed.
    pub fn add(&mut self, position: usize) {
        self.listed.insert(position);
    }

    /// Empties the list, as at the beginning of a session.
    pub fn clear(&mut self) {
        self.listed.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_changes_when_it_lacks_something_or_has_far_too_much() {
        let threshold = ConformalThreshold::new(0.95, 4).unwrap();
        let mut list = SteeredList::default();
        assert!(list.follow(&threshold, &[(2, 0.9), (0, 0.1)], [], (1, 9)));
        assert_eq!(list.listed().iter().copied().collect::<Vec<_>>(), [2]);
        assert!(!list.follow(&threshold, &[(2, 0.9), (0, 0.1)], [], (1, 9)));
        assert!(list.follow(&threshold, &[(0, 0.9), (2, 0.1)], [2], (1, 9)));
        assert!(!list.follow(&threshold, &[(2, 0.9), (0, 0.1)], [], (1, 9)));
        list.add(3);
        assert!(list.follow(&threshold, &[(2, 0.9), (0, 0.1)], [], (1, 9)));
    }

    proptest! {
        #[test]
        fn what_was_used_is_listed_and_bounds_hold(
            ranked in proptest::collection::vec((0..40_usize, 0.0..1.0_f64), 0..40),
            used in proptest::collection::btree_set(0..40_usize, 0..10),
            (min_tools, more) in (0..5_usize, 0..10_usize),
        ) {
            let threshold = ConformalThreshold::new(0.9, 40).unwrap();
            let mut list = SteeredList::default();
            let max_tools = min_tools + more;
            list.follow(&threshold, &ranked, used.iter().copied(), (min_tools, max_tools));
            prop_assert!(used.is_subset(list.listed()));
            prop_assert!(list.listed().len() <= max_tools.max(used.len()));
        }
    }
}
