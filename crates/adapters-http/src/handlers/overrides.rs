//! `POST /override`, `GET /overrides`, `DELETE /overrides/{id}`, `GET /audit`: what operators decide
//! about the tools of lists, and what is written down of it.

use std::sync::Arc;

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderValue, StatusCode, header};
use jiff::Timestamp;
use riglm_app::overrides::{Decision, DecisionError, Overrides};
use riglm_domain::id::OverrideId;
use riglm_domain::tool_override::{OverrideAction, OverrideScope};
use serde::{Deserialize, Serialize};
use serde_json::json;
use validator::{Validate, ValidationError};

use crate::access::Actor;
use crate::body::Valid;
use crate::problem::Problem;

/// The longest name of a tool or of whom an override is for, in characters.
const MAX_NAME_CHARS: u64 = 10_000;
/// The longest reason, in characters.
const MAX_REASON_CHARS: u64 = 1_000;
/// The most entries of the audit trail in one answer.
const MAX_ENTRIES: u32 = 1_000;

/// The state of these routes; `None` where nothing is stored.
pub(crate) type Service = Option<Arc<Overrides>>;

/// The body of `POST /override`.
#[derive(Debug, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOverride {
    #[validate(length(min = 1, max = MAX_NAME_CHARS, message = "tool must be a name"))]
    tool: String,
    action: OverrideAction,
    #[validate(nested)]
    scope: ScopeBody,
    expires_at: Option<Timestamp>,
    #[validate(length(max = MAX_REASON_CHARS, message = "reason must have at most 1000 characters"))]
    reason: Option<String>,
}

#[derive(Debug, Serialize, Deserialize, Validate)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_scope"))]
pub(crate) struct ScopeBody {
    kind: ScopeKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    #[validate(length(min = 1, max = MAX_NAME_CHARS, message = "scope.id must be a name"))]
    id: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ScopeKind {
    Session,
    Client,
    Profile,
    Global,
}

fn check_scope(scope: &ScopeBody) -> Result<(), ValidationError> {
    let is_global = scope.kind == ScopeKind::Global;
    if is_global == scope.id.is_none() {
        return Ok(());
    }
    let text = if is_global {
        "scope.id must not be there for everybody"
    } else {
        "scope.id must say for whom the override is"
    };
    Err(ValidationError::new("scope").with_message(text.into()))
}

impl From<ScopeBody> for OverrideScope {
    fn from(body: ScopeBody) -> Self {
        let id = body.id.unwrap_or_default();
        match body.kind {
            ScopeKind::Session => Self::Session(id),
            ScopeKind::Client => Self::Client(id),
            ScopeKind::Profile => Self::Profile(id),
            ScopeKind::Global => Self::Global,
        }
    }
}

/// Takes a decision.
pub(crate) async fn create(
    State(service): State<Service>,
    Extension(Actor(actor)): Extension<Actor>,
    Valid(body): Valid<NewOverride>,
) -> Response {
    let Some(service) = service else {
        return nothing_stored();
    };
    let decision = Decision {
        tool: body.tool,
        action: body.action,
        scope: body.scope.into(),
        expires_at: body.expires_at,
        reason: body.reason,
    };
    match service.decide(decision, &actor).await {
        Ok(decided) => {
            let place = format!("/overrides/{}", decided.id);
            let place = HeaderValue::try_from(place).ok();
            let mut response = (StatusCode::CREATED, Json(decided)).into_response();
            if let Some(place) = place {
                response.headers_mut().insert(header::LOCATION, place);
            }
            response
        }
        Err(error @ DecisionError::Over) => {
            Problem::new(StatusCode::UNPROCESSABLE_ENTITY, error.to_string()).into_response()
        }
        Err(DecisionError::Store(error)) => store_failed(&error),
    }
}

/// Returns what holds.
pub(crate) async fn list(State(service): State<Service>) -> Response {
    let Some(service) = service else {
        return Json(json!({ "overrides": [] })).into_response();
    };
    match service.holding().await {
        Ok(overrides) => Json(json!({ "overrides": overrides })).into_response(),
        Err(error) => store_failed(&error),
    }
}

/// Removes a decision.
pub(crate) async fn remove(
    State(service): State<Service>,
    Extension(Actor(actor)): Extension<Actor>,
    id: Result<Path<String>, PathRejection>,
) -> Response {
    let id = id.ok().and_then(|Path(id)| id.parse::<OverrideId>().ok());
    let (Some(service), Some(id)) = (service, id) else {
        return no_such_override();
    };
    match service.remove(id, &actor).await {
        Ok(true) => StatusCode::NO_CONTENT.into_response(),
        Ok(false) => no_such_override(),
        Err(error) => store_failed(&error),
    }
}

/// What part of the audit trail is wanted.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct TrailQuery {
    #[serde(default = "usual_entries")]
    limit: u32,
}

fn usual_entries() -> u32 {
    100
}

/// Returns the newest entries of the audit trail.
pub(crate) async fn audit(
    State(service): State<Service>,
    query: Result<Query<TrailQuery>, QueryRejection>,
) -> Response {
    let query = query.ok().map(|Query(query)| query);
    let limit = query.map(|query| query.limit);
    let Some(limit) = limit.filter(|limit| (1..=MAX_ENTRIES).contains(limit)) else {
        let detail = format!("limit must be a number from 1 to {MAX_ENTRIES}");
        return Problem::new(StatusCode::UNPROCESSABLE_ENTITY, detail).into_response();
    };
    let Some(service) = service else {
        return Json(json!({ "entries": [] })).into_response();
    };
    match service.trail(limit).await {
        Ok(entries) => Json(json!({ "entries": entries })).into_response(),
        Err(error) => store_failed(&error),
    }
}

fn no_such_override() -> Response {
    let detail = "there is no override with this identifier";
    Problem::new(StatusCode::NOT_FOUND, detail).into_response()
}

fn nothing_stored() -> Response {
    let detail = "nothing is stored: recording.mode is off";
    Problem::new(StatusCode::CONFLICT, detail).into_response()
}

fn store_failed(error: &dyn std::error::Error) -> Response {
    tracing::warn!("the store failed for the control server: {error}");
    let detail = "the database does not answer";
    Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail).into_response()
}
