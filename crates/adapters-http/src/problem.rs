//! Error bodies as of RFC 9457.

use std::borrow::Cow;

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// An answer with `application/problem+json`.
#[derive(Clone, Debug)]
pub(crate) struct Problem {
    status: StatusCode,
    detail: Cow<'static, str>,
}

impl Problem {
    /// Returns the answer with a status that tells what went wrong with this request.
    pub(crate) fn new(status: StatusCode, detail: impl Into<Cow<'static, str>>) -> Self {
        let detail = detail.into();
        Self { status, detail }
    }
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        let body = serde_json::json!({
            "type": "about:blank",
            "title": self.status.canonical_reason(),
            "status": self.status.as_u16(),
            "detail": self.detail,
        });
        let media_type = HeaderValue::from_static("application/problem+json");
        (
            self.status,
            [(header::CONTENT_TYPE, media_type)],
            body.to_string(),
        )
            .into_response()
    }
}
