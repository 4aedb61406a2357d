//! `POST /override`, `GET /overrides`, `DELETE /overrides/{id}`: decisions of operators about
//! tools.

use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use http::{StatusCode, header};
use jiff::Timestamp;
use riglm_app::control::name_lookup::{UnknownName, quote};
use riglm_app::control::overrides::{Decision, DecisionError};
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::OverrideId;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::{Validate, ValidationError};

use crate::access::Actor;
use crate::body::Valid;
use crate::path::Segment;
use crate::problem::{BodyErrors, NotFoundError, Problem, StoreErrors, TokenErrors, require_store};
use crate::state::ControlParts;

/// The longest name of a tool or scope, in characters.
const MAX_NAME_CHARS: u64 = 10_000;
/// The longest reason, in characters.
const MAX_REASON_CHARS: u64 = 1_000;

/// A decision about a tool.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewOverride {
    /// The tool, by the name that clients see.
    #[validate(length(
        min = 1,
        max = MAX_NAME_CHARS,
        message = "tool must have 1 to 10000 characters"
    ))]
    #[schema(min_length = 1, max_length = 10_000)]
    tool: String,
    /// Action.
    #[schema(value_type = ActionName)]
    action: OverrideAction,
    /// Scope of the override.
    #[validate(nested)]
    scope: ScopeBody,
    /// End of the override. If absent, it does not expire.
    expires_at: Option<Timestamp>,
    /// Reason.
    #[validate(length(max = MAX_REASON_CHARS, message = "reason must have at most 1000 characters"))]
    #[schema(max_length = 1_000)]
    reason: Option<String>,
    /// Whether to accept a tool that no upstream has listed so far.
    #[serde(default)]
    allow_unknown: bool,
}

/// Action of an override: show the tool, hide it, show it first, or forbid its calls.
#[derive(Clone, Copy, Debug, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[expect(dead_code, reason = "it describes values, which the domain has")]
enum ActionName {
    Include,
    Exclude,
    Pin,
    Forbid,
}

/// Scope of an override.
#[derive(Debug, Serialize, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_scope"))]
#[schema(as = OverrideScope)]
pub(crate) struct ScopeBody {
    /// Kind of scope.
    kind: ScopeKind,
    /// The session (a work session, a connection, or the `Mcp-Session-Id` of an open one), the
    /// client (its `client_id`, or its name if only one client has it), or the profile. Absent for
    /// scope `global`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[validate(length(
        min = 1,
        max = MAX_NAME_CHARS,
        message = "scope.id must have 1 to 10000 characters"
    ))]
    #[schema(min_length = 1, max_length = 10_000)]
    id: Option<String>,
}

/// Kind of scope, the narrowest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum ScopeKind {
    /// A work session or a connection.
    Session,
    /// A client.
    Client,
    /// A profile.
    Profile,
    /// All clients.
    Global,
}

fn check_scope(scope: &ScopeBody) -> Result<(), ValidationError> {
    let is_global = scope.kind == ScopeKind::Global;
    if is_global == scope.id.is_none() {
        return Ok(());
    }
    let text = if is_global {
        "scope.id must not be set with scope.kind global"
    } else {
        "scope.id is missing: set the session, client or profile"
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

impl From<OverrideScope> for ScopeBody {
    fn from(scope: OverrideScope) -> Self {
        let (kind, id) = match scope {
            OverrideScope::Session(id) => (ScopeKind::Session, Some(id)),
            OverrideScope::Client(id) => (ScopeKind::Client, Some(id)),
            OverrideScope::Profile(id) => (ScopeKind::Profile, Some(id)),
            OverrideScope::Global => (ScopeKind::Global, None),
        };
        Self { kind, id }
    }
}

/// An override.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Override)]
pub(crate) struct OverrideView {
    /// Identifier of the override.
    id: String,
    /// The tool.
    tool: String,
    /// Action.
    #[schema(value_type = ActionName)]
    action: OverrideAction,
    /// Scope of the override.
    scope: ScopeBody,
    /// End of the override; `null` if it does not expire.
    expires_at: Option<Timestamp>,
    /// Reason.
    reason: Option<String>,
    /// Principal that created the override.
    created_by: String,
    /// Time of creation.
    created_at: Timestamp,
    /// The reason if the override does not affect lists.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'static str>,
}

impl From<ToolOverride> for OverrideView {
    fn from(decided: ToolOverride) -> Self {
        Self {
            id: decided.id.to_string(),
            tool: decided.tool,
            action: decided.action,
            scope: decided.scope.into(),
            expires_at: decided.expires_at,
            reason: decided.reason,
            created_by: decided.created_by.to_string(),
            created_at: decided.created_at,
            note: None,
        }
    }
}

/// The overrides in effect.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct OverrideList {
    /// Overrides, the oldest first.
    overrides: Vec<OverrideView>,
}

impl From<DecisionError> for Problem {
    fn from(error: DecisionError) -> Self {
        match error {
            DecisionError::Store(error) => error.into(),
            DecisionError::Name(UnknownName::Clients { .. })
            | DecisionError::Over(_)
            | DecisionError::Tool(_)
            | DecisionError::SharedList(_) => Self::unprocessable(error.to_string()),
            DecisionError::Name(_) => Self::not_found(error.to_string()),
        }
    }
}

/// Create an override, replacing one for the same tool and scope.
///
/// The scope in the response has identifiers in place of the names in the request.
#[utoipa::path(
    post, path = "/override", operation_id = "createOverride", tag = "deciding", security(("token" = ["override"])),
    request_body = NewOverride,
    responses(
        (status = CREATED, description = "The override is in effect.", body = OverrideView,
            headers(("location" = String, description = "Path of the override, for DELETE."))),
        TokenErrors, StoreErrors, BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn create(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Valid(body): Valid<NewOverride>,
) -> Result<impl IntoResponse, Problem> {
    let service = require_store(parts.overrides)?;
    let decision = Decision {
        tool: body.tool,
        action: body.action,
        scope: body.scope.into(),
        expires_at: body.expires_at,
        reason: body.reason,
        allows_unknown: body.allow_unknown,
    };
    let decided = service.decide(decision, &actor).await?;
    let location = format!("/overrides/{}", decided.id);
    let note = service.note(decided.action);
    let body = OverrideView {
        note,
        ..decided.into()
    };
    let headers = [(header::LOCATION, location)];
    Ok((StatusCode::CREATED, headers, Json(body)))
}

/// List the overrides in effect.
#[utoipa::path(
    get, path = "/overrides", operation_id = "listOverrides", tag = "deciding", security(("token" = ["read"])),
    responses((status = OK, description = "The overrides in effect.", body = OverrideList), TokenErrors, StoreErrors)
)]
pub(crate) async fn list(State(parts): State<ControlParts>) -> Result<Json<OverrideList>, Problem> {
    let Some(service) = parts.overrides else {
        return Ok(Json(OverrideList::default()));
    };
    let active = service.active_overrides().await?;
    Ok(Json(OverrideList {
        overrides: active.into_iter().map(Into::into).collect(),
    }))
}

/// Remove an override.
#[utoipa::path(
    delete, path = "/overrides/{id}", operation_id = "removeOverride", tag = "deciding", security(("token" = ["override"])),
    params(("id" = String, Path, description = "Identifier of the override.")),
    responses((status = NO_CONTENT, description = "The override is removed."), TokenErrors, StoreErrors, NotFoundError)
)]
pub(crate) async fn remove(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Segment(id): Segment,
) -> Result<StatusCode, Problem> {
    let unknown = || Problem::not_found(format!("unknown override {}", quote(&id)));
    let (Some(service), Ok(parsed)) = (parts.overrides, id.parse::<OverrideId>()) else {
        return Err(unknown());
    };
    if service.remove(parsed, &actor).await? {
        Ok(StatusCode::NO_CONTENT)
    } else {
        Err(unknown())
    }
}
