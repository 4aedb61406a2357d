//! Error bodies according to RFC 9457.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use riglm_app::control::StoreError;
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// A response with `application/problem+json`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
}

/// Error of a request, according to RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Always `about:blank`: the status is the kind of problem.
    #[serde(rename = "type")]
    kind: &'static str,
    /// Name of the status.
    title: &'static str,
    /// Status code.
    status: u16,
    /// Reason for this error.
    detail: Cow<'static, str>,
}

impl Problem {
    /// Creates a response with a status and the reason for the error.
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self { status, detail }
    }

    /// Creates a response for an object that does not exist.
    pub(crate) fn not_found(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::NOT_FOUND, detail)
    }

    /// Creates a response for a request that the current state does not permit.
    pub(crate) fn conflict(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Creates a response for an invalid body or parameter.
    pub(crate) fn unprocessable(detail: impl Into<Cow<'static, str>>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, detail)
    }
}

impl From<StoreError> for Problem {
    /// Logs the error, because the response does not contain it.
    fn from(error: StoreError) -> Self {
        tracing::warn!("control port: database request failed: {error}");
        let detail = "the database is unavailable";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

/// Returns a service that needs stored data.
///
/// # Errors
///
/// Returns 409 if nothing is stored.
pub(crate) fn require_store<T>(service: Option<T>) -> Result<T, Problem> {
    service.ok_or_else(|| Problem::conflict("no stored data: recording.mode is off"))
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Unknown"),
            status: self.status.as_u16(),
            detail: self.detail,
        };
        // Serialization cannot fail: the body has only texts and a number.
        let body = serde_json::to_string(&body).unwrap_or_default();
        let media_type = HeaderValue::from_static("application/problem+json");
        let mut response =
            (self.status, [(header::CONTENT_TYPE, media_type)], body).into_response();
        // RFC 9110 requires a challenge with this status.
        if self.status == StatusCode::UNAUTHORIZED {
            let challenge = HeaderValue::from_static("Bearer realm=\"riglm control\"");
            let headers = response.headers_mut();
            headers.insert(header::WWW_AUTHENTICATE, challenge);
        }
        response
    }
}

/// Errors of routes that need a token.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum TokenErrors {
    /// The token is missing or invalid.
    #[response(status = UNAUTHORIZED, content_type = "application/problem+json")]
    Unauthorized(#[to_schema] ProblemBody),
    /// The token does not have the scope, or `Host` or `Origin` is not allowed.
    #[response(status = FORBIDDEN, content_type = "application/problem+json")]
    Forbidden(#[to_schema] ProblemBody),
}

/// Errors of routes that read stored data.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum StoreErrors {
    /// No stored data: `recording.mode` is `off`.
    #[response(status = CONFLICT, content_type = "application/problem+json")]
    Conflict(#[to_schema] ProblemBody),
    /// The database is unavailable.
    #[response(status = SERVICE_UNAVAILABLE, content_type = "application/problem+json")]
    Unavailable(#[to_schema] ProblemBody),
}

/// Errors of routes with a body.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum BodyErrors {
    /// The body is not JSON.
    #[response(status = BAD_REQUEST, content_type = "application/problem+json")]
    BadRequest(#[to_schema] ProblemBody),
    /// The body is larger than 64 KiB.
    #[response(status = PAYLOAD_TOO_LARGE, content_type = "application/problem+json")]
    TooLarge(#[to_schema] ProblemBody),
    /// The content type is not `application/json`.
    #[response(status = UNSUPPORTED_MEDIA_TYPE, content_type = "application/problem+json")]
    MediaType(#[to_schema] ProblemBody),
    /// The body does not match the schema.
    #[response(status = UNPROCESSABLE_ENTITY, content_type = "application/problem+json")]
    Unprocessable(#[to_schema] ProblemBody),
}

/// Errors of routes with parameters.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum ParameterErrors {
    /// A parameter is invalid or unknown.
    #[response(status = UNPROCESSABLE_ENTITY, content_type = "application/problem+json")]
    Unprocessable(#[to_schema] ProblemBody),
}

/// Errors of routes that name one object.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum NotFoundError {
    /// The object does not exist.
    #[response(status = NOT_FOUND, content_type = "application/problem+json")]
    NotFound(#[to_schema] ProblemBody),
}
