//! Response types for the timeline of a session.

use jiff::Timestamp;
use riglm_app::control::queries::TimelineEntry;
use riglm_domain::id::WorkSessionId;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::shown::{ListShown, SelectionReason, explain_selection};
use serde::Serialize;
use utoipa::ToSchema;

use crate::views::{ToolView, tools};

/// An event in a session.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = TimelineEntry)]
pub(crate) enum EntryView {
    /// A call of a tool.
    Call(Box<CallView>),
    /// A list of tools that was shown.
    List(Box<ListView>),
    /// A search for tools.
    Search(Box<SearchView>),
}

impl EntryView {
    /// Returns whether it is the first call of a tool that the list did not show.
    pub(super) fn is_miss(&self) -> bool {
        matches!(self, Self::Call(call) if call.is_miss)
    }

    /// Returns the work session of a call.
    pub(super) fn work_session(&self) -> Option<WorkSessionId> {
        match self {
            Self::Call(call) => call.work_session.as_deref()?.parse().ok(),
            Self::List(_) | Self::Search(_) => None,
        }
    }
}

/// A call.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Call)]
pub(crate) struct CallView {
    /// Time of the request.
    at: Timestamp,
    /// Identifier of the call.
    id: String,
    /// The connection.
    session: String,
    /// The work session.
    work_session: Option<String>,
    /// The tool.
    #[serde(flatten)]
    tool: ToolView,
    /// Source from which the client knows the tool: `shown`, `found` or `hidden`.
    source: &'static str,
    /// Whether this is the first call of a tool that the client's list did not show.
    is_miss: bool,
    /// Outcome; `null` while the call is in flight.
    outcome: Option<&'static str>,
    /// Duration at the upstream, in microseconds.
    duration_us: Option<u64>,
    /// Waiting time before that, in microseconds, mostly for a connection to the upstream.
    wait_us: Option<u64>,
}

/// A list of tools.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListShown)]
pub(crate) struct ListView {
    /// Time of the list.
    at: Timestamp,
    /// The connection.
    session: String,
    /// List policy.
    policy: String,
    /// Number of the list.
    epoch: u64,
    /// Mode of the selection; `null` in rows of older versions.
    mode: Option<&'static str>,
    /// Whether the selection was a fallback.
    is_fallback: Option<bool>,
    /// Reason for a fallback, or for showing all tools.
    reason: Option<&'static str>,
    /// Mode and reason in a sentence; `null` in rows of older versions.
    because: Option<&'static str>,
    /// The tools, in the order of the list.
    tools: Vec<ToolView>,
    /// Number of tools in the catalog.
    available_tools: u64,
    /// Tokens of the shown definitions.
    shown_tokens: Option<u64>,
    /// Tokens of all definitions.
    available_tokens: Option<u64>,
}

impl From<ListShown> for ListView {
    fn from(list: ListShown) -> Self {
        let selection = list.selection.as_ref();
        let reason = selection.and_then(|selection| selection.reason);
        Self {
            at: list.shown_at,
            session: list.session.to_string(),
            epoch: list.epoch,
            mode: selection.map(|selection| selection.mode.as_str()),
            is_fallback: selection.map(|selection| selection.is_fallback),
            reason: reason.map(SelectionReason::as_str),
            because: selection.map(|selection| explain_selection(selection.mode, reason)),
            tools: tools(list.tools.tools()),
            available_tools: list.n_available,
            shown_tokens: selection.map(|selection| selection.shown_tokens),
            available_tokens: selection.map(|selection| selection.available_tokens),
            policy: list.policy,
        }
    }
}

/// A search. Unless the operator enables storing of queries, only a keyed hash of the query is
/// stored.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Search)]
pub(crate) struct SearchView {
    /// Time of the request.
    at: Timestamp,
    /// The connection.
    session: String,
    /// The query with secrets removed, if queries are stored.
    query: Option<String>,
    /// Estimated quality of the results: `high`, `medium` or `low`.
    quality: &'static str,
    /// Results, the best first.
    results: Vec<ToolView>,
    /// Duration, in microseconds.
    duration_us: u64,
}

impl From<Search> for SearchView {
    fn from(search: Search) -> Self {
        Self {
            at: search.searched_at,
            session: search.session.to_string(),
            quality: search.quality.as_str(),
            results: tools(search.results.iter().map(|result| &result.tool)),
            duration_us: search.duration_us,
            query: search.query,
        }
    }
}

impl From<TimelineEntry> for EntryView {
    fn from(entry: TimelineEntry) -> Self {
        match entry {
            TimelineEntry::Call { call, is_miss } => {
                let made = call.invocation;
                Self::Call(Box::new(CallView {
                    at: made.started_at,
                    id: made.id.to_string(),
                    session: made.session.to_string(),
                    work_session: made.work_session.map(|id| id.to_string()),
                    tool: ToolView::new(made.upstream.as_str(), made.tool.as_str()),
                    source: made.source.as_str(),
                    is_miss,
                    outcome: call.end.as_ref().map(|end| end.outcome.as_str()),
                    duration_us: call.end.as_ref().map(|end| end.duration_us),
                    wait_us: call.end.as_ref().map(|end| end.wait_us),
                }))
            }
            TimelineEntry::List(list) => Self::List(Box::new((*list).into())),
            TimelineEntry::Search(search) => Self::Search(Box::new((*search).into())),
        }
    }
}
