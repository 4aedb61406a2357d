//! The routes of the control server.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use http::StatusCode;
use riglm_app::events::EventFeed;
use riglm_app::experiments::ExperimentDesk;
use riglm_app::feedback::FeedbackDesk;
use riglm_app::insight::Insight;
use riglm_app::overrides::Overrides;
use riglm_app::proxy::Proxy;
use riglm_app::settings::Settings;
use riglm_domain::admission::Admission;
use tokio_util::sync::CancellationToken;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{self, ControlKeys, Required, Scope};
use crate::admission::check;
use crate::handlers::health::{self, HealthSource};
use crate::handlers::metrics::{self, MetricsSource};
use crate::handlers::{
    approvals, audit, config, events, experiments, feedback, overrides, predictions, ready,
    recommendations, sessions, tools, upstreams,
};
use crate::openapi;
use crate::problem::Problem;
use crate::{ControlConfig, body};

/// What the routes stand on.
#[derive(Clone, Debug)]
pub struct ControlParts {
    /// What the process says of itself.
    pub health: HealthSource,
    /// What it counts.
    pub metrics: MetricsSource,
    /// What happens, for who follows.
    pub events: Arc<EventFeed>,
    /// Who may do what.
    pub keys: ControlKeys,
    /// The proxy, with its open sessions.
    pub proxy: Arc<Proxy>,
    /// What was recorded; `None` where nothing is stored.
    pub insight: Option<Arc<Insight>>,
    /// What operators decide about tools; `None` where nothing is stored.
    pub overrides: Option<Arc<Overrides>>,
    /// What is tried out on a part of the clients; `None` where nothing is stored.
    pub experiments: Option<Arc<ExperimentDesk>>,
    /// What people say of tools; `None` where nothing is stored.
    pub feedback: Option<Arc<FeedbackDesk>>,
    /// Cancelled when the server is to end, so that streams end too.
    pub stop: CancellationToken,
    /// The settings that can change; `None` where none do.
    pub settings: Option<Arc<dyn Settings>>,
}

/// Returns the routes of the control server.
///
/// Every request passes the check of `Host` and `Origin` first (403). `GET /health`,
/// `GET /health/ready` and `GET /openapi.json` are open, and so is `GET /metrics` where the
/// configuration says so; the rest asks for a bearer token (401) whose scopes have that of the route
/// (403). The document that `GET /openapi.json` answers is made of the same routes.
///
/// Anything else is 404, another method 405, a body of more than 64 KiB 413, and one that does not
/// fit 422. Error bodies are `application/problem+json`. `control.address` is not read here.
pub fn router(control: &ControlConfig, parts: ControlParts) -> Router {
    let admission = Admission::new(&control.allowed_hosts, &control.allowed_origins);
    let keys = parts.keys.clone();
    let guarded = |scope: Scope, routes: OpenApiRouter<ControlParts>| {
        let required = Required {
            keys: keys.clone(),
            scope,
        };
        routes.route_layer(from_fn_with_state(required, access::check))
    };
    let open = OpenApiRouter::new()
        .routes(routes!(health::show))
        .routes(routes!(ready::show));
    let counting = OpenApiRouter::new().routes(routes!(metrics::show));
    let reading = OpenApiRouter::new()
        .routes(routes!(upstreams::list))
        .routes(routes!(sessions::list))
        .routes(routes!(sessions::show))
        .routes(routes!(predictions::show))
        .routes(routes!(recommendations::create))
        .routes(routes!(tools::list))
        .routes(routes!(tools::stats))
        .routes(routes!(experiments::list))
        .routes(routes!(experiments::show))
        .routes(routes!(events::follow))
        .routes(routes!(overrides::list))
        .routes(routes!(audit::list))
        .routes(routes!(config::show));
    let tuning = OpenApiRouter::new()
        .routes(routes!(config::replace))
        .routes(routes!(experiments::stop));
    let deciding = OpenApiRouter::new()
        .routes(routes!(overrides::create))
        .routes(routes!(overrides::remove))
        .routes(routes!(approvals::approve))
        .routes(routes!(feedback::create));
    let counting = if control.public_metrics {
        counting
    } else {
        guarded(Scope::Read, counting)
    };
    let (api, document) = OpenApiRouter::with_openapi(openapi::frame())
        .merge(open)
        .merge(counting)
        .merge(guarded(Scope::Read, reading))
        .merge(guarded(Scope::Override, deciding))
        .merge(guarded(Scope::Config, tuning))
        .split_for_parts();
    api.with_state(parts)
        .merge(openapi::route(&document))
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
