//! Policies of list sizes that an evaluation compares.

use std::fmt;

use riglm_domain::selection::{LIST_SIZES, ListSize};

/// A rule for the size of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum SizePolicy {
    /// The size with the lowest expected cost, as decided without exploration.
    Greedy,
    /// Always the same size.
    Fixed(ListSize),
}

impl SizePolicy {
    /// Returns the greedy rule and each size of which lists may be.
    #[must_use]
    pub fn candidates() -> Vec<Self> {
        let sizes = LIST_SIZES.into_iter().map(ListSize::Tools);
        let fixed = sizes.chain([ListSize::All]).map(Self::Fixed);
        std::iter::once(Self::Greedy).chain(fixed).collect()
    }

    /// Returns the size that the policy gives a session, by what was known before the draw: the size
    /// of the greedy rule, and the number of tools of the catalog. A fixed number of tools that the
    /// catalog does not exceed is the same as all tools.
    #[must_use]
    pub fn size(self, greedy: ListSize, n_tools: usize) -> ListSize {
        match self {
            Self::Greedy => greedy,
            Self::Fixed(ListSize::Tools(n)) if n < n_tools => ListSize::Tools(n),
            Self::Fixed(_) => ListSize::All,
        }
    }
}

impl fmt::Display for SizePolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Greedy => f.write_str("greedy"),
            Self::Fixed(size) => size.fmt(f),
        }
    }
}
