//! `GET /sessions` and `GET /sessions/{id}`: who is and was connected, and what happened.

mod timeline;

use std::collections::BTreeSet;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use jiff::Timestamp;
use riglm_app::insight::{Insight, ListedSession, SessionView};
use riglm_app::names::{UnknownName, quoted};
use riglm_domain::id::{SessionId, WorkSessionId};
use riglm_domain::session::SessionSummary;
use riglm_domain::work_session::WorkSession;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use self::timeline::EntryView;
use crate::path::Segment;
use crate::problem::{Guarded, Named, Parametrised, Problem, Stored};
use crate::query::{Params, foreign_cursor};
use crate::router::ControlParts;

/// Which sessions are wanted.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionsQuery {
    /// Only those that are open, or only those that ended.
    state: Option<SessionState>,
    /// The most sessions.
    #[serde(default = "usual_sessions")]
    #[validate(range(min = 1, max = 500, message = "limit must be a number from 1 to 500"))]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: u32,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

/// Whether a session is open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum SessionState {
    /// Its end is not recorded.
    Active,
    /// It ended.
    Past,
}

fn usual_sessions() -> u32 {
    50
}

/// A page of sessions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionList {
    /// The newest first.
    sessions: Vec<ConnectionView>,
    /// Where older ones begin; `null` where there are none.
    next_cursor: Option<String>,
}

/// A session of a client: one connection.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Session)]
pub(crate) struct ConnectionView {
    /// Identifies the connection.
    id: String,
    /// Whether it is open.
    state: SessionState,
    /// Whose it is.
    principal: String,
    /// The name that the client gives itself.
    client: String,
    /// Keyed hash of the client, by which overrides name it.
    client_id: String,
    /// The profile under which it is connected.
    profile: Option<String>,
    /// The revision of the protocol.
    protocol: String,
    /// The transport.
    transport: String,
    /// When it began.
    started_at: Timestamp,
    /// When it ended; `null` while it is open.
    ended_at: Option<Timestamp>,
    /// How many calls it made; lists of sessions count to 1,000.
    calls: u64,
    /// Whether it made more calls than `calls` says.
    has_more_calls: bool,
    /// The work sessions that its calls belong to; in lists of sessions, its newest 1,000 calls.
    work_sessions: Vec<String>,
    /// Probability that its client looks for a tool that it needs and that its list leaves out, by what
    /// it did so far, from 0 to 1: lists of clients that do not look are longer. `null` where that is
    /// not known.
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
            client_id: session.client.to_string(),
            profile: session.profile.clone(),
            protocol: session.protocol.as_str().into(),
            transport: session.transport.as_str().into(),
            started_at: session.started_at,
            ended_at: summary.ended_at,
            calls: summary.n_calls,
            has_more_calls: false,
            work_sessions: work.iter().map(ToString::to_string).collect(),
            looks_for_hidden_tools: looks_for_hidden_tools.map(|seeks| (seeks * 1e4).round() / 1e4),
        }
    }

    fn listed(session: &ListedSession) -> Self {
        Self {
            has_more_calls: session.has_more_calls,
            ..Self::new(&session.summary, &session.work_sessions, session.seeks)
        }
    }
}

/// What a client does over one or several connections.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = WorkSession)]
pub(crate) struct WorkView {
    /// Identifies the work session.
    id: String,
    /// Whose it is.
    principal: String,
    /// Keyed hash of the client.
    client_id: String,
    /// When its first request came.
    started_at: Timestamp,
    /// When its last request came.
    last_active_at: Timestamp,
}

impl From<&WorkSession> for WorkView {
    fn from(work: &WorkSession) -> Self {
        Self {
            id: work.id.to_string(),
            principal: work.principal.to_string(),
            client_id: work.client.to_string(),
            started_at: work.started_at,
            last_active_at: work.last_active_at,
        }
    }
}

/// A session with what happened in it.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct SessionDetail {
    /// The connection, where the identifier is that of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    session: Option<ConnectionView>,
    /// The work session, where the identifier is that of one.
    #[serde(skip_serializing_if = "Option::is_none")]
    work_session: Option<WorkView>,
    /// Calls of tools that the list left out, each tool once.
    misses: u64,
    /// What happened, the oldest first.
    timeline: Vec<EntryView>,
    /// Whether there is more, which is older.
    is_cut: bool,
}

/// Sessions, the newest first.
#[utoipa::path(
    get, path = "/sessions", operation_id = "listSessions", tag = "observing", security(("token" = ["read"])),
    params(SessionsQuery),
    responses(
        (status = OK, description = "A page.", body = SessionList),
        Guarded, Stored, Parametrised,
    )
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Params(query): Params<SessionsQuery>,
) -> Response {
    let before = match query.cursor.as_deref().map(read_cursor) {
        None => None,
        Some(Some(before)) => Some(before),
        Some(None) => return foreign_cursor().into_response(),
    };
    let Some(insight) = &parts.insight else {
        return Problem::nothing_stored().into_response();
    };
    let is_open = query.state.map(|state| state == SessionState::Active);
    match insight.sessions(before, is_open, query.limit).await {
        Ok(page) => {
            let sessions = page.sessions.iter();
            let next = page.next;
            Json(SessionList {
                sessions: sessions.map(ConnectionView::listed).collect(),
                next_cursor: next.map(|(at, id)| format!("{}.{id}", at.as_microsecond())),
            })
            .into_response()
        }
        Err(error) => Problem::store_failed(&error).into_response(),
    }
}

fn read_cursor(cursor: &str) -> Option<(Timestamp, SessionId)> {
    let (at, id) = cursor.split_once('.')?;
    let at = Timestamp::from_microsecond(at.parse().ok()?).ok()?;
    Some((at, id.parse().ok()?))
}

/// How much of a session is wanted.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct DetailQuery {
    /// The most calls, lists and searches, each.
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

/// A session with what happened in it: calls, lists, searches, and what was missed. It is named by
/// its work session, by its connection, or by the identifier that its transport gave to an open one.
#[utoipa::path(
    get, path = "/sessions/{id}", operation_id = "getSession", tag = "observing", security(("token" = ["read"])),
    params(("id" = String, Path, description = "The session."), DetailQuery),
    responses(
        (status = OK, description = "The session.", body = SessionDetail),
        Guarded, Stored, Parametrised, Named,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Segment(id): Segment,
    Params(query): Params<DetailQuery>,
) -> Response {
    let Some(insight) = &parts.insight else {
        return Problem::nothing_stored().into_response();
    };
    match detail(insight, &id, query.limit).await {
        Ok(Some(detail)) => Json(detail).into_response(),
        Ok(None) => {
            let detail = UnknownName::Session(quoted(&id)).to_string();
            Problem::new(StatusCode::NOT_FOUND, detail).into_response()
        }
        Err(error) => Problem::store_failed(&*error).into_response(),
    }
}

async fn detail(
    insight: &Insight,
    id: &str,
    limit: u32,
) -> Result<Option<SessionDetail>, Box<dyn std::error::Error + Send + Sync>> {
    let Some(session) = insight.session(id).await? else {
        return Ok(None);
    };
    let read = insight.timeline(&session, limit).await?;
    let timeline: Vec<EntryView> = read.entries.into_iter().map(Into::into).collect();
    let (connection, work_session) = match &session {
        SessionView::Connection(summary) => {
            let work = timeline.iter().filter_map(EntryView::work_session);
            let work: BTreeSet<WorkSessionId> = work.collect();
            let seeks = insight.seeks(summary);
            (Some(ConnectionView::new(summary, &work, seeks)), None)
        }
        SessionView::Work(work) => (None, Some(WorkView::from(work))),
    };
    Ok(Some(SessionDetail {
        session: connection,
        work_session,
        misses: timeline.iter().filter(|entry| entry.is_miss()).count() as u64,
        timeline,
        is_cut: read.is_cut,
    }))
}
