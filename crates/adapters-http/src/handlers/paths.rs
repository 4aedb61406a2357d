//! `GET /paths`: the most frequent transitions between tools.

use axum::Json;
use axum::extract::State;
use riglm_app::control::queries::{ToolPath, tool_paths};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};
use validator::Validate;

use crate::problem::{ParameterErrors, Problem, StoreErrors, TokenErrors, require_store};
use crate::query::Params;
use crate::state::ControlParts;
use crate::views::ToolView;

/// Limits of the response.
#[derive(Debug, Deserialize, Validate, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathsQuery {
    /// Maximum number of transitions.
    #[serde(default = "usual_transitions")]
    #[validate(range(min = 1, max = 500, message = "limit must be a number from 1 to 500"))]
    #[param(minimum = 1, maximum = 500, default = 50)]
    limit: u32,
}

fn usual_transitions() -> u32 {
    50
}

/// The most frequent transitions between tools.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Paths)]
pub(crate) struct PathsView {
    /// Transitions at any time, the most frequent first.
    transitions: Vec<TransitionView>,
    /// Number of different transitions.
    transitions_total: u64,
    /// Number of calls that followed another call: the sum over all transitions.
    calls_total: u64,
}

/// A tool that was called directly after another one, or after itself.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Transition)]
pub(crate) struct TransitionView {
    /// Tool of the earlier call.
    from: ToolView,
    /// Tool of the later call.
    to: ToolView,
    /// Number of times.
    count: u64,
    /// Share of all calls directly after `from`, above 0 and up to 1.
    share: f64,
}

impl From<ToolPath> for TransitionView {
    fn from(path: ToolPath) -> Self {
        let transition = &path.transition;
        Self {
            from: (&transition.from).into(),
            to: (&transition.to).into(),
            count: transition.count,
            share: path.share,
        }
    }
}

/// Show the most frequent transitions between tools.
///
/// Called names that no upstream ever listed are left out.
#[utoipa::path(
    get, path = "/paths", operation_id = "getPaths", tag = "observing", security(("token" = ["read"])),
    params(PathsQuery),
    responses(
        (status = OK, description = "The transitions.", body = PathsView),
        TokenErrors, StoreErrors, ParameterErrors,
    )
)]
pub(crate) async fn show(
    State(parts): State<ControlParts>,
    Params(query): Params<PathsQuery>,
) -> Result<Json<PathsView>, Problem> {
    let queries = require_store(parts.queries)?;
    let found = tool_paths(&queries, query.limit as usize).await?;
    Ok(Json(PathsView {
        transitions: found.paths.into_iter().map(Into::into).collect(),
        transitions_total: found.n_transitions,
        calls_total: found.n_calls,
    }))
}
