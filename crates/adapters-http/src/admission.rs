//! The check of `Host` and `Origin` on every request, by the rules of the domain. It protects
//! against DNS rebinding and foreign web pages.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use riglm_domain::safeguards::admission::{Admission, AdmissionError};

use crate::problem::Problem;

/// Answers 403 to requests with a foreign `Host` or `Origin`.
pub(crate) async fn check(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Result<Response, Problem> {
    check_request(&admission, &request).map_err(|refused| {
        let advice = refused.advice("control");
        log_refusal(&advice, request.headers());
        Problem::new(StatusCode::FORBIDDEN, advice)
    })?;
    Ok(next.run(request).await)
}

// The first refusal is logged as a warning, later ones at level debug: a peer can cause many.
fn log_refusal(advice: &str, headers: &HeaderMap) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let host = headers.get(header::HOST);
    let origin = headers.get(header::ORIGIN);
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        tracing::debug!(?host, ?origin, "control port: request rejected: {advice}");
    } else {
        tracing::warn!(?host, ?origin, "control port: request rejected: {advice}");
    }
}

fn check_request(admission: &Admission, request: &Request) -> Result<(), AdmissionError> {
    let all = |name: HeaderName| request.headers().get_all(name).into_iter();
    admission.check(
        all(header::HOST).map(HeaderValue::as_bytes),
        all(header::ORIGIN).map(HeaderValue::as_bytes),
        request.uri().authority().map(Authority::as_str),
    )
}
