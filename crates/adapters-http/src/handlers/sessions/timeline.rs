//! What happened in a session, as it is shown.

use jiff::Timestamp;
use riglm_app::insight::TimelineEntry;
use riglm_domain::id::WorkSessionId;
use riglm_domain::invocation::InvocationSummary;
use riglm_domain::list_shown::{ListShown, SelectionReason};
use riglm_domain::search::Search;
use serde::Serialize;
use utoipa::ToSchema;

use crate::views::{ToolView, tools};

/// Something that happened.
#[derive(Debug, Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
#[schema(as = TimelineEntry)]
pub(crate) enum EntryView {
    /// A tool was called.
    Call(Box<CallView>),
    /// A list of tools was shown.
    List(Box<ListView>),
    /// Tools were searched.
    Search(Box<SearchView>),
}

impl EntryView {
    /// Returns whether it is the first call of a tool that the list left out.
    pub(super) fn is_miss(&self) -> bool {
        matches!(self, Self::Call(call) if call.is_miss)
    }

    /// Returns the work session that a call belongs to.
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
    /// When it was received.
    at: Timestamp,
    /// Identifies the call.
    id: String,
    /// The connection.
    session: String,
    /// The work session that it belongs to.
    work_session: Option<String>,
    /// The tool.
    #[serde(flatten)]
    tool: ToolView,
    /// How the client came to know the tool: `shown`, `found` or `hidden`.
    source: &'static str,
    /// Whether the list that the client saw left the tool out, at its first call.
    is_miss: bool,
    /// How it ended; `null` while it goes on.
    outcome: Option<&'static str>,
    /// How long the upstream took, in microseconds.
    duration_us: Option<u64>,
    /// How long the call waited before that, in microseconds, mostly for a connection to the upstream.
    wait_us: Option<u64>,
}

fn call_view(call: InvocationSummary, is_miss: bool) -> CallView {
    let made = call.invocation;
    CallView {
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
    }
}

/// A list of tools.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = ListShown)]
pub(crate) struct ListView {
    /// When it was shown.
    at: Timestamp,
    /// The connection.
    session: String,
    /// The policy that chose it.
    policy: String,
    /// Its number.
    epoch: u64,
    /// What chose the tools; `null` in rows of versions that did not keep it.
    mode: Option<&'static str>,
    /// Whether something else was to choose them.
    is_fallback: Option<bool>,
    /// Why something else chose them, or why all are shown.
    reason: Option<&'static str>,
    /// The tools, in the order of the list.
    tools: Vec<ToolView>,
    /// How many there were.
    available_tools: u64,
    /// Tokens of the definitions that it shows.
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
            tools: tools(list.tools.tools()),
            available_tools: list.n_available,
            shown_tokens: selection.map(|selection| selection.shown_tokens),
            available_tokens: selection.map(|selection| selection.available_tokens),
            policy: list.policy,
        }
    }
}

/// A search. What was asked is kept as a keyed hash, unless the operator wants the text.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Search)]
pub(crate) struct SearchView {
    /// When it was received.
    at: Timestamp,
    /// The connection.
    session: String,
    /// The query with secrets removed, where queries are stored.
    query: Option<String>,
    /// How good the answer was judged to be: `high`, `medium` or `low`.
    quality: &'static str,
    /// What was answered, best first.
    results: Vec<ToolView>,
    /// How long it took, in microseconds.
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
                Self::Call(Box::new(call_view(*call, is_miss)))
            }
            TimelineEntry::List(list) => Self::List(Box::new((*list).into())),
            TimelineEntry::Search(search) => Self::Search(Box::new((*search).into())),
        }
    }
}
