//! The routes of the control server.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::routing::{delete, get, post, put};
use http::StatusCode;
use riglm_app::overrides::Overrides;
use riglm_app::settings::Settings;
use riglm_domain::admission::Admission;

use crate::access::{self, ControlKeys, Required, Scope};
use crate::admission::check;
use crate::handlers::config;
use crate::handlers::health::{self, HealthSource};
use crate::handlers::overrides;
use crate::problem::Problem;
use crate::{ControlConfig, body};

/// What the routes stand on.
#[derive(Clone, Debug)]
pub struct ControlParts {
    /// What the process says of itself.
    pub health: HealthSource,
    /// Who may do what.
    pub keys: ControlKeys,
    /// What operators decide about tools; `None` where nothing is stored.
    pub overrides: Option<Arc<Overrides>>,
    /// The settings that can change; `None` where none do.
    pub settings: Option<Arc<dyn Settings>>,
}

/// Returns the routes of the control server.
///
/// Every request passes the check of `Host` and `Origin` first (403). `GET /health` is open; the rest
/// asks for a bearer token (401) whose scopes have that of the route (403):
///
/// | route | scope |
/// |---|---|
/// | `POST /override`, `DELETE /overrides/{id}` | `override` |
/// | `GET /overrides`, `GET /audit`, `GET /config` | `read` |
/// | `PUT /config` | `config` |
///
/// Anything else is 404, another method 405, a body of more than 64 KiB 413, and one that does not
/// fit 422. Error bodies are `application/problem+json`. `control.address` is not read here.
pub fn router(control: &ControlConfig, parts: ControlParts) -> Router {
    let admission = Admission::new(&control.allowed_hosts, &control.allowed_origins);
    let ControlParts {
        health,
        keys,
        overrides,
        settings,
    } = parts;
    let required = |scope: Scope| Required {
        keys: keys.clone(),
        scope,
    };
    let guarded = |scope: Scope, routes: Router<overrides::Service>| {
        routes.route_layer(from_fn_with_state(required(scope), access::check))
    };
    let deciding = Router::new()
        .route("/override", post(overrides::create))
        .route("/overrides/{id}", delete(overrides::remove));
    let reading = Router::new()
        .route("/overrides", get(overrides::list))
        .route("/audit", get(overrides::audit));
    let api = guarded(Scope::Override, deciding)
        .merge(guarded(Scope::Read, reading))
        .with_state(overrides);
    let settings = Router::new()
        .route(
            "/config",
            get(config::show).route_layer(from_fn_with_state(required(Scope::Read), access::check)),
        )
        .route(
            "/config",
            put(config::replace)
                .route_layer(from_fn_with_state(required(Scope::Config), access::check)),
        )
        .with_state(settings);
    Router::new()
        .route("/health", get(health::show))
        .with_state(health)
        .merge(api)
        .merge(settings)
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(body::MAX_BYTES))
        .layer(from_fn_with_state(Arc::new(admission), check))
}

async fn not_found() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "nothing is served under this path")
}

async fn method_not_allowed() -> Problem {
    let detail = "this path does not take this method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

#[cfg(test)]
mod tests;
