//! `GET /config` and `PUT /config`: the effective configuration, and the tuning of some keys while
//! the process runs.

use axum::extract::State;
use axum::response::IntoResponse;
use axum::{Extension, Json};
use http::{HeaderMap, StatusCode, header};
use riglm_app::control::settings::{ExpectedView, SettingsError, SettingsView};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;
use validator::{Validate, ValidationErrors};

use crate::access::Actor;
use crate::body::Valid;
use crate::problem::{BodyErrors, NotFoundError, Problem, ProblemBody, TokenErrors};
use crate::state::ControlParts;

/// Values of tunable keys, in sections: `{"filtering": {"max_tools": 20}}`. `GET /config` lists the
/// keys as `tunable`, with dots.
#[derive(Debug, Deserialize, ToSchema)]
#[serde(transparent)]
#[schema(value_type = std::collections::BTreeMap<String, Value>)]
pub(crate) struct Tuning(Map<String, Value>);

/// The configuration.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Config)]
pub(crate) struct ConfigView {
    /// Number of changes of `tuning` so far.
    version: u64,
    /// The tuned values, in sections.
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    tuning: Map<String, Value>,
    /// All effective values, in sections, without secrets.
    #[schema(value_type = std::collections::BTreeMap<String, Value>)]
    effective: Value,
    /// The tunable keys, with dots.
    tunable: Vec<String>,
}

impl Validate for Tuning {
    // The settings service checks keys and values; it knows the schema.
    fn validate(&self) -> Result<(), ValidationErrors> {
        Ok(())
    }
}

/// Show the effective configuration.
///
/// A change needs the returned `ETag` in its `If-Match` header.
#[utoipa::path(
    get, path = "/config", operation_id = "getConfig", tag = "deciding",
    security(("token" = ["read"])),
    responses(
        (status = OK, description = "The configuration.", body = ConfigView,
            headers(("etag" = String, description = "Identifier of this state of the configuration, for `If-Match`."))),
        TokenErrors, NotFoundError,
    )
)]
pub(crate) async fn show(State(parts): State<ControlParts>) -> Result<impl IntoResponse, Problem> {
    let service = parts.settings.ok_or_else(no_settings)?;
    Ok(document(&service.view()))
}

/// Replace all tuned values.
///
/// Keys that are missing in the body return to their untuned value.
#[utoipa::path(
    put, path = "/config", operation_id = "putConfig", tag = "deciding",
    security(("token" = ["config"])), request_body = Tuning,
    params(("If-Match" = Option<String>, Header,
        description = "ETag of the configuration to change, or `*`. If missing: 428.")),
    responses(
        (status = OK, description = "The changed configuration, already in effect.", body = ConfigView,
            headers(("etag" = String, description = "Identifier of this state of the configuration, for `If-Match`."))),
        (status = PRECONDITION_FAILED, description = "The configuration was changed after this ETag was read.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = PRECONDITION_REQUIRED, description = "`If-Match` is missing.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = CONFLICT, description = "The configuration file is invalid.",
            body = ProblemBody, content_type = "application/problem+json"),
        (status = SERVICE_UNAVAILABLE, description = "The change cannot be stored.",
            body = ProblemBody, content_type = "application/problem+json"),
        TokenErrors, BodyErrors, NotFoundError,
    )
)]
pub(crate) async fn replace(
    State(parts): State<ControlParts>,
    Extension(Actor(actor)): Extension<Actor>,
    headers: HeaderMap,
    Valid(Tuning(tuning)): Valid<Tuning>,
) -> Result<impl IntoResponse, Problem> {
    let service = parts.settings.ok_or_else(no_settings)?;
    let expected = if_match(&headers).ok_or_else(|| {
        let detail = "missing If-Match; send the ETag of GET /config, or *";
        Problem::new(StatusCode::PRECONDITION_REQUIRED, detail)
    })?;
    let view = service.replace(tuning, expected, &actor).await?;
    Ok(document(&view))
}

/// Returns the entity tags of `If-Match`, or `None` without this header. Weak and malformed tags
/// match nothing.
fn if_match(headers: &HeaderMap) -> Option<ExpectedView> {
    let mut values = headers.get_all(header::IF_MATCH).into_iter().peekable();
    values.peek()?;
    let mut tags = Vec::new();
    for value in values {
        let text = value.to_str().unwrap_or_default();
        for tag in text.split(',').map(str::trim) {
            if tag == "*" {
                return Some(ExpectedView::Any);
            }
            let quoted = tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"'));
            tags.extend(quoted.map(str::to_owned));
        }
    }
    Some(ExpectedView::OneOf(tags))
}

/// Returns the body of both responses, with its entity tag.
fn document(view: &SettingsView) -> impl IntoResponse + use<> {
    let body = ConfigView {
        version: view.version,
        tuning: view.tuning.clone(),
        effective: view.effective.clone(),
        tunable: view.tunable.clone(),
    };
    ([(header::ETAG, format!("\"{}\"", view.tag))], Json(body))
}

impl From<SettingsError> for Problem {
    fn from(error: SettingsError) -> Self {
        let text = error.to_string();
        match error {
            SettingsError::Stale => Self::new(StatusCode::PRECONDITION_FAILED, text),
            SettingsError::Refused { .. } => Self::unprocessable(text),
            SettingsError::Unusable(_) => Self::conflict(text),
            SettingsError::Unwritable(source) => {
                tracing::warn!("failed to write the tuning file: {source}");
                Self::new(StatusCode::SERVICE_UNAVAILABLE, text)
            }
            SettingsError::Store(error) => error.into(),
        }
    }
}

fn no_settings() -> Problem {
    Problem::not_found("the configuration of this process cannot be changed while it runs")
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn if_match_is_read_as_tags() {
        let of = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::IF_MATCH, HeaderValue::from_static(value));
            }
            if_match(&headers)
        };
        let tags = |tags: &[&str]| {
            let tags = tags.iter().map(|tag| (*tag).to_owned());
            Some(ExpectedView::OneOf(tags.collect()))
        };
        assert_eq!(of(&[]), None);
        assert_eq!(of(&["*"]), Some(ExpectedView::Any));
        assert_eq!(of(&["\"1-a\", \"2\"", "\"3\""]), tags(&["1-a", "2", "3"]));
        assert_eq!(of(&["W/\"1\"", "1", "\"", ""]), tags(&[]));
    }
}
