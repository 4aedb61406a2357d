//! `GET /experiments`, `GET /experiments/{name}`, `POST /experiments/{name}/stop`: A/B experiments,
//! their results, and stopping them.

mod views;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::StatusCode;
use riglm_app::control::name_lookup::quote;
use serde::Deserialize;
use utoipa::ToSchema;
use validator::Validate;

use self::views::{ExperimentList, ExperimentReportView, ExperimentView, StopView};
use crate::access::Actor;
use crate::body::Valid;
use crate::path::Segment;
use crate::problem::{BodyErrors, NotFoundError, Problem, ProblemBody, StoreErrors, TokenErrors};
use crate::router::ControlParts;

/// The request to stop an experiment.
#[derive(Debug, Deserialize, Validate, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct NewStop {
    /// Reason, for the audit trail.
    #[validate(length(max = 1_000, message = "reason must have at most 1000 characters"))]
    #[schema(max_length = 1_000)]
    reason: Option<String>,
}

/// List the experiments of the configuration.
#[utoipa::path(
    get, path = "/experiments", operation_id = "listExperiments", tag = "observing", security(("token" = ["read"])),
    responses(
        (status = OK, description = "The experiments.", body = ExperimentList),
        (status = SERVICE_UNAVAILABLE, description = "The database is unavailable.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors,
    )
)]
pub(crate) async fn list(State(parts): State<ControlParts>) -> Response {
    let Some(service) = &parts.experiments else {
        return Json(ExperimentList::default()).into_response();
    };
    match service.all().await {
        Ok(all) => {
            let experiments = all.into_iter().map(|(plan, state, stop)| {
                ExperimentView::new(plan, state, stop.map(StopView::from))
            });
            Json(ExperimentList {
                experiments: experiments.collect(),
            })
            .into_response()
        }
        Err(error) => Problem::store_failed(&error).into_response(),
    }
}

/// Show the results of an experiment so far.
#[utoipa::path(
    get, path = "/experiments/{name}", operation_id = "getExperiment", tag = "observing", security(("token" = ["read"])),
    params(("name" = String, Path, description = "Name of the experiment.")),
    responses(
        (status = OK, description = "The results of the experiment so far.", body = ExperimentReportView),
        (status = SERVICE_UNAVAILABLE, description = "The database is unavailable.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, NotFoundError,
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>, Segment(name): Segment) -> Response {
    let Some(service) = &parts.experiments else {
        return no_such_experiment(&name);
    };
    match service.report(&name).await {
        Ok(Some(report)) => Json(ExperimentReportView::from(report)).into_response(),
        Ok(None) => no_such_experiment(&name),
        Err(error) => Problem::store_failed(&error).into_response(),
    }
}

/// Stop an experiment permanently.
///
/// Its units get the same treatment as all other units. An experiment that was stopped before
/// keeps its first stop.
#[utoipa::path(
    post, path = "/experiments/{name}/stop", operation_id = "stopExperiment", tag = "deciding", security(("token" = ["config"])),
    params(("name" = String, Path, description = "Name of the experiment.")),
    request_body = NewStop,
    responses(
        (status = OK, description = "The experiment is stopped.", body = StopView),
        TokenErrors, StoreErrors, BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn stop(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    Segment(name): Segment,
    Valid(body): Valid<NewStop>,
) -> Response {
    let Some(service) = &parts.experiments else {
        return Problem::nothing_stored().into_response();
    };
    match service.stop(&name, body.reason, &actor).await {
        Ok(Some(stop)) => Json(StopView::from(stop)).into_response(),
        Ok(None) => no_such_experiment(&name),
        Err(error) => Problem::store_failed(&error).into_response(),
    }
}

fn no_such_experiment(name: &str) -> Response {
    let detail = format!(
        "unknown experiment {}: not in the configuration",
        quote(name)
    );
    Problem::new(StatusCode::NOT_FOUND, detail).into_response()
}
