//! What the lists that a session was shown cost it, and what they saved it.
//!
//! A list that leaves tools out makes every prompt shorter and lets the client look for what is
//! missing. Whether that paid is told afterwards, from what the session did: the lists that it was
//! shown, its calls and its searches. What is not known, what a model would have done with another
//! list, is assumed; [`ASSUMPTIONS`] says what that is.

mod summary;
mod tally;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::summary::{ListSummary, PolicySummary};
use self::tally::Tally;
use crate::economics::CostModel;
use crate::invocation::{Invocation, ToolSource};
use crate::list_shown::{ListShown, SelectionMode, ToolSet};
use crate::search::Search;
use crate::tool::ToolRef;

/// What is assumed of clients and models where it cannot be known.
pub const ASSUMPTIONS: [&str; 8] = [
    "with all tools shown, the session would have made the same calls and no searches",
    "each call and each search is one prompt: the list and the context before it",
    "the list is written to the prompt cache once, with the first prompt, and read from it after that",
    "another list has list and context written again with the next prompt",
    "a session without calls and searches sent no prompt",
    "all connections of a work session share one prompt cache",
    "an answer of a search is paid for when it is given, not when later prompts repeat it",
    "an answer of unknown size carries the definitions of all tools that it names",
];

/// How many tokens the definitions of a list have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ListTokens {
    /// Those of the tools that were shown.
    pub shown: u64,
    /// Those of the tools that there were to choose from.
    pub available: u64,
}

/// A list that the session was shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenList {
    /// When it was shown.
    pub at: Timestamp,
    /// The policy that chose the tools.
    pub policy: String,
    /// The tools in the order of the list.
    pub tools: Arc<ToolSet>,
    /// How many tools there were to choose from.
    pub n_available: u64,
    /// How many tokens it has; `None` where they were not counted, and then it neither costs nor
    /// saves any.
    pub tokens: Option<ListTokens>,
    /// The mode in which its tools were chosen; `None` in records of older versions.
    pub mode: Option<SelectionMode>,
}

/// A call that the session made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MadeCall {
    /// When it was received.
    pub at: Timestamp,
    /// The tool.
    pub tool: ToolRef,
    /// How the client came to know the tool.
    pub source: ToolSource,
}

/// A search that the session made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MadeSearch {
    /// When it was received.
    pub at: Timestamp,
    /// How many tools were found.
    pub n_results: u64,
    /// How many tokens the answer has, where they were counted.
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
        }
    }
}

impl From<&Invocation> for MadeCall {
    fn from(call: &Invocation) -> Self {
        Self {
            at: call.started_at,
            tool: ToolRef {
                upstream: call.upstream.clone(),
                tool: call.tool.clone(),
            },
            source: call.source,
        }
    }
}

impl From<&Search> for MadeSearch {
    fn from(search: &Search) -> Self {
        Self {
            at: search.searched_at,
            n_results: search.results.len() as u64,
            answer_tokens: None,
        }
    }
}

/// What a session did that lists are judged by. The order within each kind does not matter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ListActivity {
    /// The lists that it was shown.
    pub lists: Vec<SeenList>,
    /// Its calls, each logical call once.
    pub calls: Vec<MadeCall>,
    /// Its searches.
    pub searches: Vec<MadeSearch>,
}

impl ListActivity {
    /// Returns the list that was shown last; `None` without any.
    #[must_use]
    pub fn newest_list(&self) -> Option<&SeenList> {
        self.lists.iter().max_by_key(|list| list.at)
    }
}

/// What the lists of a session came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ListAccount {
    /// Different tools in all lists that it was shown.
    pub tools_loaded: u64,
    /// Different tools that it called.
    pub tools_used: u64,
    /// Tools that its list did not show when it called them for the first time.
    pub tool_misses: u64,
    /// Calls of hidden tools by their name, without a search that had named them.
    pub tool_escalations: u64,
    /// Searches.
    pub searches: u64,
    /// Lists with other tools, or in another order, than the one before.
    pub list_changes: u64,
    /// Tools in the newest list.
    pub shown_tools: u64,
    /// Tools that there were to choose from for the newest list.
    pub available_tools: u64,
    /// Tokens of the newest list.
    pub shown_tokens: u64,
    /// Tokens of all tools that there were to choose from for the newest list.
    pub available_tokens: u64,
    /// Tokens that were left out of the prompts of all calls together; below 0 where the lists
    /// were longer than those of the servers.
    pub tokens_saved: i64,
    /// What showing everything would have cost more than what was paid, in tokens at the price of
    /// one that is neither read from a cache nor written to one; below 0 where the shorter lists
    /// cost more. A finite number.
    pub cost_avoided: f64,
}

impl ListAccount {
    /// Returns the account of a session at these prices. A list holds for what comes at its moment
    /// or later. Where nothing was hidden and nothing searched, nothing was saved: exactly 0.
    #[must_use]
    pub fn new(activity: &ListActivity, prices: &CostModel) -> Self {
        let newest = activity.newest_list();
        let tokens = newest.and_then(|list| list.tokens);
        let loaded = (activity.lists.iter()).flat_map(|list| list.tools.tools());
        let mut tally = Tally::new(prices);
        for event in in_order(activity) {
            match event {
                Event::List(list) => tally.shown(list),
                Event::Search(search) => tally.searched(search),
                Event::Call(call) => tally.called(call),
            }
        }
        Self {
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
        }
    }
}

/// Something that happened in a session.
enum Event<'a> {
    List(&'a SeenList),
    Search(&'a MadeSearch),
    Call(&'a MadeCall),
}

/// Returns what happened by moment; of one moment lists come first and calls last.
fn in_order(activity: &ListActivity) -> Vec<Event<'_>> {
    let lists = activity
        .lists
        .iter()
        .map(|list| (list.at, Event::List(list)));
    let searches = (activity.searches.iter()).map(|search| (search.at, Event::Search(search)));
    let calls = activity
        .calls
        .iter()
        .map(|call| (call.at, Event::Call(call)));
    let mut events: Vec<_> = lists.chain(searches).chain(calls).collect();
    events.sort_by_key(|(at, _)| *at);
    events.into_iter().map(|(_, event)| event).collect()
}

#[cfg(test)]
mod tests;
