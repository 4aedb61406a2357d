//! Response types for the timeline of a session.

use std::collections::HashSet;

use jiff::Timestamp;
use riglm_app::control::queries::TimelineEntry;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::WorkSessionId;
use riglm_domain::retrieval::search::Search;
use riglm_domain::selection::shown::{ListShown, SelectionReason, explain_selection};
use riglm_domain::usage::invocation::{InvocationEnd, InvocationSummary, Outcome, ToolSource};
use serde::Serialize;
use utoipa::ToSchema;

use crate::views::{ToolView, tools};

/// The longest text of an error, in characters.
const MAX_ERROR_CHARS: usize = 300;

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
    /// Source from which the client knows the tool: `shown`, `found`, `hidden` or `unlisted`.
    source: &'static str,
    /// The answer of riglm that named the tool, if `source` is `found`: `search` if a search of this
    /// timeline returned it before, or else `other_answer`. Other answers are tools predicted beside
    /// the results of a search, recommendations, answers to a declared context, and searches that
    /// are not in this timeline.
    named_by: Option<&'static str>,
    /// Whether this is the first call of a tool that the client's list did not show.
    is_miss: bool,
    /// Outcome; `null` while the call is in flight.
    outcome: Option<&'static str>,
    /// Beginning of the text of the error, with secrets removed; `null` if the tool returned none or
    /// results are not stored (`logging.include_results`).
    error: Option<String>,
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

/// Returns the entries of a timeline, which are in the order of their times.
pub(super) fn entries(timeline: Vec<TimelineEntry>) -> Vec<EntryView> {
    let mut returned: HashSet<ToolRef> = HashSet::new();
    let views = timeline.into_iter().map(|entry| match entry {
        TimelineEntry::Call { call, is_miss } => {
            let call = CallView::new(*call, &returned);
            EntryView::Call(Box::new(CallView { is_miss, ..call }))
        }
        TimelineEntry::List(list) => EntryView::List(Box::new((*list).into())),
        TimelineEntry::Search(search) => {
            let results = search.results.iter();
            returned.extend(results.map(|result| result.tool.clone()));
            EntryView::Search(Box::new((*search).into()))
        }
    });
    views.collect()
}

impl CallView {
    /// Returns the view of a call that is no miss. `returned` are the tools that earlier searches
    /// returned.
    fn new(call: InvocationSummary, returned: &HashSet<ToolRef>) -> Self {
        let (made, end) = (call.invocation, call.end);
        let tool = ToolRef {
            upstream: made.upstream,
            tool: made.tool,
        };
        let is_result = returned.contains(&tool);
        let named_by = if is_result { "search" } else { "other_answer" };
        Self {
            at: made.started_at,
            id: made.id.to_string(),
            session: made.session.to_string(),
            work_session: made.work_session.map(|id| id.to_string()),
            tool: (&tool).into(),
            source: made.source.as_str(),
            named_by: (made.source == ToolSource::Found).then_some(named_by),
            is_miss: false,
            outcome: end.as_ref().map(|end| end.outcome.as_str()),
            error: end.as_ref().and_then(error_text),
            duration_us: end.as_ref().map(|end| end.duration_us),
            wait_us: end.as_ref().map(|end| end.wait_us),
        }
    }
}

/// Returns the beginning of the text of a stored result that is an error.
fn error_text(end: &InvocationEnd) -> Option<String> {
    let result = end
        .result
        .as_ref()
        .filter(|_| end.outcome == Outcome::Error)?;
    let result: serde_json::Value = serde_json::from_str(result).ok()?;
    let content = result.get("content")?.as_array()?;
    let text = content.iter().find_map(|part| part.get("text")?.as_str())?;
    Some(text.chars().take(MAX_ERROR_CHARS).collect())
}
