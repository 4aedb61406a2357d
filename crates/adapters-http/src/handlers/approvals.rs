//! `POST /upstreams/{name}/approve`: changes of tools that are held back are approved.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use riglm_app::approvals::{ApprovalError, Wanted};
use riglm_domain::id::ToolName;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use validator::{Validate, ValidationError};

use crate::access::Actor;
use crate::body::Valid;
use crate::path::Segment;
use crate::problem::{Bodied, Guarded, Named, Problem, ProblemBody};
use crate::router::ControlParts;

/// Which changes are approved.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
#[validate(schema(function = "check_hash"))]
pub(crate) struct NewApproval {
    /// The tool, as its upstream names it; absent for all that is held back of the upstream.
    #[validate(length(min = 1, max = 10_000, message = "tool must be a name"))]
    #[schema(min_length = 1, max_length = 10_000)]
    tool: Option<String>,
    /// The `hash` of the definition that was looked at: no other one is approved then.
    #[validate(length(min = 1, max = 200, message = "hash must be a hash"))]
    #[schema(min_length = 1, max_length = 200)]
    hash: Option<String>,
}

fn check_hash(body: &NewApproval) -> Result<(), ValidationError> {
    if body.hash.is_none() || body.tool.is_some() {
        return Ok(());
    }
    let text = "hash must not be there without tool";
    Err(ValidationError::new("hash").with_message(text.into()))
}

/// What was approved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovedList {
    /// By the name of the tool.
    approved: Vec<ApprovedTool>,
}

/// A definition that was approved.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ApprovedTool {
    /// The tool, as its upstream names it.
    tool: String,
    /// Identifies the definition.
    hash: String,
}

/// Approves what is held back of the tools of an upstream. Clients are told that their lists are
/// other ones.
#[utoipa::path(
    post, path = "/upstreams/{name}/approve", operation_id = "approveTools", tag = "deciding", security(("token" = ["override"])),
    params(("name" = String, Path, description = "The name of the upstream.")),
    request_body = NewApproval,
    responses(
        (status = OK, description = "It is approved.", body = ApprovedList),
        (status = CONFLICT, description = "Another definition is held back than the one with this hash.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = SERVICE_UNAVAILABLE, description = "The database does not answer.",
            body = ProblemBody, content_type = "application/problem+json"),
        Guarded, Bodied, Named,
    )
)]
pub(crate) async fn approve(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Segment(name): Segment,
    Valid(body): Valid<NewApproval>,
) -> Response {
    let wanted = Wanted {
        tool: body.tool.as_deref().map(ToolName::from),
        hash: body.hash,
    };
    let error = match parts.proxy.approve(&name, &wanted, &actor).await {
        Ok(approved) => {
            let approved = approved.into_iter().map(|approval| ApprovedTool {
                tool: approval.sighting.name.as_str().to_owned(),
                hash: approval.sighting.content_hash,
            });
            let approved = approved.collect();
            return Json(ApprovedList { approved }).into_response();
        }
        Err(error) => error,
    };
    let status = match &error {
        ApprovalError::UnknownUpstream(_) | ApprovalError::NothingHeld(_) => StatusCode::NOT_FOUND,
        ApprovalError::OtherHash => StatusCode::CONFLICT,
        ApprovalError::Store(error) => return Problem::store_failed(error).into_response(),
    };
    Problem::new(status, error.to_string()).into_response()
}
