//! Conversion of errors of the operating system and of the databases to [`StoreError`].

use std::fmt;
use std::path::Path;

use riglm_ports::analytics::StoreError;
use sqlx::sqlite::SqliteError;

/// Returns a function that wraps the cause of a failure to open `path`.
pub(crate) fn open_error<E>(path: &Path) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    open_error_named(path.display().to_string())
}

/// Returns a function that wraps the cause of a failure to open `what`.
pub(crate) fn open_error_named<E>(what: String) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| StoreError::Open {
        what,
        source: source.into(),
    }
}

/// Returns a function that wraps the cause of a failed `operation`, a verb and its object.
pub(crate) fn operation_error<E>(operation: &'static str) -> impl FnOnce(E) -> StoreError
where
    E: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    move |source| StoreError::Failed {
        operation,
        source: source.into(),
    }
}

/// An error of the driver with a shorter message. The driver repeats the causes of an error, and
/// names source lines of the server.
#[derive(Debug)]
pub(crate) struct ShortError(pub(crate) sqlx::Error);

impl fmt::Display for ShortError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            sqlx::Error::Database(error) => f.write_str(error.message()),
            sqlx::Error::Io(error) => error.fmt(f),
            sqlx::Error::Tls(error) | sqlx::Error::Configuration(error) => error.fmt(f),
            sqlx::Error::PoolTimedOut => f.write_str("all connections to the database are in use"),
            error => error.fmt(f),
        }
    }
}

// Has no `source`: the message contains the causes.
impl std::error::Error for ShortError {}

/// Returns a function that wraps the error of a statement.
pub(crate) fn statement_error(operation: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| {
        if is_damage(&error) {
            StoreError::Damaged {
                what: "the database".into(),
                reason: ShortError(error).to_string(),
            }
        } else {
            operation_error(operation)(ShortError(error))
        }
    }
}

/// Returns a function that wraps an error of SQLite while it opens the file at `path`.
pub(crate) fn open_file_error(path: &Path) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| {
        if is_damage(&error) {
            StoreError::Damaged {
                what: path.display().to_string(),
                reason: ShortError(error).to_string(),
            }
        } else {
            open_error(path)(ShortError(error))
        }
    }
}

/// Returns whether the error means that the file is damaged or not a database.
pub(crate) fn is_damage(error: &sqlx::Error) -> bool {
    const SQLITE_CORRUPT: u32 = 11;
    const SQLITE_NOTADB: u32 = 26;
    matches!(sqlite_code(error), Some(SQLITE_CORRUPT | SQLITE_NOTADB))
}

/// Returns whether another connection holds a conflicting lock.
pub(crate) fn is_busy(error: &sqlx::Error) -> bool {
    const SQLITE_BUSY: u32 = 5;
    sqlite_code(error) == Some(SQLITE_BUSY)
}

/// Returns the primary result code of SQLite, which is the low byte of an extended one.
fn sqlite_code(error: &sqlx::Error) -> Option<u32> {
    let error = error.as_database_error()?;
    error.try_downcast_ref::<SqliteError>()?;
    let code = error.code()?.parse::<u32>().ok()?;
    Some(code & 0xff)
}
