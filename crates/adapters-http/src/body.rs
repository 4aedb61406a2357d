//! Request bodies: JSON of limited size, validated before a handler gets it.

use axum::Json;
use axum::body::Bytes;
use axum::extract::rejection::JsonRejection;
use axum::extract::{FromRequest, Request};
use http::StatusCode;
use serde::de::DeserializeOwned;
use validator::Validate;

use crate::problem::Problem;

/// The largest accepted body, in bytes.
pub(crate) const MAX_BYTES: usize = 64 << 10;

/// A parsed and validated body.
#[derive(Debug)]
pub(crate) struct Valid<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Validate> FromRequest<S> for Valid<T> {
    type Rejection = Problem;

    async fn from_request(request: Request, state: &S) -> Result<Self, Problem> {
        let (parts, body) = request.into_parts();
        let whole = Request::from_parts(parts.clone(), body);
        let bytes = Bytes::from_request(whole, state).await;
        let bytes = bytes.map_err(|rejection| {
            let detail = if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                format!("the body has more than {MAX_BYTES} bytes")
            } else {
                "failed to read the request body".into()
            };
            Problem::new(rejection.status(), detail)
        })?;
        // serde would also read the members of an object from a JSON array, in order of
        // declaration.
        let is_object = bytes.trim_ascii_start().first() == Some(&b'{');
        let read = Json::<T>::from_request(Request::from_parts(parts, bytes.into()), state).await;
        let read = read.map_err(|rejection| {
            let status = match &rejection {
                JsonRejection::JsonSyntaxError(_) => StatusCode::BAD_REQUEST,
                other => other.status(),
            };
            Problem::new(status, reason(&rejection))
        })?;
        let Json(body) = read;
        if !is_object {
            let detail = "invalid body: expected a JSON object";
            return Err(Problem::unprocessable(detail));
        }
        body.validate()
            .map_err(|errors| Problem::unprocessable(errors.to_string().replace('\n', "; ")))?;
        Ok(Self(body))
    }
}

/// Returns the reason for refusing a body, without quoting the body.
fn reason(rejection: &JsonRejection) -> String {
    match rejection {
        JsonRejection::JsonDataError(error) => match std::error::Error::source(error) {
            Some(source) => format!("invalid body: {source}"),
            None => "invalid body".into(),
        },
        JsonRejection::JsonSyntaxError(_) => "the body is not valid JSON".into(),
        JsonRejection::MissingJsonContentType(_) => {
            "the content type must be application/json".into()
        }
        _ => "failed to read the request body".into(),
    }
}
