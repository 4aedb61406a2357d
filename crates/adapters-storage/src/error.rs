//! From errors of the operating system and of the databases to [`StoreError`].

use std::fmt;
use std::path::Path;

use riglm_ports::analytics::StoreError;
use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteError;

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

/// An error of the driver that says once what went wrong: the driver repeats its causes, and names
/// lines of the source of the server.
#[derive(Debug)]
pub(crate) struct Plain(pub(crate) sqlx::Error);

impl fmt::Display for Plain {
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

/// Its causes are in its text.
impl std::error::Error for Plain {}

/// Returns a function that wraps the error of a statement.
pub(crate) fn doing(operation: &'static str) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| {
        if is_damage(&error) {
            StoreError::Damaged {
                what: "the database".into(),
                reason: Plain(error).to_string(),
            }
        } else {
            failing(operation)(Plain(error))
        }
    }
}

/// Returns what an error of SQLite means for the file at `path`.
pub(crate) fn opening_file(path: &Path) -> impl FnOnce(sqlx::Error) -> StoreError {
    move |error| {
        if is_damage(&error) {
            StoreError::Damaged {
                what: path.display().to_string(),
                reason: Plain(error).to_string(),
            }
        } else {
            opening(path)(Plain(error))
        }
    }
}

/// Returns whether the error says that the file is no sound database.
pub(crate) fn is_damage(error: &sqlx::Error) -> bool {
    const SQLITE_CORRUPT: u32 = 11;
    const SQLITE_NOTADB: u32 = 26;
    matches!(sqlite_code(error), Some(SQLITE_CORRUPT | SQLITE_NOTADB))
}

/// Returns whether another connection is in the way.
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

/// Returns what an error of a server means that was to be connected to.
pub(crate) fn opening_server(what: &str) -> impl FnOnce(sqlx::Error) -> StoreError {
    /// Invalid authorization, invalid password, no such database, no such schema.
    const REFUSALS: [&str; 5] = ["28000", "28P01", "3D000", "3F000", "42501"];
    move |error| {
        let code = error.as_database_error().and_then(DatabaseError::code);
        if code.is_some_and(|code| REFUSALS.contains(&code.as_ref())) {
            StoreError::Refused {
                what: what.to_owned(),
                reason: Plain(error).to_string(),
            }
        } else {
            opening_named(what.to_owned())(Plain(error))
        }
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
