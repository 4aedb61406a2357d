//! `GET /sessions` and `GET /sessions/{id}`: connections of clients, and the events in a session.

mod lists;
mod timeline;

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_app::control::StoreError;
use riglm_app::control::name_lookup::{UnknownName, quote};
use riglm_app::control::queries::{ListedSession, Queries, SessionView};
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::usage::session::SessionSummary;
use riglm_domain::usage::work_session::WorkSession;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

pub(crate) use self::lists::ListedSessionView;
use self::timeline::{EntryView, entries};
use crate::path::Segment;
use crate::problem::{
    NotFoundError, ParameterErrors, Problem, StoreErrors, TokenErrors, require_store,
};
use crate::query::{Params, invalid_cursor};
use crate::state::ControlParts;
use crate::views::{ToolView, tools};

/// The most hidden tools of a session in an answer.
const MAX_HIDDEN: usize = 1_000;

/// Filter and page parameters.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionsQuery {
    /// Only open sessions, or only past ones.
    state: Option<SessionState>,
    /// Maximum number of sessions.
    #[serde(default = "usual_sessions")]
    #[validate(range(min = 1, max = 500, message = "limit must be a number from 1 to 500"))]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: u32,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

/// State of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionState {
    /// The session is open: no end is recorded.
    Active,
    /// The session ended.
    Past,
}

fn usual_sessions() -> u32 {
    50
}

/// A page of sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionList {
    /// Sessions, the newest first.
    sessions: Vec<ListedSessionView>,
    /// Cursor of the next page, with older sessions; `null` on the last page.
    next_cursor: Option<String>,
}

/// A session of a client: one connection.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct ConnectionView {
    /// Identifier of the connection.
    id: String,
    /// State of the session.
    state: SessionState,
    /// Principal of the session.
    principal: String,
    /// Name that the client declares.
    client: String,
    /// Version that the client declares. Another version is another client, with another `client_id`.
    client_version: String,
    /// Keyed hash of principal, name and version of the client. Overrides refer to the client by it.
    client_id: String,
    /// Profile of the connection.
    profile: Option<String>,
    /// Protocol revision.
    protocol: String,
    /// Transport.
    transport: String,
    /// Time of the start.
    started_at: Timestamp,
    /// Time of the end; `null` while the session is open.
    ended_at: Option<Timestamp>,
    /// Number of calls. In lists of sessions, at most 1,000 are counted.
    calls: u64,
    /// Whether there are more calls than `calls`.
    has_more_calls: bool,
    /// Work sessions of its calls. In lists of sessions, of the newest 1,000 calls.
    work_sessions: Vec<String>,
    /// Probability, from 0 to 1, that the client searches for a tool that it needs and its list
    /// does not show, estimated from its behavior so far. Clients that do not search get longer
    /// lists. `null` if unknown.
    looks_for_hidden_tools: Option<f64>,
}

impl ConnectionView {
    fn new(
        summary: &SessionSummary,
        work: &BTreeSet<WorkSessionId>,
        looks_for_hidden_tools: Option<f64>,
    ) -> Self {
        let session = &summary.session;
        Self {
            id: session.id.to_string(),
            state: if summary.ended_at.is_none() {
                SessionState::Active
            } else {
                SessionState::Past
            },
            principal: session.principal.to_string(),
            client: session.client_info.name.clone(),
            client_version: session.client_info.version.clone(),
            client_id: session.client.to_string(),
            profile: session.profile.clone(),
            protocol: session.protocol.as_str().into(),
            transport: session.transport.as_str().into(),
            started_at: session.started_at,
            ended_at: summary.ended_at,
            calls: summary.n_calls,
            has_more_calls: false,
            work_sessions: work.iter().map(ToString::to_string).collect(),
            looks_for_hidden_tools: looks_for_hidden_tools
                .map(|search_probability| (search_probability * 1e4).round() / 1e4),
        }
    }

    pub(crate) fn from_listed(session: &ListedSession) -> Self {
        Self {
            has_more_calls: session.has_more_calls,
            ..Self::new(
                &session.summary,
                &session.work_sessions,
                session.search_probability,
            )
        }
    }
}

/// A work session: the calls of one task, over one or several connections.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkSession)]
pub(crate) struct WorkView {
    /// Identifier of the work session.
    id: String,
    /// Connection of its newest call; `null` if no call is recorded, as for the further values of the
    /// connection.
    session: Option<String>,
    /// `active` if that connection is open, and its newest call is of this work session.
    state: Option<SessionState>,
    /// Principal of the work session.
    principal: String,
    /// Name that the client declares.
    client: Option<String>,
    /// Version that the client declares.
    client_version: Option<String>,
    /// Keyed hash of the client.
    client_id: String,
    /// Protocol revision of the connection.
    protocol: Option<String>,
    /// Time of the first request.
    started_at: Timestamp,
    /// Time of the last request.
    last_active_at: Timestamp,
}

impl WorkView {
    async fn read(queries: &Queries, work: &WorkSession) -> Result<Self, StoreError> {
        let newest = queries.newest_connection_of(work.id).await?;
        let state = match &newest {
            None => None,
            Some(newest) if queries.is_working_on(newest, work.id).await? => {
                Some(SessionState::Active)
            }
            Some(_) => Some(SessionState::Past),
        };
        let connection = newest.as_ref().map(|newest| &newest.session);
        let client = connection.map(|connection| &connection.client_info);
        Ok(Self {
            id: work.id.to_string(),
            session: connection.map(|connection| connection.id.to_string()),
            state,
            principal: work.principal.to_string(),
            client: client.map(|client| client.name.clone()),
            client_version: client.map(|client| client.version.clone()),
            client_id: work.client.to_string(),
            protocol: connection.map(|connection| connection.protocol.as_str().into()),
            started_at: work.started_at,
            last_active_at: work.last_active_at,
        })
    }
}

/// A session with its timeline.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionDetail {
    /// The connection, if the identifier names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<ConnectionView>,
    /// The work session, if the identifier names one.
    #[serde(skip_serializing_if = "Option::is_none")]
    work_session: Option<WorkView>,
    /// Calls of tools that the list did not show; each tool counts once.
    misses: u64,
    /// Events of the session, the oldest first.
    timeline: Vec<EntryView>,
    /// Tools that the newest list left out, of those from which it was selected; at most 1,000. They
    /// were not chosen, or an operator hid them: records do not tell which.
    hidden_tools: Vec<ToolView>,
    /// Whether there are older entries.
    is_cut: bool,
}

/// List sessions, the newest first, with what their lists cost and saved.
#[utoipa::path(
    get, path = "/sessions", operation_id = "listSessions", tag = "observing", security(("token" = ["read"])),
    params(SessionsQuery),
    responses(
        (status = OK, description = "A page of sessions.", body = SessionList),
        TokenErrors, StoreErrors, ParameterErrors,
    )
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Params(query): Params<SessionsQuery>,
) -> Result<Json<SessionList>, Problem> {
    let cursor = query.cursor.as_deref();
    let before = cursor
        .map(|cursor| read_cursor(cursor).ok_or_else(invalid_cursor))
        .transpose()?;
    let is_open = query.state.map(|state| state == SessionState::Active);
    let page = parts
        .overview
        .sessions(before, is_open, query.limit)
        .await?;
    let page = require_store(page)?;
    Ok(Json(SessionList {
        sessions: page.sessions.iter().map(Into::into).collect(),
        // The time alone is not unique.
        next_cursor: page
            .next
            .map(|(at, id)| format!("{}.{id}", at.as_microsecond())),
    }))
}

fn read_cursor(cursor: &str) -> Option<(Timestamp, SessionId)> {
    let (at, id) = cursor.split_once('.')?;
    let at = Timestamp::from_microsecond(at.parse().ok()?).ok()?;
    Some((at, id.parse().ok()?))
}

/// Limits of the response.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DetailQuery {
    /// Maximum number of calls, of lists and of searches.
    #[serde(default = "usual_entries")]
    #[validate(range(
        min = 1,
        max = 1_000,
        message = "limit must be a number from 1 to 1000"
    ))]
    #[param(minimum = 1, maximum = 1_000, default = 200)]
    limit: u32,
}

fn usual_entries() -> u32 {
    200
}

/// Show a session with its calls, lists, searches and misses.
///
/// The session is named by its work session, its connection, or, while it is open, the identifier
/// of its transport.
#[utoipa::path(
    get, path = "/sessions/{id}", operation_id = "getSession", tag = "observing", security(("token" = ["read"])),
    params(("id" = String, Path, description = "Identifier of the session."), DetailQuery),
    responses(
        (status = OK, description = "The session, with its timeline.", body = SessionDetail),
        TokenErrors, StoreErrors, ParameterErrors, NotFoundError,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Segment(id): Segment,
    Params(query): Params<DetailQuery>,
) -> Result<Json<SessionDetail>, Problem> {
    let queries = require_store(parts.queries)?;
    let detail = detail(&queries, &id, query.limit).await?;
    let unknown = || Problem::not_found(UnknownName::Session(quote(&id)).to_string());
    Ok(Json(detail.ok_or_else(unknown)?))
}

async fn detail(
    queries: &Queries,
    id: &str,
    limit: u32,
) -> Result<Option<SessionDetail>, StoreError> {
    let Some(session) = queries.session(id).await? else {
        return Ok(None);
    };
    let read = queries.timeline(&session, limit).await?;
    let hidden_tools = tools(&read.hidden_tools(MAX_HIDDEN));
    let timeline = entries(read.entries);
    let (connection, work_session) = match &session {
        SessionView::Connection(summary) => {
            let work = timeline.iter().filter_map(EntryView::work_session);
            let work: BTreeSet<WorkSessionId> = work.collect();
            let search_probability = queries.search_probability(summary);
            (
                Some(ConnectionView::new(summary, &work, search_probability)),
                None,
            )
        }
        SessionView::Work(work) => (None, Some(WorkView::read(queries, work).await?)),
    };
    Ok(Some(SessionDetail {
        session: connection,
        work_session,
        misses: timeline.iter().filter(|entry| entry.is_miss()).count() as u64,
        timeline,
        hidden_tools,
        is_cut: read.is_cut,
    }))
}
