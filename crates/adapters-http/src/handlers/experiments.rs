//! `GET /experiments`, `GET /experiments/{name}`, `POST /experiments/{name}/stop`: A/B experiments,
//! their results, and stopping them.

mod views;

use axum::extract::State;
use axum::{Extension, Json};
use riglm_app::control::name_lookup::quote;
use serde::Deserialize;
use utoipa::ToSchema;
use validator::Validate;

use self::views::{ExperimentList, ExperimentReportView, ExperimentView, StopView};
use crate::access::Actor;
use crate::body::Valid;
use crate::path::Segment;
use crate::problem::{
    BodyErrors, NotFoundError, Problem, ProblemBody, StoreErrors, TokenErrors, require_store,
};
use crate::state::ControlParts;

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
pub(crate) async fn list(
    State(parts): State<ControlParts>,
) -> Result<Json<ExperimentList>, Problem> {
    let Some(service) = parts.experiments else {
        return Ok(Json(ExperimentList::default()));
    };
    let all = service.all().await?.into_iter();
    let experiments =
        all.map(|(plan, state, stop)| ExperimentView::new(plan, state, stop.map(StopView::from)));
    Ok(Json(ExperimentList {
        experiments: experiments.collect(),
    }))
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
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Segment(name): Segment,
) -> Result<Json<ExperimentReportView>, Problem> {
    let unknown = || no_such_experiment(&name);
    let service = parts.experiments.ok_or_else(unknown)?;
    let report = service.report(&name).await?.ok_or_else(unknown)?;
    Ok(Json(report.into()))
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
) -> Result<Json<StopView>, Problem> {
    let service = require_store(parts.experiments)?;
    let stop = service.stop(&name, body.reason, &actor).await?;
    let stop = stop.ok_or_else(|| no_such_experiment(&name))?;
    Ok(Json(stop.into()))
}

fn no_such_experiment(name: &str) -> Problem {
    let name = quote(name);
    Problem::not_found(format!(
        "unknown experiment {name}: not in the configuration"
    ))
}
