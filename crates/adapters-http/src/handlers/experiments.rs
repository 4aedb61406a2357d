//! `GET /experiments`: experiments that run.

use axum::Json;
use serde::Serialize;
use utoipa::ToSchema;

use crate::problem::Guarded;

/// All experiments.
#[derive(Debug, Serialize, ToSchema)]
pub(crate) struct ExperimentList {
    /// None: this version runs none.
    experiments: Vec<serde_json::Value>,
}

/// The experiments that run: none, in this version.
#[utoipa::path(
    get, path = "/experiments", operation_id = "listExperiments", tag = "observing", security(("token" = ["read"])),
    responses((status = OK, description = "The experiments.", body = ExperimentList), Guarded)
)]
pub(crate) async fn list() -> Json<ExperimentList> {
    Json(ExperimentList {
        experiments: Vec::new(),
    })
}
