//! Inspection of a database through one read-only connection.

use std::path::{Path, PathBuf};

use riglm_ports::analytics::StoreError;
use sqlx::postgres::PgConnectOptions;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::migrate::{newest_schema_version, postgres_version, sqlite_version};
use crate::config::PostgresConfig;
use crate::error::{connect_error, open_error, open_file_error, server_name};

const COUNT: &str = "SELECT (SELECT count(*) FROM sessions), (SELECT count(*) FROM invocations)";

/// The contents of a database.
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
    fn new(version: i64, counts: Option<(i64, i64)>) -> Self {
        let counts = counts.or((version == 0).then_some((0, 0)));
        let count = |n: i64| u64::try_from(n).unwrap_or(0);
        Self {
            version,
            n_sessions: counts.map(|(n_sessions, _)| count(n_sessions)),
            n_calls: counts.map(|(_, n_calls)| count(n_calls)),
        }
    }
}

fn is_countable(version: i64) -> bool {
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

/// Inspects a schema of a PostgreSQL database; returns the location of the database and its
/// contents.
pub(crate) async fn postgres(
    config: &PostgresConfig,
) -> Result<(String, DatabaseContents), StoreError> {
    let options = config.connect_options()?;
    let (name, place) = (server_name(&options), location_of(&options));
    let timeout = config.connect_timeout;
    let looking = async {
        let options = super::postgres::with_timeouts(options, config);
        let mut connection = tokio::time::timeout(timeout, options.connect())
            .await
            .map_err(|_| super::postgres::timeout_error())??;
        sqlx::query("SET default_transaction_read_only = on")
            .execute(&mut connection)
            .await?;
        let version = postgres_version(&mut connection, &config.schema).await?;
        let counts = if is_countable(version) {
            Some(sqlx::query_as(COUNT).fetch_one(&mut connection).await?)
        } else {
            None
        };
        connection.close().await?;
        Ok::<_, sqlx::Error>(DatabaseContents::new(version, counts))
    };
    let contents = looking.await.map_err(connect_error(&name))?;
    Ok((place, contents))
}

fn location_of(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{}:{}/{database}", options.get_host(), options.get_port())
}
