//! Which tools a list shows: the one place that decides it.

use std::collections::HashSet;
use std::sync::Arc;

use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_ports::list_policy::ListPolicy;

/// Applies the configured choice of tools to a list.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    policy: Option<Arc<dyn ListPolicy>>,
}

impl ListFilter {
    /// Returns a filter that asks `policy`; without one, every list passes whole.
    #[must_use]
    pub fn new(policy: Option<Arc<dyn ListPolicy>>) -> Self {
        Self { policy }
    }

    /// Returns whether lists may be made shorter.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.policy.is_some()
    }

    /// Returns the positions of the tools to hide, ascending; none when the list passes whole.
    ///
    /// Positions that a policy should not have named (out of range, twice) are ignored.
    #[must_use]
    pub fn hidden(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Vec<usize> {
        let Some(policy) = &self.policy else {
            return Vec::new();
        };
        match policy.select(context, tools) {
            Selection::All => Vec::new(),
            Selection::Without(positions) => {
                let mut seen = HashSet::new();
                let mut hidden: Vec<usize> = positions
                    .into_iter()
                    .filter(|position| *position < tools.len() && seen.insert(*position))
                    .collect();
                hidden.sort_unstable();
                hidden
            }
        }
    }
}
