//! The routes of the control server.

use std::sync::Arc;

use axum::extract::DefaultBodyLimit;
use axum::middleware::from_fn_with_state;
use axum::{Extension, Router};
use http::StatusCode;
use riglm_domain::safeguards::admission::Admission;
use utoipa_axum::router::OpenApiRouter;
use utoipa_axum::routes;

use crate::access::{self, RouteAccess, Scope};
use crate::admission::check;
use crate::handlers::{
    approvals, audit, client_data, config, events, experiments, feedback, health, learning,
    metrics, overrides, overview, paths, predictions, ready, recommendations, sessions, setup,
    token, tools, upstreams,
};
use crate::page::PageCodes;
use crate::problem::Problem;
use crate::state::ControlParts;
use crate::{ControlConfig, body, openapi, page};

/// Returns the routes of the control server.
///
/// Every request passes the check of `Host` and `Origin` first (403). `GET /health`,
/// `GET /health/ready`, `GET /openapi.json`, `POST /page/tokens` and the files of the page need no
/// token, and neither does `GET /metrics` if the configuration says so. All other routes need a
/// bearer token (401) with the scope of the route (403). `GET /openapi.json` returns a document
/// that is generated from the same routes, without the files of the page.
///
/// An unknown path is 404, another method 405, a body of more than 64 KiB 413, and an invalid body
/// 422. Error bodies are `application/problem+json`. This function does not read `control.address`.
pub fn router(control: &ControlConfig, parts: ControlParts) -> Router {
    let admission = Admission::new(&control.allowed_hosts, &control.allowed_origins);
    let keys = parts.keys.clone();
    let guarded = |scope: Scope, routes: OpenApiRouter<ControlParts>| {
        let required = RouteAccess {
            keys: keys.clone(),
            scope,
        };
        routes.route_layer(from_fn_with_state(required, access::check))
    };
    let open = OpenApiRouter::new()
        .routes(routes!(health::show))
        .routes(routes!(ready::show))
        .routes(routes!(token::exchange_code));
    let counting = OpenApiRouter::new().routes(routes!(metrics::show));
    let reading = OpenApiRouter::new()
        .routes(routes!(token::show))
        .routes(routes!(token::create_code))
        .routes(routes!(overview::show))
        .routes(routes!(paths::show))
        .routes(routes!(learning::show))
        .routes(routes!(setup::show))
        .routes(routes!(upstreams::list))
        .routes(routes!(approvals::list))
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
    let data = OpenApiRouter::new().routes(routes!(client_data::export, client_data::delete));
    let counting = if control.public_metrics {
        counting
    } else {
        guarded(Scope::Read, counting)
    };
    let (api, document) = OpenApiRouter::with_openapi(openapi::base_document())
        .merge(open)
        .merge(counting)
        .merge(guarded(Scope::Read, reading))
        .merge(guarded(Scope::Override, deciding))
        .merge(guarded(Scope::Config, tuning))
        .merge(guarded(Scope::Data, data))
        .split_for_parts();
    api.layer(Extension(Arc::new(PageCodes::default())))
        .with_state(parts)
        .merge(openapi::route(&document))
        .merge(page::routes())
        .fallback(not_found)
        .method_not_allowed_fallback(method_not_allowed)
        .layer(DefaultBodyLimit::max(body::MAX_BYTES))
        // The last layer is the outermost one: this check runs first.
        .layer(from_fn_with_state(Arc::new(admission), check))
}

async fn not_found() -> Problem {
    Problem::new(
        StatusCode::NOT_FOUND,
        "unknown path; GET /openapi.json describes all paths",
    )
}

async fn method_not_allowed() -> Problem {
    let detail = "unsupported method for this path";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, detail)
}

#[cfg(test)]
mod tests;
