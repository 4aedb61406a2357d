//! From errors of the operating system and of the databases to [`StoreError`].

use std::path::Path;

use riglm_ports::analytics::StoreError;
use sqlx::postgres::PgConnectOptions;

/// Returns a function that wraps the cause of a failed opening of `path`.
pub(crate) fn opening<E>(path: &Path) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    opening_named(path.display().to_string())
}

/// Returns a function that wraps the cause of a failed opening of `what`.
pub(crate) fn opening_named<E>(what: String) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
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

/// Returns the address of a server without what is secret in it.
pub(crate) fn server_name(options: &PgConnectOptions) -> String {
    format!(
        "the database {} at {}:{} as {}",
        options.get_database().unwrap_or(options.get_username()),
        options.get_host(),
        options.get_port(),
        options.get_username(),
    )
}
