//! A list with a conformal threshold, which adapts to cover a share of the calls.

use std::collections::BTreeSet;

use crate::selection::conformal::ConformalThreshold;

/// A list for a client that requests lists again after a notification and has no prompt cache. It
/// has every tool above a probability threshold, and the tools that the session has used. The
/// threshold adapts to misses ([`ConformalThreshold`]). The list does not change while it contains
/// all of these and is not much longer than needed, so that changes are rare.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AdaptiveList {
    listed: BTreeSet<usize>,
}

/// A list is replaced if it has more than this many times the needed tools.
const MOST_SURPLUS: usize = 2;

impl AdaptiveList {
    /// Returns the positions of the listed tools, ascending.
    #[must_use]
    pub fn positions(&self) -> &BTreeSet<usize> {
        &self.listed
    }

    /// Updates the list for `ranked` and `used`, and returns whether it changed. `ranked` has
    /// positions with probabilities, the most likely first. The list has all used tools. Up to
    /// `max_tools` in total, it also has the admitted tools, and at least the first `min_tools`.
    pub fn update(
        &mut self,
        threshold: &ConformalThreshold,
        ranked: &[(usize, f64)],
        used: impl IntoIterator<Item = usize>,
        min_tools: usize,
        max_tools: usize,
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

    /// Clears the list, as at the start of a session.
    pub fn clear(&mut self) {
        self.listed.clear();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_list_changes_if_incomplete_or_far_too_long() {
        let threshold = ConformalThreshold::new(0.95, 4).unwrap();
        let mut list = AdaptiveList::default();
        assert!(list.update(&threshold, &[(2, 0.9), (0, 0.1)], [], 1, 9));
        assert_eq!(list.positions().iter().copied().collect::<Vec<_>>(), [2]);
        assert!(!list.update(&threshold, &[(2, 0.9), (0, 0.1)], [], 1, 9));
        assert!(list.update(&threshold, &[(0, 0.9), (2, 0.1)], [2], 1, 9));
        assert!(!list.update(&threshold, &[(2, 0.9), (0, 0.1)], [], 1, 9));
        list.add(3);
        assert!(list.update(&threshold, &[(2, 0.9), (0, 0.1)], [], 1, 9));
    }

    proptest! {
        #[test]
        fn used_tools_are_listed_and_bounds_hold(
            ranked in proptest::collection::vec((0..40_usize, 0.0..1.0_f64), 0..40),
            used in proptest::collection::btree_set(0..40_usize, 0..10),
            (min_tools, more) in (0..5_usize, 0..10_usize),
        ) {
            let threshold = ConformalThreshold::new(0.9, 40).unwrap();
            let mut list = AdaptiveList::default();
            let max_tools = min_tools + more;
            list.update(&threshold, &ranked, used.iter().copied(), min_tools, max_tools);
            prop_assert!(used.is_subset(list.positions()));
            prop_assert!(list.positions().len() <= max_tools.max(used.len()));
        }
    }
}
