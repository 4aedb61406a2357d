//! `GET /config` and `PUT /config`: the settings that are in use, and those that are tuned while the
//! process runs.

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use riglm_app::settings::{Expected, SettingsError, SettingsView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use validator::{Validate, ValidationErrors};

use crate::access::Actor;
use crate::body::Valid;
use crate::problem::{Bodied, Guarded, Named, Problem, ProblemBody};
use crate::router::ControlParts;

/// What is to be tuned, in sections: `{"filtering": {"max_tools": 20}}`. `GET /config` names the keys
/// that can be, with dots, as `tunable`.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = std::collections::BTreeMap<String, Value>)]
pub(crate) struct Tuning(Map<String, Value>);

/// The settings.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Config)]
pub(crate) struct ConfigView {
    /// Counts the changes of `tuning`.
    version: u64,
    /// What was tuned, in sections.
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    tuning: Map<String, Value>,
    /// All settings that are in use, in sections, without secrets.
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    effective: Value,
    /// The keys that can be tuned, with dots.
    tunable: Vec<String>,
}

impl Validate for Tuning {
    /// Keys and values are checked by who knows them.
    fn validate(&self) -> Result<(), ValidationErrors> {
        Ok(())
    }
}

/// The settings that are in use. The `ETag` is what `If-Match` of a change has to have.
#[utoipa::path(
    get, path = "/config", operation_id = "getConfig", tag = "deciding",
    security(("token" = ["read"])),
    responses(
        (status = OK, description = "The settings.", body = ConfigView,
            headers(("etag" = String, description = "Names this state of the settings."))),
        Guarded, Named,
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Response {
    match parts.settings {
        Some(service) => document(&service.view()),
        None => nothing_changes(),
    }
}

/// Replaces what is tuned, as a whole: a key that the body does not have is as it is without.
#[utoipa::path(
    put, path = "/config", operation_id = "putConfig", tag = "deciding",
    security(("token" = ["config"])), request_body = Tuning,
    params(("If-Match" = Option<String>, Header,
        description = "The ETag of the settings that are changed, or `*`. Without it: 428.")),
    responses(
        (status = OK, description = "The settings, which hold from now on.", body = ConfigView,
            headers(("etag" = String, description = "Names this state of the settings."))),
        (status = PRECONDITION_FAILED, description = "Somebody else changed them since.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = PRECONDITION_REQUIRED, description = "`If-Match` is missing.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = CONFLICT, description = "The configuration file cannot be used.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = SERVICE_UNAVAILABLE, description = "The change cannot be written.",
            body = ProblemBody, content_type = "application/problem+json"),
        Guarded, Bodied, Named,
    )
)]
pub(crate) async fn replace(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    headers: HeaderMap,
    Valid(Tuning(tuning)): Valid<Tuning>,
) -> Response {
    let Some(service) = parts.settings else {
        return nothing_changes();
    };
    let Some(expected) = expected(&headers) else {
        let detail = "If-Match must be there, with the ETag of the configuration that is changed";
        return Problem::new(StatusCode::PRECONDITION_REQUIRED, detail).into_response();
    };
    match service.replace(tuning, expected, &actor).await {
        Ok(view) => document(&view),
        Err(error) => problem(&error).into_response(),
    }
}

/// Returns what `If-Match` says; `None` where it is not there. Weak tags, and what is no tag, fit
/// nothing.
fn expected(headers: &HeaderMap) -> Option<Expected> {
    let mut values = headers.get_all(header::IF_MATCH).into_iter().peekable();
    values.peek()?;
    let mut tags = Vec::new();
    for value in values {
        let text = value.to_str().unwrap_or_default();
        for tag in text.split(',').map(str::trim) {
            if tag == "*" {
                return Some(Expected::Any);
            }
            let quoted = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            tags.extend(quoted.map(str::to_owned));
        }
    }
    Some(Expected::OneOf(tags))
}

fn document(view: &SettingsView) -> Response {
    let body = ConfigView {
        version: view.version,
        tuning: view.tuning.clone(),
        effective: view.effective.clone(),
        tunable: view.tunable.clone(),
    };
    let mut response = Json(body).into_response();
    if let Ok(tag) = HeaderValue::try_from(format!("\"{}\"", view.tag)) {
        response.headers_mut().insert(header::ETAG, tag);
    }
    response
}

fn problem(error: &SettingsError) -> Problem {
    let status = match error {
        SettingsError::Stale => StatusCode::PRECONDITION_FAILED,
        SettingsError::Refused { .. } => StatusCode::UNPROCESSABLE_ENTITY,
        SettingsError::Unusable(_) => StatusCode::CONFLICT,
        SettingsError::Unwritable(source) => {
            tracing::warn!("what is tuned cannot be written: {source}");
            StatusCode::SERVICE_UNAVAILABLE
        }
        SettingsError::Store(source) => return Problem::store_failed(source),
    };
    Problem::new(status, error.to_string())
}

fn nothing_changes() -> Response {
    let detail = "no setting of this process changes while it runs";
    Problem::new(StatusCode::NOT_FOUND, detail).into_response()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn if_match_is_read_as_tags() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            expected(&headers)
        };
        let tags = |tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned());
            Some(Expected::OneOf(tags.collect()))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["*"]), Some(Expected::Any));
        assert_eq!(of(&["\"1-a\", \"2\"", "\"3\""]), tags(&["1-a", "2", "3"]));
        assert_eq!(of(&["W/\"1\"", "1", "\"", ""]), tags(&[]));
    }
}
