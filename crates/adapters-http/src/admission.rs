//! The check of `Host` and `Origin` on every request, by the rules of the domain.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderName, HeaderValue, StatusCode, header};
use riglm_domain::admission::{Admission, NotAdmitted};

use crate::problem::Problem;

/// Answers 403 to requests that may not come in.
pub(crate) async fn check(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Response {
    let detail = match checked(&admission, &request) {
        Ok(()) => return next.run(request).await,
        Err(NotAdmitted::Host) => "the host of this request is not allowed",
        Err(NotAdmitted::Origin) => "the origin of this request is not allowed",
    };
    Problem::new(StatusCode::FORBIDDEN, detail).into_response()
}

fn checked(admission: &Admission, request: &Request) -> Result<(), NotAdmitted> {
    let all = |name: HeaderName| request.headers().get_all(name).into_iter();
    admission.check(
        all(header::HOST).map(HeaderValue::as_bytes),
        all(header::ORIGIN).map(HeaderValue::as_bytes),
        request.uri().authority().map(Authority::as_str),
    )
}
