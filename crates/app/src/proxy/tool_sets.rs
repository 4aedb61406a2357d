//! Which tools an upstream lists, as one set with a name of its own.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use riglm_domain::id::ToolName;
use sha2::{Digest, Sha256};

/// The most pages of a list that are taken in.
const MAX_PAGES: usize = 1_000;
/// The most names that are remembered; beyond that it is not known of any name that nobody lists it.
const MAX_NAMES: usize = 20_000;

/// The tools that an upstream listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenToolSet {
    /// SHA-256 over the pages of the list in their order, in hexadecimal: another hash is another
    /// list of tools, or other definitions of them.
    pub hash: String,
    /// How many tools there are.
    pub n_tools: usize,
    /// When the list was first seen so by this process.
    pub since: Timestamp,
    /// How often it changed since the start.
    pub n_changes: u64,
}

/// Follows the lists of an upstream, page by page.
#[derive(Debug, Default)]
pub(super) struct ToolSets(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    pages: Vec<String>,
    n_tools: usize,
    seen: Option<SeenToolSet>,
    /// All names that were ever listed.
    names: HashSet<ToolName>,
}

impl ToolSets {
    /// Notes a page, by what identifies its tools and their definitions. Pages of lists that several
    /// clients ask for at the same time may mix; a list that was asked for alone sets that right.
    pub(super) fn listed(
        &self,
        page: &str,
        names: &[ToolName],
        (is_first, is_last): (bool, bool),
        now: Timestamp,
    ) {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if state.names.len() <= MAX_NAMES {
            state.names.extend(names.iter().cloned());
        }
        if is_first {
            state.pages.clear();
            state.n_tools = 0;
        } else if state.pages.is_empty() || state.pages.len() >= MAX_PAGES {
            return;
        }
        state.pages.push(page.to_owned());
        state.n_tools += names.len();
        if !is_last {
            return;
        }
        let mut digest = Sha256::new();
        for page in std::mem::take(&mut state.pages) {
            digest.update(page);
            digest.update([0]);
        }
        let mut hash = String::with_capacity(64);
        for byte in digest.finalize() {
            let _ = write!(hash, "{byte:02x}"); // Writing to a String cannot fail.
        }
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

    /// Returns whether it is known that no list had a tool of this name.
    pub(super) fn lacks(&self, name: &ToolName) -> bool {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.is_some() && state.names.len() <= MAX_NAMES && !state.names.contains(name)
    }

    /// Returns the tools that were listed last.
    pub(super) fn seen(&self) -> Option<SeenToolSet> {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.seen.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONLY: (bool, bool) = (true, true);

    fn names(names: &[&str]) -> Vec<ToolName> {
        names.iter().map(|name| (*name).into()).collect()
    }

    #[test]
    fn a_list_is_known_at_its_end_and_changes_with_its_pages() {
        let sets = ToolSets::default();
        let at = |second| Timestamp::new(second, 0).unwrap();
        sets.listed("a", &names(&["x", "y"]), (true, false), at(1));
        assert_eq!(sets.seen(), None);
        sets.listed("b", &names(&["z"]), (false, true), at(2));
        let first = sets.seen().unwrap();
        assert_eq!((first.n_tools, first.since, first.n_changes), (3, at(2), 0));
        sets.listed("a", &names(&["x", "y"]), (true, false), at(3));
        sets.listed("b", &names(&["z"]), (false, true), at(4));
        assert_eq!(sets.seen().unwrap(), first);
        sets.listed("ab", &names(&["x", "y", "w"]), ONLY, at(5));
        let other = sets.seen().unwrap();
        assert_ne!(other.hash, first.hash);
        assert_eq!((other.n_tools, other.since, other.n_changes), (3, at(5), 1));
    }

    #[test]
    fn a_page_without_its_first_one_counts_for_nothing() {
        let sets = ToolSets::default();
        sets.listed("b", &names(&["z"]), (false, true), Timestamp::UNIX_EPOCH);
        assert_eq!(sets.seen(), None);
    }

    #[test]
    fn a_name_is_lacking_once_a_whole_list_was_seen_and_none_had_it() {
        let sets = ToolSets::default();
        let now = Timestamp::UNIX_EPOCH;
        sets.listed("a", &names(&["x"]), (true, false), now);
        assert!(!sets.lacks(&"y".into()));
        sets.listed("b", &names(&["z"]), (false, true), now);
        assert!(sets.lacks(&"y".into()) && !sets.lacks(&"x".into()));
        sets.listed("c", &names(&["y"]), ONLY, now);
        assert!(!sets.lacks(&"y".into()) && !sets.lacks(&"x".into()));
    }
}
