//! From errors of the operating system and of the database to [`StoreError`].

use std::path::Path;

use riglm_ports::analytics::StoreError;

/// Returns a function that wraps the cause of a failed opening of `path`.
pub(crate) fn opening<E>(path: &Path) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let what = path.display().to_string();
    move |source| StoreError::Open {
        what,
        source: source.into(),
    }
}

/// Returns a function that wraps the cause of a failed `operation`, a verb and its object.
pub(crate) fn failing<E>(operation: &'static str) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| StoreError::Failed {
        operation,
        source: source.into(),
    }
}
