//! How long a list may be.

use serde::{Deserialize, Serialize};

/// The bounds of a list. Tools that are shown whatever is predicted, and the proxy's own, stand
/// outside of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBounds {
    /// The fewest tools of a list that has as many to choose from, as far as the budget goes.
    pub min_tools: usize,
    /// The most tools.
    pub max_tools: usize,
    /// The most tokens that their definitions have together; `None` for any number. It is a harder
    /// bound than `min_tools`: a list may be shorter than that because of it.
    pub token_budget: Option<u64>,
}

/// Bounds contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("min_tools ({min_tools}) must not be greater than max_tools ({max_tools})")]
pub struct BoundsError {
    /// The lower bound.
    pub min_tools: usize,
    /// The upper bound.
    pub max_tools: usize,
}

impl ListBounds {
    /// Checks that the bounds can be held.
    ///
    /// # Errors
    ///
    /// Returns [`BoundsError`] for a lower bound above the upper one.
    pub fn check(&self) -> Result<(), BoundsError> {
        if self.min_tools <= self.max_tools {
            return Ok(());
        }
        Err(BoundsError {
            min_tools: self.min_tools,
            max_tools: self.max_tools,
        })
    }
}

impl Default for ListBounds {
    fn default() -> Self {
        Self {
            min_tools: 5,
            max_tools: 20,
            token_budget: None,
        }
    }
}
