//! Bounds of the length of a list.

use serde::{Deserialize, Serialize};

/// The bounds of a list. Tools that are always shown, and riglm's own tools, do not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ListBounds {
    /// Minimum number of tools, as far as the catalog and the budget allow.
    pub min_tools: usize,
    /// Maximum number of tools.
    pub max_tools: usize,
    /// Maximum number of tokens of all definitions together; `None` for no limit. It takes
    /// precedence over `min_tools`: a list may be shorter because of it.
    pub token_budget: Option<u64>,
}

/// The bounds contradict each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("min_tools ({min_tools}) must not be greater than max_tools ({max_tools})")]
pub struct BoundsError {
    /// The lower bound.
    pub min_tools: usize,
    /// The upper bound.
    pub max_tools: usize,
}

impl ListBounds {
    /// Validates the bounds.
    ///
    /// # Errors
    ///
    /// Returns [`BoundsError`] if the lower bound is above the upper bound.
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
