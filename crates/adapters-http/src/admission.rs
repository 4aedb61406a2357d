//! The check of `Host` and `Origin` on every request, by the rules of the domain.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use http::uri::Authority;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use riglm_domain::admission::{Admission, NotAdmitted};

use crate::problem::Problem;

/// Answers 403 to requests that may not come in.
pub(crate) async fn check(
    State(admission): State<Arc<Admission>>,
    request: Request,
    next: Next,
) -> Response {
    let Err(refused) = checked(&admission, &request) else {
        return next.run(request).await;
    };
    let advice = refused.advice("control");
    tell(&advice, request.headers());
    Problem::new(StatusCode::FORBIDDEN, advice).into_response()
}

/// Logs a refusal: the first one for everybody to see, the others, which a peer can make many of, for
/// who looks for them.
fn tell(advice: &str, headers: &HeaderMap) {
    static IS_TOLD: AtomicBool = AtomicBool::new(false);
    let host = headers.get(header::HOST);
    let origin = headers.get(header::ORIGIN);
    if IS_TOLD.swap(true, Ordering::Relaxed) {
        tracing::debug!(?host, ?origin, "a request was refused: {advice}");
    } else {
        tracing::warn!(?host, ?origin, "a request was refused: {advice}");
    }
}

fn checked(admission: &Admission, request: &Request) -> Result<(), NotAdmitted> {
    let all = |name: HeaderName| request.headers().get_all(name).into_iter();
    admission.check(
        all(header::HOST).map(HeaderValue::as_bytes),
        all(header::ORIGIN).map(HeaderValue::as_bytes),
        request.uri().authority().map(Authority::as_str),
    )
}
