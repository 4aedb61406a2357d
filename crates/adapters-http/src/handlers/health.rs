//! `GET /health`: whether the process serves. Open to everyone who reaches the port.

use axum::Json;
use axum::extract::State;
use serde::Serialize;

/// The version that the answer names.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Version(pub(crate) &'static str);

/// The answer.
#[derive(Debug, Serialize)]
pub(crate) struct Health {
    status: &'static str,
    version: &'static str,
}

pub(crate) async fn show(State(version): State<Version>) -> Json<Health> {
    Json(Health {
        status: "ok",
        version: version.0,
    })
}
