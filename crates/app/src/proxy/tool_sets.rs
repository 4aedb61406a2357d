//! The set of tools that an upstream lists, identified by a hash.

use std::collections::HashSet;

use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::id::ToolName;
use sha2::{Digest, Sha256};

/// The maximum number of pages of a list.
const MAX_PAGES: usize = 1_000;
/// The maximum number of names that are remembered. Beyond it, no name counts as unlisted.
const MAX_NAMES: usize = 20_000;

/// The set of tools that an upstream listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenToolSet {
    /// SHA-256 over the pages of the list in order, in hexadecimal. It changes with the tools and
    /// with their definitions.
    pub hash: String,
    /// The number of tools.
    pub n_tools: usize,
    /// The time when this process first saw the list in this form.
    pub since: Timestamp,
    /// The number of changes since the start.
    pub n_changes: u64,
}

/// Follows the lists of an upstream page by page.
#[derive(Debug, Default)]
pub(super) struct ToolSets(Mutex<ToolSetState>);

#[derive(Debug, Default)]
struct ToolSetState {
    pages: Vec<String>,
    n_tools: usize,
    seen: Option<SeenToolSet>,
    /// All names that were ever listed.
    names: HashSet<ToolName>,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct PagePosition {
    pub(super) is_first: bool,
    pub(super) is_last: bool,
}

impl ToolSets {
    /// Adds a page, given by the id of its tools and definitions. Pages that several clients
    /// request at the same time may mix. The next list that is requested alone corrects this.
    pub(super) fn add_page(
        &self,
        page: &str,
        names: &[ToolName],
        position: PagePosition,
        now: Timestamp,
    ) {
        let mut state = self.0.lock();
        if state.names.len() <= MAX_NAMES {
            state.names.extend(names.iter().cloned());
        }
        if position.is_first {
            state.pages.clear();
            state.n_tools = 0;
        } else if state.pages.is_empty() || state.pages.len() >= MAX_PAGES {
            return;
        }
        state.pages.push(page.to_owned());
        state.n_tools += names.len();
        if !position.is_last {
            return;
        }
        let mut digest = Sha256::new();
        for page in std::mem::take(&mut state.pages) {
            digest.update(page);
            digest.update([0]);
        }
        let hash = hex::encode(digest.finalize());
        let n_tools = state.n_tools;
        let n_changes = match &state.seen {
            Some(seen) if seen.hash == hash => return,
            Some(seen) => seen.n_changes + 1,
            None => 0,
        };
        state.seen = Some(SeenToolSet {
            hash,
            n_tools,
            since: now,
            n_changes,
        });
    }

    /// Returns whether it is certain that no list contained this name.
    pub(super) fn is_unlisted(&self, name: &ToolName) -> bool {
        let state = self.0.lock();
        state.seen.is_some() && state.names.len() <= MAX_NAMES && !state.names.contains(name)
    }

    /// Returns the last listed set of tools.
    pub(super) fn last_set(&self) -> Option<SeenToolSet> {
        let state = self.0.lock();
        state.seen.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: PagePosition = PagePosition {
        is_first: true,
        is_last: false,
    };
    const LAST: PagePosition = PagePosition {
        is_first: false,
        is_last: true,
    };
    const ONLY: PagePosition = PagePosition {
        is_first: true,
        is_last: true,
    };

    fn names(names: &[&str]) -> Vec<ToolName> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn tool_sets_end_at_the_last_page() {
        let sets = ToolSets::default();
        let at = |second| Timestamp::new(second, 0).unwrap();
        sets.add_page("a", &names(&["x", "y"]), FIRST, at(1));
        assert_eq!(sets.last_set(), None);
        sets.add_page("b", &names(&["z"]), LAST, at(2));
        let first = sets.last_set().unwrap();
        assert_eq!((first.n_tools, first.since, first.n_changes), (3, at(2), 0));
        sets.add_page("a", &names(&["x", "y"]), FIRST, at(3));
        sets.add_page("b", &names(&["z"]), LAST, at(4));
        assert_eq!(sets.last_set().unwrap(), first);
        sets.add_page("ab", &names(&["x", "y", "w"]), ONLY, at(5));
        let other = sets.last_set().unwrap();
        assert_ne!(other.hash, first.hash);
        assert_eq!((other.n_tools, other.since, other.n_changes), (3, at(5), 1));
    }

    #[test]
    fn a_page_without_its_first_one_counts_for_nothing() {
        let sets = ToolSets::default();
        sets.add_page("b", &names(&["z"]), LAST, Timestamp::UNIX_EPOCH);
        assert_eq!(sets.last_set(), None);
    }

    #[test]
    fn names_are_unlisted_only_after_a_complete_list() {
        let sets = ToolSets::default();
        let now = Timestamp::UNIX_EPOCH;
        sets.add_page("a", &names(&["x"]), FIRST, now);
        assert!(!sets.is_unlisted(&"y".into()));
        sets.add_page("b", &names(&["z"]), LAST, now);
        assert!(sets.is_unlisted(&"y".into()) && !sets.is_unlisted(&"x".into()));
        sets.add_page("c", &names(&["y"]), ONLY, now);
        assert!(!sets.is_unlisted(&"y".into()) && !sets.is_unlisted(&"x".into()));
    }
}
