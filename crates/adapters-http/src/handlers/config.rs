//! `GET /config` and `PUT /config`: the settings that are in use, and those that are tuned while the
//! process runs.

use std::sync::Arc;

use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use riglm_app::settings::{Expected, Settings, SettingsError, SettingsView};
use serde::Deserialize;
use serde_json::{Map, Value, json};
use validator::{Validate, ValidationErrors};

use crate::access::Actor;
use crate::body::Valid;
use crate::problem::Problem;

/// The state of these routes; `None` where no setting changes.
pub(crate) type Service = Option<Arc<dyn Settings>>;

/// The body of `PUT /config`: what is to be tuned, in sections.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
pub(crate) struct Tuning(Map<String, Value>);

impl Validate for Tuning {
    /// Keys and values are checked by who knows them.
    fn validate(&self) -> Result<(), ValidationErrors> {
        Ok(())
    }
}

/// Returns the settings.
pub(crate) async fn show(State(service): State<Service>) -> Response {
    match service {
        Some(service) => document(&service.view()),
        None => nothing_changes(),
    }
}

/// Replaces what is tuned.
pub(crate) async fn replace(
    State(service): State<Service>,
    Extension(Actor(actor)): Extension<Actor>,
    headers: HeaderMap,
    Valid(Tuning(tuning)): Valid<Tuning>,
) -> Response {
    let Some(service) = service else {
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
    let body = json!({
        "version": view.version,
        "tuning": view.tuning,
        "effective": view.effective,
        "tunable": view.tunable,
    });
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
        SettingsError::Store(source) => {
            tracing::warn!("the store failed for the control server: {source}");
            let detail = "the database does not answer";
            return Problem::new(StatusCode::SERVICE_UNAVAILABLE, detail);
        }
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
