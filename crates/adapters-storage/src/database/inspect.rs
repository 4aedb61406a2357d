//! Inspection of a database through one read-only connection.

use std::path::{Path, PathBuf};

use riglm_ports::analytics::StoreError;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::migrate::{newest_schema_version, sqlite_version};
use crate::error::{open_error, open_file_error};

/// Returns the number of sessions and of tool calls.
pub(super) const COUNT: &str =
    "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM invocations)";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct DatabaseContents {
    /// The version of the schema; 0 without one.
    pub(crate) version: i64,
    /// The number of sessions, if the schema is supported.
    pub(crate) n_sessions: Option<u64>,
    /// The number of tool calls, if the schema is supported.
    pub(crate) n_calls: Option<u64>,
}

impl DatabaseContents {
    pub(super) fn new(version: i64, counts: Option<(i64, i64)>) -> Self {
        let counts = counts.or((version == 0).then_some((0, 0)));
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Self {
            version,
            n_sessions: counts.map(|(n_sessions, _)| count(n_sessions)),
            n_calls: counts.map(|(_, n_calls)| count(n_calls)),
        }
    }
}

/// Returns whether this build supports a schema that is not empty.
pub(super) fn is_countable(version: i64) -> bool {
    (1..=newest_schema_version()).contains(&version)
}

/// Inspects a SQLite file. A missing or empty file has no contents.
pub(crate) async fn sqlite(path: &Path) -> Result<DatabaseContents, StoreError> {
    match std::fs::metadata(path) {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            return Ok(DatabaseContents::new(0, None));
        }
        metadata => metadata.map_err(open_error(path))?,
    };
    let looking = async {
        let mut connection = SqliteConnectOptions::new()
            .filename(path)
            .create_if_missing(false)
            .read_only(true)
            // Without a log file no process has the database open. `immutable` prevents SQLite from
            // creating one.
            .immutable(!log_of(path).exists())
            .connect()
            .await?;
        let version = sqlite_version(&mut connection).await?;
        let counts = if is_countable(version) {
            Some(sqlx::query_as(COUNT).fetch_one(&mut connection).await?)
        } else {
            None
        };
        connection.close().await?;
        Ok::<_, sqlx::Error>(DatabaseContents::new(version, counts))
    };
    looking.await.map_err(open_file_error(path))
}

/// Returns the path of the write-ahead log of a database.
fn log_of(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push("-wal");
    name.into()
}
