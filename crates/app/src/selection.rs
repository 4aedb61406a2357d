//! Selection of the tools that a list shows. No other module decides it.
//!
//! Name patterns are applied page by page ([`ListFilter::hidden_positions`]). Learned selection works on
//! whole lists ([`Lists`]), which holds one type for each part of it:
//!
//! - `config` is the section of the configuration. `operator_settings` has it and the overrides
//!   (`operator_overrides`), both of which may change at any time. `tool_marks` and `write_gating` decide
//!   by them about single tools.
//! - `policy` finds the list policy of a client.
//! - `tool_selector` chooses the tools: by the topic of the declared context, by prediction
//!   (`list_predictor`), by call frequency, or from the default pool.
//! - `epochs` and `conformal` decide how long a choice holds. `list_scope` has the state of a list.
//! - `rendering` turns an epoch into the list of a client.
//!
//! `forbid_rules` has the tools that must not be called; they are in no list.

mod config;
mod conformal;
mod epochs;
mod forbid_rules;
mod forecast;
mod list_predictor;
mod list_request;
mod list_scope;
mod list_updates;
mod lists;
mod operator_overrides;
mod operator_settings;
mod pause;
mod policy;
mod rendering;
#[cfg(test)]
mod test_overrides;
mod token_counts;
mod tool_marks;
mod tool_selector;
mod topic_selection;
mod versioned_options;
mod warnings;
mod write_gating;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use parking_lot::Mutex;
use riglm_domain::id::ToolName;
use riglm_domain::prediction::{Selection, SelectionContext};
use riglm_ports::list_policy::ListPolicy;

pub use config::{
    ClientRule, CostsConfig, ExplorationConfig, FilteringConfig, PolicyChoice, Pool, ProfileConfig,
    ProfileFilteringConfig, SearchAnswerSize, Strategy,
};
pub use forbid_rules::{ForbidRules, Forbidden, ForbiddenBy, ForbiddenNames, Subject};
pub use forecast::{ForecastTool, ListForecast, PlacementReason};
pub use list_request::{ListIntent, ListRequest};
pub use list_updates::ListedCall;
pub use lists::{ListStores, Lists, ListsParts, SearchTerms};
pub use operator_overrides::{OperatorOverrides, OverrideStores};
pub use pause::Pause;
pub use rendering::{OwnToolsUse, ShownList};

/// The way in which the tools of lists are selected.
#[derive(Clone, Debug, Default)]
pub enum ListChoice {
    /// Lists are shown whole.
    #[default]
    Whole,
    /// Each page is selected by the names of its tools.
    Names(Arc<dyn ListPolicy>),
    /// Selection of whole lists from learned data.
    Learned,
}

/// Applies the configured selection of tools to lists. All clones share the selection, which may
/// change at any time.
#[derive(Clone, Debug, Default)]
pub struct ListFilter {
    state: Arc<SelectionState>,
    lists: Option<Arc<Lists>>,
    forbidden: Option<Arc<Forbidden>>,
}

/// The selection that all clones of a filter share.
#[derive(Debug, Default)]
struct SelectionState {
    choice: ArcSwap<ListChoice>,
    /// Locked during a change of `is_paused`.
    pause: Mutex<Pause>,
    is_paused: AtomicBool,
    n_changes: AtomicU64,
}

impl ListFilter {
    /// Creates a filter that applies `policy` to each page; `None` shows every list whole.
    #[must_use]
    pub fn new(policy: Option<Arc<dyn ListPolicy>>) -> Self {
        let filter = Self::default();
        filter.set_choice(policy.map_or(ListChoice::Whole, ListChoice::Names));
        filter
    }

    /// Creates a filter that selects whole lists from learned data, until another choice is
    /// [set](Self::set_choice).
    #[must_use]
    pub fn from_lists(lists: Arc<Lists>) -> Self {
        let filter = Self {
            lists: Some(lists),
            ..Self::default()
        };
        filter.set_choice(ListChoice::Learned);
        filter
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

    /// Replaces the way in which tools are selected.
    pub fn set_choice(&self, choice: ListChoice) {
        self.state.choice.store(Arc::new(choice));
        self.count_change();
    }

    /// Counts a change of lists that has another reason than the choice or the pause.
    pub fn count_change(&self) {
        self.state.n_changes.fetch_add(1, Ordering::AcqRel);
    }

    /// Replaces the pause; returns whether this pauses or resumes the selection at `now`.
    pub fn set_pause(&self, pause: Pause, now: Timestamp) -> bool {
        let mut known = self.state.pause.lock();
        *known = pause;
        self.follow_pause(*known, now)
    }

    /// Ends a pause whose time is over; returns whether it ended now.
    pub fn update_pause(&self, now: Timestamp) -> bool {
        let known = self.state.pause.lock();
        self.follow_pause(*known, now)
    }

    fn follow_pause(&self, pause: Pause, now: Timestamp) -> bool {
        let is_paused = pause.holds_at(now);
        if self.state.is_paused.swap(is_paused, Ordering::AcqRel) == is_paused {
            return false;
        }
        self.state.n_changes.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Returns the pause, whose time may be over.
    #[must_use]
    pub fn pause(&self) -> Pause {
        *self.state.pause.lock()
    }

    /// Returns whether the selection is paused.
    #[must_use]
    pub fn is_paused(&self) -> bool {
        self.state.is_paused.load(Ordering::Acquire)
    }

    /// Returns the number of changes of the choice, the pause and the like so far.
    #[must_use]
    pub fn n_changes(&self) -> u64 {
        self.state.n_changes.load(Ordering::Acquire)
    }

    /// Returns whether a list may be shortened now.
    #[must_use]
    pub fn is_active(&self) -> bool {
        !self.is_paused() && self.is_configured()
    }

    /// Returns whether a list may be shortened, now or after a pause.
    #[must_use]
    pub fn is_configured(&self) -> bool {
        match &**self.state.choice.load() {
            ListChoice::Whole => false,
            ListChoice::Names(_) => true,
            ListChoice::Learned => self.lists.is_some(),
        }
    }

    /// Returns the selection of whole lists if it applies now.
    #[must_use]
    pub fn lists(&self) -> Option<&Arc<Lists>> {
        self.configured_lists().filter(|_| !self.is_paused())
    }

    /// Returns the selection of whole lists if it applies, now or after a pause.
    #[must_use]
    pub fn configured_lists(&self) -> Option<&Arc<Lists>> {
        let is_learned = matches!(**self.state.choice.load(), ListChoice::Learned);
        self.lists.as_ref().filter(|_| is_learned)
    }

    /// Returns the selection of whole lists, whether it applies or not.
    #[must_use]
    pub fn all_lists(&self) -> Option<&Arc<Lists>> {
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
        let choice = self.state.choice.load();
        if let ListChoice::Names(policy) = &**choice
            && !self.is_paused()
            && let Selection::Without(mut hidden) = policy.select(context, tools)
        {
            hidden.retain(|position| *position < tools.len());
            hidden.sort_unstable();
            hidden.dedup();
            return hidden;
        }
        Vec::new()
    }
}
