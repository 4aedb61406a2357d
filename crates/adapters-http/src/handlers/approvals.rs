//! `GET /upstreams/{name}/held` and `POST /upstreams/{name}/approve`: changed tool definitions that
//! wait for approval, and their approval.

use axum::extract::State;
use axum::{Extension, Json};
use riglm_app::control::approvals::{ApprovalError, ApprovalRequest, HeldDefinition};
use riglm_app::control::name_lookup::quote;
use riglm_domain::id::ToolName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::{Validate, ValidationError};

use crate::access::Actor;
use crate::body::Valid;
use crate::handlers::upstreams::HeldView;
use crate::path::Segment;
use crate::problem::{BodyErrors, NotFoundError, Problem, ProblemBody, TokenErrors};
use crate::state::ControlParts;

/// The held changes of an upstream.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct HeldList {
    /// The first 100 changes that wait for approval, by tool name. `GET /upstreams` has all of
    /// them, without definitions.
    held: Vec<HeldDefinitionView>,
}

/// A held change with the definitions before and after it.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = HeldDefinition)]
pub(crate) struct HeldDefinitionView {
    /// The change.
    #[serde(flatten)]
    change: HeldView,
    /// JSON text of the held definition; `null` if it has more than 64 KiB.
    definition: Option<String>,
    /// JSON text of the approved definition; `null` for a new tool, and if the text is not stored.
    approved_definition: Option<String>,
}

impl From<HeldDefinition> for HeldDefinitionView {
    fn from(held: HeldDefinition) -> Self {
        Self {
            change: held.change.into(),
            definition: held.definition,
            approved_definition: held.approved_definition,
        }
    }
}

/// List the held changes of the tools of an upstream, with both definitions.
#[utoipa::path(
    get, path = "/upstreams/{name}/held", operation_id = "listHeldChanges", tag = "deciding", security(("token" = ["read"])),
    params(("name" = String, Path, description = "Name of the upstream.")),
    responses(
        (status = OK, description = "The held changes; empty if changes need no approval.", body = HeldList),
        TokenErrors, NotFoundError,
    )
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Segment(name): Segment,
) -> Result<Json<HeldList>, Problem> {
    let held = parts.proxy.held_definitions(&name);
    let held = held.ok_or_else(|| ApprovalError::UnknownUpstream(quote(&name)))?;
    Ok(Json(HeldList {
        held: held.into_iter().map(Into::into).collect(),
    }))
}

/// The changes to approve.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_hash"))]
pub(crate) struct NewApproval {
    /// Name of the tool at its upstream. If absent, all held changes of the upstream are approved.
    #[validate(length(
        min = 1,
        max = 10_000,
        message = "tool must have 1 to 10000 characters"
    ))]
    #[schema(min_length = 1, max_length = 10_000)]
    tool: Option<String>,
    /// The `hash` of the reviewed definition. Any other definition is not approved (409).
    #[validate(length(min = 1, max = 200, message = "hash must have 1 to 200 characters"))]
    #[schema(min_length = 1, max_length = 200)]
    hash: Option<String>,
}

fn check_hash(body: &NewApproval) -> Result<(), ValidationError> {
    if body.hash.is_none() || body.tool.is_some() {
        return Ok(());
    }
    let text = "hash needs tool";
    Err(ValidationError::new("hash").with_message(text.into()))
}

/// The approved definitions.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovedList {
    /// Approved definitions, by tool name.
    approved: Vec<ApprovedTool>,
}

/// An approved definition.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovedTool {
    /// Name of the tool at its upstream.
    tool: String,
    /// Hash of the definition.
    hash: String,
}

impl From<ApprovalError> for Problem {
    fn from(error: ApprovalError) -> Self {
        match error {
            ApprovalError::UnknownUpstream(_) | ApprovalError::NothingHeld(_) => {
                Self::not_found(error.to_string())
            }
            ApprovalError::OtherHash => Self::conflict(error.to_string()),
            ApprovalError::Store(error) => error.into(),
        }
    }
}

/// Approve held changes of the tools of an upstream.
///
/// Clients get a notification that their list changed.
#[utoipa::path(
    post, path = "/upstreams/{name}/approve", operation_id = "approveTools", tag = "deciding", security(("token" = ["override"])),
    params(("name" = String, Path, description = "Name of the upstream.")),
    request_body = NewApproval,
    responses(
        (status = OK, description = "The approved definitions.", body = ApprovedList),
        (status = CONFLICT, description = "The held definition has another hash.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = SERVICE_UNAVAILABLE, description = "The database is unavailable.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn approve(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Segment(name): Segment,
    Valid(body): Valid<NewApproval>,
) -> Result<Json<ApprovedList>, Problem> {
    let wanted = ApprovalRequest {
        tool: body.tool.as_deref().map(ToolName::from),
        hash: body.hash,
    };
    let approved = parts.proxy.approve(&name, &wanted, &actor).await?;
    let approved = approved.into_iter().map(|approval| ApprovedTool {
        tool: approval.sighting.name.as_str().to_owned(),
        hash: approval.sighting.content_hash,
    });
    Ok(Json(ApprovedList {
        approved: approved.collect(),
    }))
}
