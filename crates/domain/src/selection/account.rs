//! Accounts of the costs and savings of the lists that a session was shown.
//!
//! A list that leaves tools out makes every prompt shorter, but the client has to search for
//! missing tools. The account is made afterwards, from the activity of the session: its lists,
//! calls and searches. The behaviour of a model with another list is unknown; [`ASSUMPTIONS`] has
//! the assumptions about it.

mod calibration;
mod summary;
mod tally;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::calibration::{Calibration, CalibrationBin};
pub use self::summary::{ListSummary, PolicySummary};
use self::tally::Tally;
use crate::catalog::tool::ToolRef;
use crate::id::WorkSessionId;
use crate::retrieval::search::Search;
use crate::selection::economics::CostModel;
use crate::selection::prices::ListPrices;
use crate::selection::shown::{ListShown, SelectionMode, ToolSet};
use crate::selection::{ExpectedCoverage, SizeChoice};
use crate::usage::invocation::{Invocation, ToolSource};

/// Assumptions about clients and models where facts are not known.
pub const ASSUMPTIONS: [&str; 8] = [
    "with all tools shown, the session would have made the same calls and no searches",
    "each call and each search is one prompt: the list and the context before it",
    "the list is written to the prompt cache once, with the first prompt, and read from it after that",
    "after a change of the list, the next prompt writes list and context to the prompt cache again",
    "a session without calls and searches sent no prompt",
    "all connections of a work session share one prompt cache",
    "the answer of a search is paid for once, not again when later prompts repeat it",
    "an answer of unknown size has the definitions of all tools that it names",
];

/// Numbers of tokens of the definitions of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListTokens {
    /// Tokens of the shown tools.
    pub shown: u64,
    /// Tokens of all tools that were available.
    pub available: u64,
}

/// A list that the session was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenList {
    /// Time at which it was shown.
    pub at: Timestamp,
    /// The policy that chose the tools.
    pub policy: String,
    /// The tools in the order of the list.
    pub tools: Arc<ToolSet>,
    /// Number of available tools.
    pub n_available: u64,
    /// Numbers of tokens of the list. `None` if they were not counted; then the list has neither
    /// costs nor savings.
    pub tokens: Option<ListTokens>,
    /// The mode in which its tools were chosen; `None` in records of older versions.
    pub mode: Option<SelectionMode>,
    /// The decision about its size, if sizes were explored.
    pub size_choice: Option<SizeChoice>,
    /// The expected coverage of the list, if a prediction selected it.
    pub expected_coverage: Option<ExpectedCoverage>,
}

/// A call that the session made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecordedCall {
    /// Time of the request.
    pub at: Timestamp,
    /// The tool.
    pub tool: ToolRef,
    /// Source from which the client knew the tool.
    pub source: ToolSource,
    /// The work session of the call: in each, a tool has a first call.
    pub work_session: Option<WorkSessionId>,
}

/// A search that the session made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordedSearch {
    /// Time of the request.
    pub at: Timestamp,
    /// Number of found tools.
    pub n_results: u64,
    /// Number of tokens of the answer, if counted.
    pub answer_tokens: Option<u64>,
}

impl From<&ListShown> for SeenList {
    fn from(list: &ListShown) -> Self {
        let tokens = list.selection.as_ref().map(|selection| ListTokens {
            shown: selection.shown_tokens,
            available: selection.available_tokens,
        });
        Self {
            at: list.shown_at,
            policy: list.policy.clone(),
            tools: Arc::new(list.tools.clone()),
            n_available: list.n_available,
            tokens,
            mode: list.selection.as_ref().map(|selection| selection.mode),
            size_choice: (list.selection.as_ref())
                .and_then(|selection| selection.size_choice.clone()),
            expected_coverage: (list.selection.as_ref())
                .and_then(|selection| selection.expected_coverage),
        }
    }
}

impl From<&Invocation> for RecordedCall {
    fn from(call: &Invocation) -> Self {
        Self {
            at: call.started_at,
            tool: ToolRef {
                upstream: call.upstream.clone(),
                tool: call.tool.clone(),
            },
            source: call.source,
            work_session: call.work_session,
        }
    }
}

impl From<&Search> for RecordedSearch {
    fn from(search: &Search) -> Self {
        Self {
            at: search.searched_at,
            n_results: search.results.len() as u64,
            answer_tokens: None,
        }
    }
}

/// The activity of a session that its lists are measured by. The order within each kind does not
/// matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListActivity {
    /// The lists that the session was shown.
    pub lists: Vec<SeenList>,
    /// Its calls. A multi-round call counts once.
    pub calls: Vec<RecordedCall>,
    /// Its searches.
    pub searches: Vec<RecordedSearch>,
}

impl ListActivity {
    /// Returns the list that was shown last; `None` without lists.
    #[must_use]
    pub fn newest_list(&self) -> Option<&SeenList> {
        self.lists.iter().max_by_key(|list| list.at)
    }
}

/// The costs and savings of the lists of a session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListAccount {
    /// Number of distinct tools in all its lists.
    pub tools_loaded: u64,
    /// Number of tools that it called, each once for each work session.
    pub tools_used: u64,
    /// Number of these tools that were not in its list at their first call in the work session.
    pub tool_misses: u64,
    /// Number of calls of hidden tools by name, without an earlier search that returned them.
    pub tool_escalations: u64,
    /// Number of searches.
    pub searches: u64,
    /// Number of lists with other tools, or another order, than the list before.
    pub list_changes: u64,
    /// Number of tools in the newest list.
    pub shown_tools: u64,
    /// Number of available tools for the newest list.
    pub available_tools: u64,
    /// Number of tokens of the newest list.
    pub shown_tokens: u64,
    /// Number of tokens of all available tools for the newest list.
    pub available_tokens: u64,
    /// Number of tokens that were left out of the prompts of all calls together; below 0 if the
    /// lists were longer than the lists of the servers.
    pub tokens_saved: i64,
    /// Cost of showing all tools minus the actual cost, in tokens at the price of one that is
    /// neither read from a cache nor written to one. Below 0 if the shorter lists cost more. A
    /// finite number.
    pub cost_avoided: f64,
}

impl ListAccount {
    /// Returns the account of a session at these prices. A list is valid for events at its time or
    /// later. Without hidden tools and without searches, the result is exactly 0.
    #[must_use]
    pub fn new(activity: &ListActivity, prices: &CostModel) -> Self {
        Self::with_calibration(activity, prices).0
    }

    /// Returns the account of a session, and the calibration of its lists, from the same events.
    #[must_use]
    pub fn with_calibration(activity: &ListActivity, prices: &CostModel) -> (Self, Calibration) {
        let newest = activity.newest_list();
        let tokens = newest.and_then(|list| list.tokens);
        let loaded = (activity.lists.iter()).flat_map(|list| list.tools.tools());
        let tally = Tally::of(activity, prices);
        let account = Self {
            tools_loaded: loaded.collect::<BTreeSet<_>>().len() as u64,
            tools_used: tally.used.len() as u64,
            tool_misses: tally.n_misses,
            tool_escalations: tally.n_escalations,
            searches: activity.searches.len() as u64,
            list_changes: tally.n_changes,
            shown_tools: newest.map_or(0, |list| list.tools.tools().len() as u64),
            available_tools: newest.map_or(0, |list| list.n_available),
            shown_tokens: tokens.map_or(0, |tokens| tokens.shown),
            available_tokens: tokens.map_or(0, |tokens| tokens.available),
            tokens_saved: tally.tokens_saved,
            cost_avoided: tally.cost_avoided(),
        };
        (account, tally.calibration)
    }
}

/// Returns the weighed cost of a session: the prices of its prompts and searches, each search
/// counted [`ListPrices::search_weight`] times, in tokens at the price of an uncached one. 0 for a
/// session without calls and searches. `None` if it had no list, if the tokens of a list were not
/// counted, or if the prices are so high that the sum is not finite.
///
/// Tools that a session lacked without looking for them leave no trace and cost nothing here.
#[must_use]
pub fn weighed_cost(activity: &ListActivity, prices: &ListPrices) -> Option<f64> {
    let is_counted = (activity.lists.iter()).all(|list| list.tokens.is_some());
    if activity.lists.is_empty() || !is_counted {
        return None;
    }
    let tally = Tally::of(activity, &prices.model);
    let cost = tally.paid + (prices.search_weight - 1.0) * tally.paid_for_searches;
    cost.is_finite().then_some(cost)
}

#[cfg(test)]
mod tests;
