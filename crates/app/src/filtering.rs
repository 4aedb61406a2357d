//! Which tools a list shows: the one place that decides it.
//!
//! Patterns of names are applied page by page ([`ListFilter::hidden`]). What is learned decides over
//! whole lists ([`Lists`]): `policy` tells which policy a client has, `choosing` makes a choice of
//! what is predicted or, where that cannot be, of what was frequent or of the default pool; an
//! epoch keeps it (`scope`), and `rendering` makes of it what a client sees, after pins, bans and
//! overrides (`marks`). What the operator wants may change at any time (`wanted`). Tools that may not
//! be called at all are in no list, whatever chooses it (`forbidden`).

mod ask;
mod choosing;
mod epochs;
mod forbidden;
mod forecast;
mod gating;
mod lists;
mod marks;
mod options;
mod policy;
mod rendering;
mod retention;
mod scope;
mod sizes;
mod steering;
mod topical;
#[cfg(test)]
mod unreadable;
mod wanted;
mod watching;
mod widening;

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_ports::list_policy::ListPolicy;

pub use ask::{ListAsk, ListIntent};
pub use forbidden::{ForbidRules, Forbidden, ForbiddenBy, ForbiddenNames, OverrideStores, Subject};
pub use forecast::{ForecastTool, ListForecast, Placing};
pub use lists::{ListStores, Lists, ListsParts};
pub use options::{ClientRule, ListOptions, Pool};
pub use rendering::{OwnToolsUse, ShownList};
pub use widening::ListedCall;

/// Applies the configured choice of tools to lists.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    /// Another one may take its place at any time; there is none or one from start to end.
    policy: Option<Arc<ArcSwap<Arc<dyn ListPolicy>>>>,
    lists: Option<Arc<Lists>>,
    forbidden: Option<Arc<Forbidden>>,
}

impl ListFilter {
    /// Returns a filter that asks `policy` about each page; without one, every list passes whole.
    #[must_use]
    pub fn new(policy: Option<Arc<dyn ListPolicy>>) -> Self {
        Self {
            policy: policy.map(|policy| Arc::new(ArcSwap::from_pointee(policy))),
            lists: None,
            forbidden: None,
        }
    }

    /// Returns a filter that chooses whole lists by what is learned.
    #[must_use]
    pub fn learned(lists: Arc<Lists>) -> Self {
        Self {
            policy: None,
            lists: Some(lists),
            forbidden: None,
        }
    }

    /// Has calls of the tools that this knows refused, and no list have them.
    #[must_use]
    pub fn with_forbidden(self, forbidden: Arc<Forbidden>) -> Self {
        Self {
            forbidden: Some(forbidden),
            ..self
        }
    }

    /// Returns how often what is forbidden changed.
    #[must_use]
    pub fn forbid_revision(&self) -> u64 {
        self.forbidden.as_ref().map_or(0, |all| all.revision())
    }

    /// Returns what knows which tools are forbidden to whom, while any is forbidden to anybody.
    #[must_use]
    pub fn forbidden(&self) -> Option<&Arc<Forbidden>> {
        self.forbidden.as_ref().filter(|all| all.is_in_use())
    }

    /// Has another policy asked about pages from now on; without effect where none was before.
    pub fn set_policy(&self, policy: Arc<dyn ListPolicy>) {
        if let Some(asked) = &self.policy {
            asked.store(Arc::new(policy));
        }
    }

    /// Returns whether lists may be made shorter.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.policy.is_some() || self.lists.is_some()
    }

    /// Returns what chooses whole lists, where something does.
    #[must_use]
    pub fn lists(&self) -> Option<&Arc<Lists>> {
        self.lists.as_ref()
    }

    /// Returns the positions of the tools of a page to hide, ascending; none when the page passes
    /// whole, or whole lists are chosen.
    ///
    /// Positions that a policy should not have named (out of range, twice) are ignored.
    #[must_use]
    pub fn hidden(&self, context: &SelectionContext<'_>, tools: &[ToolName]) -> Vec<usize> {
        let Some(policy) = &self.policy else {
            return Vec::new();
        };
        match policy.load().select(context, tools) {
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
