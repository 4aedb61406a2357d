//! Selection of the tools that a list shows. No other module decides it.
//!
//! Name patterns are applied page by page ([`ListFilter::hidden_positions`]). Learned selection works on
//! whole lists ([`Lists`]), which holds one type for each part of it:
//!
//! - `config` is the section of the configuration. `operator_settings` has it and the overrides, both of
//!   which may change at any time. `tool_marks` and `write_gating` decide by them about single tools.
//! - `policy` finds the list policy of a client.
//! - `tool_selector` chooses the tools: by the topic of the declared context, by prediction
//!   (`list_predictor`), by call frequency, or from the default pool.
//! - `epochs` and `conformal` decide how long a choice holds. `list_scope` has the state of a list.
//! - `rendering` turns an epoch into the list of a client.
//!
//! `forbid_rules` has the tools that must not be called; they are in no list.

mod change_polling;
mod config;
mod conformal;
mod epochs;
#[cfg(test)]
mod failing_overrides;
mod forbid_rules;
mod forecast;
mod list_predictor;
mod list_request;
mod list_scope;
mod list_updates;
mod lists;
mod operator_settings;
mod policy;
mod rendering;
mod token_counts;
mod tool_marks;
mod tool_selector;
mod topic_selection;
mod versioned_options;
mod warnings;
mod write_gating;

use std::collections::HashSet;
use std::sync::Arc;

use arc_swap::ArcSwap;
use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_ports::list_policy::ListPolicy;

pub use config::{
    ClientRule, CostsConfig, FilteringConfig, PolicyChoice, Pool, ProfileConfig,
    ProfileFilteringConfig, SearchAnswerSize, Strategy,
};
pub use forbid_rules::{
    ForbidRules, Forbidden, ForbiddenBy, ForbiddenNames, OverrideStores, Subject,
};
pub use forecast::{ForecastTool, ListForecast, PlacementReason};
pub use list_request::{ListIntent, ListRequest};
pub use list_updates::ListedCall;
pub use lists::{ListStores, Lists, ListsParts};
pub use rendering::{OwnToolsUse, ShownList};

/// Applies the configured selection of tools to lists.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    // May be replaced at any time, but it is either present or absent for the whole run.
    policy: Option<Arc<ArcSwap<Arc<dyn ListPolicy>>>>,
    lists: Option<Arc<Lists>>,
    forbidden: Option<Arc<Forbidden>>,
}

impl ListFilter {
    /// Creates a filter that applies `policy` to each page; `None` shows every list whole.
    #[must_use]
    pub fn new(policy: Option<Arc<dyn ListPolicy>>) -> Self {
        Self {
            policy: policy.map(|policy| Arc::new(ArcSwap::from_pointee(policy))),
            lists: None,
            forbidden: None,
        }
    }

    /// Creates a filter that selects whole lists from learned data.
    #[must_use]
    pub fn from_lists(lists: Arc<Lists>) -> Self {
        Self {
            policy: None,
            lists: Some(lists),
            forbidden: None,
        }
    }

    /// Adds the forbidden tools: their calls are refused, and no list has them.
    #[must_use]
    pub fn with_forbidden(self, forbidden: Arc<Forbidden>) -> Self {
        Self {
            forbidden: Some(forbidden),
            ..self
        }
    }

    /// Returns the revision of the forbidden tools; it grows with each change.
    #[must_use]
    pub fn forbid_revision(&self) -> u64 {
        self.forbidden.as_ref().map_or(0, |all| all.revision())
    }

    /// Returns the registry of forbidden tools; `None` while no tool is forbidden to any client.
    #[must_use]
    pub fn forbidden(&self) -> Option<&Arc<Forbidden>> {
        self.forbidden.as_ref().filter(|all| all.is_in_use())
    }

    /// Replaces the policy for pages. Has no effect on a filter without one.
    pub fn set_policy(&self, policy: Arc<dyn ListPolicy>) {
        if let Some(asked) = &self.policy {
            asked.store(Arc::new(policy));
        }
    }

    /// Returns whether a list may be shortened.
    #[must_use]
    pub fn is_active(&self) -> bool {
        self.policy.is_some() || self.lists.is_some()
    }

    /// Returns the selection of whole lists, if it is configured.
    #[must_use]
    pub fn lists(&self) -> Option<&Arc<Lists>> {
        self.lists.as_ref()
    }

    /// Returns the positions of the tools of a page to hide, ascending. Empty if the whole page is
    /// shown, or if whole lists are selected.
    ///
    /// Ignores positions that a policy should not return (out of range or repeated).
    #[must_use]
    pub fn hidden_positions(
        &self,
        context: &SelectionContext<'_>,
        tools: &[ToolName],
    ) -> Vec<usize> {
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
