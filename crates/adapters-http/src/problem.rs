//! Error bodies as of RFC 9457.

use axum::response::{IntoResponse, Response};
use http::{HeaderValue, StatusCode, header};

/// An answer with `application/problem+json`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Problem {
    pub(crate) status: StatusCode,
    /// What went wrong with this request; holds nothing that the request said.
    pub(crate) detail: &'static str,
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
