//! Response types for sessions with their lists.

use riglm_app::control::list_accounts::SessionLists;
use riglm_app::control::overview::SessionWithLists;
use serde::Serialize;
use utoipa::ToSchema;

use super::ConnectionView;

/// A session with its lists.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListedSession)]
pub(crate) struct ListedSessionView {
    /// The session.
    #[serde(flatten)]
    session: ConnectionView,
    /// Its lists; `null` before the first one.
    lists: Option<SessionListsView>,
}

impl From<&SessionWithLists> for ListedSessionView {
    fn from(listed: &SessionWithLists) -> Self {
        Self {
            session: ConnectionView::from_listed(&listed.session),
            lists: listed.lists.as_ref().map(Into::into),
        }
    }
}

/// The lists of a session, with what they cost and saved.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = SessionLists)]
pub(crate) struct SessionListsView {
    /// Number of tools in the newest list.
    shown_tools: u64,
    /// Number of tools that were available for it.
    available_tools: u64,
    /// Number of tokens of the newest list.
    shown_tokens: u64,
    /// Number of tokens of all tools that were available for it.
    available_tokens: u64,
    /// Number of called tools.
    tools_used: u64,
    /// Number of tools that the list did not have at their first call.
    misses: u64,
    /// Number of searches.
    searches: u64,
    /// Number of changes of the list.
    list_changes: u64,
    /// Number of tokens that the lists left out of the prompts of all calls.
    tokens_saved: i64,
    /// Cost of showing all tools minus the actual cost, in tokens at the price of one that is in no
    /// cache.
    cost_avoided: f64,
    /// List policy of the newest list.
    policy: String,
}

impl From<&SessionLists> for SessionListsView {
    fn from(lists: &SessionLists) -> Self {
        let account = &lists.account;
        Self {
            shown_tools: account.shown_tools,
            available_tools: account.available_tools,
            shown_tokens: account.shown_tokens,
            available_tokens: account.available_tokens,
            tools_used: account.tools_used,
            misses: account.tool_misses,
            searches: account.searches,
            list_changes: account.list_changes,
            tokens_saved: account.tokens_saved,
            cost_avoided: account.cost_avoided,
            policy: lists.policy.clone(),
        }
    }
}
