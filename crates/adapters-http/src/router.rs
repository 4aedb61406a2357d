//! The routes of the control server.

use std::sync::Arc;

use axum::Router;
use axum::middleware::from_fn_with_state;
use axum::routing::get;
use http::StatusCode;
use riglm_domain::admission::Admission;

use crate::ControlConfig;
use crate::admission::check;
use crate::handlers::health::{self, HealthSource};
use crate::problem::Problem;

/// Returns the routes of the control server.
///
/// Every request passes the check of `Host` and `Origin` first (403). `GET /health` answers
/// `{"status","version","upstreams":{NAME:{"state","reason"?}},"store":{"status","reason"?,
/// "waiting_bytes","dropped_records"}}`, where the first `status` is `ok`, or `degraded` while one of
/// `upstreams` cannot be reached or the store is degraded; anything else is 404, another method 405.
/// Error bodies are `application/problem+json`. `config.address` is not read here.
pub fn router(config: &ControlConfig, source: HealthSource) -> Router {
    let admission = Admission::new(&config.allowed_hosts, &config.allowed_origins);
    Router::new()
        .route("/health", get(health::show))
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(from_fn_with_state(Arc::new(admission), check))
        .with_state(source)
}

async fn not_found() -> Problem {
    Problem {
        status: StatusCode::NOT_FOUND,
        detail: "nothing is served under this path",
    }
}

async fn method_not_allowed() -> Problem {
    Problem {
        status: StatusCode::METHOD_NOT_ALLOWED,
        detail: "this path does not take this method",
    }
}

#[cfg(test)]
mod tests;
