//! The results of a search, in a form for comparison.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use crate::num::to_f64;

/// The maximum number of compared results, the first ones.
const MAX_RESULTS: usize = 256;

/// A set of results, each identified by a hash of its name or of its text.
///
/// Two results have equal hashes by chance once in 2^64. Hashes are compared within one process and
/// never stored.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResultSet(Box<[u64]>);

impl ResultSet {
    /// Returns the set of results with these identities. Results after the first 256 are left out.
    pub fn of<T: AsRef<str>>(identities: impl IntoIterator<Item = T>) -> Self {
        let identities = identities.into_iter().take(MAX_RESULTS);
        let mut hashes: Vec<u64> = identities.map(|one| hash_of(one.as_ref())).collect();
        hashes.sort_unstable();
        hashes.dedup();
        Self(hashes.into())
    }

    /// Returns the number of results.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Returns whether the set is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the share of these results that another set has, from 0 to 1; `None` without
    /// results.
    ///
    /// It is a share of the new results, not of the smaller set. Ten results with two known ones
    /// bring eight new ones, however few there were before. Two results that were both among ten
    /// bring nothing.
    #[must_use]
    pub fn share_in(&self, earlier: &Self) -> Option<f64> {
        if self.is_empty() {
            return None;
        }
        let is_known = |hash: &&u64| earlier.0.binary_search(hash).is_ok();
        let n_known = self.0.iter().filter(is_known).count();
        Some(to_f64(n_known) / to_f64(self.len()))
    }
}

/// Returns a hash of a text, constant within a process.
pub(super) fn hash_of(text: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    text.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_overlap_is_a_share_of_the_current_results() {
        let few = ResultSet::of(["a", "b"]);
        let many = ResultSet::of(["c", "b", "a", "d", "b"]);
        assert_eq!((few.len(), many.len()), (2, 4));
        assert_eq!(few.share_in(&many), Some(1.0));
        assert_eq!(many.share_in(&few), Some(0.5));
        assert_eq!(few.share_in(&ResultSet::default()), Some(0.0));
        assert_eq!(ResultSet::default().share_in(&many), None);
    }

    #[test]
    fn the_number_of_results_is_bounded() {
        let set = ResultSet::of((0..10_000).map(|n| n.to_string()));
        assert_eq!(set.len(), MAX_RESULTS);
    }
}
