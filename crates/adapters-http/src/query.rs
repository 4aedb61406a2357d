//! Query parameters of requests, and cursors of pages.

use axum::extract::{FromRequestParts, Query};
use http::request::Parts;
use serde::de::DeserializeOwned;
use validator::Validate;

use crate::problem::Problem;

/// Parsed and validated query parameters. Unknown ones are refused if the type denies them.
#[derive(Debug)]
pub(crate) struct Params<T>(pub(crate) T);

impl<S: Send + Sync, T: DeserializeOwned + Validate> FromRequestParts<S> for Params<T> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        let read = Query::<T>::try_from_uri(&parts.uri).map_err(|rejection| {
            let reason = std::error::Error::source(&rejection)
                .map_or_else(|| "failed to parse them".to_owned(), ToString::to_string);
            Problem::unprocessable(format!("invalid query parameters: {reason}"))
        })?;
        read.validate()
            .map_err(|errors| Problem::unprocessable(errors.to_string().replace('\n', "; ")))?;
        Ok(Self(read.0))
    }
}

/// Returns the refusal of a cursor that riglm did not issue.
pub(crate) fn invalid_cursor() -> Problem {
    Problem::unprocessable("unknown cursor; omit cursor to start with the first page")
}
