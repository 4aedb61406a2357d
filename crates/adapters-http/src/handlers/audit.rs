//! `GET /audit`: the log of changes that operators made.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::problem::{ParameterErrors, Problem, StoreErrors, TokenErrors};
use crate::query::{Params, invalid_cursor};
use crate::state::ControlParts;

/// Page parameters of the audit trail.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrailQuery {
    /// Maximum number of entries.
    #[serde(default = "usual_entries")]
    #[validate(range(
        min = 1,
        max = 1_000,
        message = "limit must be a number from 1 to 1000"
    ))]
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: u32,
    /// The `next_cursor` of the previous page.
    cursor: Option<String>,
}

fn usual_entries() -> u32 {
    100
}

/// A page of the audit trail.
#[derive(Debug, Default, Serialize, ToSchema)]
pub(crate) struct Trail {
    /// The newest entries before the cursor, in chronological order.
    entries: Vec<EntryView>,
    /// Cursor of the next page, with older entries; `null` on the last page.
    next_cursor: Option<String>,
}

/// A change by an operator.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct EntryView {
    /// Identifier of the entry.
    id: String,
    /// Time of the change.
    at: Timestamp,
    /// Principal that made the change.
    actor: String,
    /// The action, as a verb and its object.
    action: String,
    /// The changed object.
    target: String,
    /// Details as JSON text.
    detail: Option<String>,
}

impl From<AuditEntry> for EntryView {
    fn from(entry: AuditEntry) -> Self {
        Self {
            id: entry.id.to_string(),
            at: entry.at,
            actor: entry.actor.to_string(),
            action: entry.action,
            target: entry.target,
            detail: entry.detail,
        }
    }
}

/// List changes by operators, the newest page first.
#[utoipa::path(
    get, path = "/audit", operation_id = "listAudit", tag = "deciding", security(("token" = ["read"])), params(TrailQuery),
    responses((status = OK, description = "A page of the audit trail.", body = Trail), TokenErrors, StoreErrors, ParameterErrors)
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Params(query): Params<TrailQuery>,
) -> Result<Json<Trail>, Problem> {
    let cursor = query.cursor.as_deref().map(str::parse::<AuditId>);
    let before = cursor.transpose().map_err(|_| invalid_cursor())?;
    let Some(service) = parts.overrides else {
        return Ok(Json(Trail::default()));
    };
    let entries = service.audit_entries(before, query.limit).await?;
    // A page that is not full is the last one.
    let is_full = entries.len() >= query.limit as usize;
    let oldest = entries.first().filter(|_| is_full);
    let next_cursor = oldest.map(|entry| entry.id.to_string());
    Ok(Json(Trail {
        entries: entries.into_iter().map(Into::into).collect(),
        next_cursor,
    }))
}
