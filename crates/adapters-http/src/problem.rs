//! Error bodies as of RFC 9457.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};
use serde::Serialize;
use utoipa::{IntoResponses, ToSchema};

/// An answer with `application/problem+json`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
}

/// What went wrong with a request, as of RFC 9457.
#[derive(Debug, Serialize, ToSchema)]
#[schema(as = Problem)]
pub(crate) struct ProblemBody {
    /// Always `about:blank`: the status says what kind of problem it is.
    #[serde(rename = "type")]
    kind: &'static str,
    /// The name of the status.
    title: &'static str,
    /// The status.
    status: u16,
    /// What went wrong with this request.
    detail: Cow<'static, str>,
}

impl Problem {
    /// Returns the answer with a status that tells what went wrong with this request.
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self { status, detail }
    }

    /// Returns the answer to a request for what is not stored, because nothing is.
    pub(crate) fn nothing_stored() -> Self {
        let detail = "nothing is stored: recording.mode is off";
        Self::new(StatusCode::CONFLICT, detail)
    }

    /// Returns the answer for when the store fails, which is logged.
    pub(crate) fn store_failed(error: &dyn std::error::Error) -> Self {
        tracing::warn!("the store failed for the control server: {error}");
        let detail = "the database does not answer";
        Self::new(StatusCode::SERVICE_UNAVAILABLE, detail)
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = ProblemBody {
            kind: "about:blank",
            title: self.status.canonical_reason().unwrap_or("Unknown"),
            status: self.status.as_u16(),
            detail: self.detail,
        };
        // A problem is two texts and a number, which can always be written.
        let body = serde_json::to_string(&body).unwrap_or_default();
        let media_type = HeaderValue::from_static("application/problem+json");
        (self.status, [(header::CONTENT_TYPE, media_type)], body).into_response()
    }
}

/// What any request may be answered with that asks for a token.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum Guarded {
    /// There is no valid token.
    #[response(status = UNAUTHORIZED, content_type = "application/problem+json")]
    Unauthorized(#[to_schema] ProblemBody),
    /// The token lacks the scope, or `Host` or `Origin` is foreign.
    #[response(status = FORBIDDEN, content_type = "application/problem+json")]
    Forbidden(#[to_schema] ProblemBody),
}

/// What a request may be answered with that asks for what is stored.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum Stored {
    /// Nothing is stored: `recording.mode` is `off`.
    #[response(status = CONFLICT, content_type = "application/problem+json")]
    Conflict(#[to_schema] ProblemBody),
    /// The database does not answer.
    #[response(status = SERVICE_UNAVAILABLE, content_type = "application/problem+json")]
    Unavailable(#[to_schema] ProblemBody),
}

/// What a request with a body may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum Bodied {
    /// The body is no JSON text.
    #[response(status = BAD_REQUEST, content_type = "application/problem+json")]
    BadRequest(#[to_schema] ProblemBody),
    /// The body has more than 64 KiB.
    #[response(status = PAYLOAD_TOO_LARGE, content_type = "application/problem+json")]
    TooLarge(#[to_schema] ProblemBody),
    /// The content type is not `application/json`.
    #[response(status = UNSUPPORTED_MEDIA_TYPE, content_type = "application/problem+json")]
    MediaType(#[to_schema] ProblemBody),
    /// The body does not fit.
    #[response(status = UNPROCESSABLE_ENTITY, content_type = "application/problem+json")]
    Unprocessable(#[to_schema] ProblemBody),
}

/// What a request with parameters may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum Parametrised {
    /// A parameter does not fit, or is unknown.
    #[response(status = UNPROCESSABLE_ENTITY, content_type = "application/problem+json")]
    Unprocessable(#[to_schema] ProblemBody),
}

/// What a request for one thing may be answered with.
#[derive(IntoResponses)]
#[expect(dead_code, reason = "it describes answers, and is none")]
pub(crate) enum Named {
    /// There is no such thing.
    #[response(status = NOT_FOUND, content_type = "application/problem+json")]
    NotFound(#[to_schema] ProblemBody),
}
