//! `GET /audit`: what operators changed, and when.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::id::AuditId;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::problem::{Guarded, Parametrised, Problem, Stored};
use crate::query::{Params, foreign_cursor};
use crate::router::ControlParts;

/// What part of the audit trail is wanted.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct TrailQuery {
    /// The most entries.
    #[serde(default = "usual_entries")]
    #[validate(range(
        min = 1,
        max = 1_000,
        message = "limit must be a number from 1 to 1000"
    ))]
    #[param(minimum = 1, maximum = 1_000, default = 100)]
    limit: u32,
    /// The `next_cursor` of the page before.
    cursor: Option<String>,
}

fn usual_entries() -> u32 {
    100
}

/// A page of the audit trail.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct Trail {
    /// The newest entries before the cursor, the oldest of them first.
    entries: Vec<EntryView>,
    /// Where older entries begin; `null` where there are none.
    next_cursor: Option<String>,
}

/// One change.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = AuditEntry)]
pub(crate) struct EntryView {
    /// Identifies the entry.
    id: String,
    /// When it happened.
    at: Timestamp,
    /// Who did it.
    actor: String,
    /// What was done, as a verb and its object.
    action: String,
    /// What it was done to.
    target: String,
    /// JSON text that says more.
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

/// What operators changed, the newest page first.
#[utoipa::path(
    get, path = "/audit", operation_id = "listAudit", tag = "deciding", security(("token" = ["read"])), params(TrailQuery),
    responses((status = OK, description = "A page.", body = Trail), Guarded, Stored, Parametrised)
)]
pub(crate) async fn list(
    State(parts): State<ControlParts>,
    Params(query): Params<TrailQuery>,
) -> Response {
    let before = match query.cursor.as_deref().map(str::parse::<AuditId>) {
        None => None,
        Some(Ok(before)) => Some(before),
        Some(Err(_)) => return foreign_cursor().into_response(),
    };
    let Some(service) = &parts.overrides else {
        return Json(Trail {
            entries: Vec::new(),
            next_cursor: None,
        })
        .into_response();
    };
    match service.trail(before, query.limit).await {
        Ok(entries) => {
            let is_full = entries.len() >= query.limit as usize;
            let oldest = entries.first().filter(|_| is_full);
            let next_cursor = oldest.map(|entry| entry.id.to_string());
            Json(Trail {
                entries: entries.into_iter().map(Into::into).collect(),
                next_cursor,
            })
            .into_response()
        }
        Err(error) => Problem::store_failed(&error).into_response(),
    }
}
