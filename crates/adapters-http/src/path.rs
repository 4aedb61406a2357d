//! The extractor for a name in a path.

use axum::extract::{FromRequestParts, Path};
use http::request::Parts;

use crate::problem::Problem;

/// The one variable segment of a path, decoded. It may contain any character, including slashes.
#[derive(Debug)]
pub(crate) struct Segment(pub(crate) String);

impl<S: Send + Sync> FromRequestParts<S> for Segment {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, Problem> {
        if let Ok(Path(segment)) = Path::<String>::from_request_parts(parts, state).await {
            return Ok(Self(segment));
        }
        // No name is invalid UTF-8, so it does not exist: 404.
        Err(Problem::not_found("the name in the path is not UTF-8"))
    }
}
