//! One SQLite file.
//!
//! One connection writes, a few read: SQLite has one writer at a time anyway, and in WAL mode
//! readers do not wait for it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqliteConnection, SqlitePool};
use tokio::time::{Instant, sleep};

use super::migrate;
use crate::config::Durability;
use crate::damage;
use crate::error::{is_busy, opening, opening_file};
use crate::private_file;

/// How long a statement waits for another process that is writing.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
/// How often opening is tried again while another process is in the way.
const BUSY_POLL: Duration = Duration::from_millis(10);
/// The size in bytes to which the write-ahead log shrinks after a checkpoint.
const WAL_BYTES: u32 = 16 * 1024 * 1024;
/// How long a reader waits for one of the reading connections.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
/// How many readers work at the same time.
const MAX_READERS: u32 = 4;

/// How closely a file is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Depth {
    /// Each page by itself.
    Pages,
    /// Each index with its table too.
    Indexes,
}

/// A database in a file.
#[derive(Debug)]
pub(crate) struct SqliteDatabase {
    /// Tells others that the file is in use and must stay in its place; gone once it is closed.
    in_use: Mutex<Option<File>>,
    path: PathBuf,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteDatabase {
    /// Opens the database at `path`, creates it when missing and brings its schema up to date.
    ///
    /// The directory must exist. The file, and with it the files that SQLite puts beside it, is
    /// readable and writable by its owner alone.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NewerSchema`] when a newer version made the schema; nothing is
    /// written then. Returns [`StoreError::Damaged`] when the file is no database or may not be
    /// used, and [`StoreError::Open`] when it cannot be used now.
    pub(crate) async fn open(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        let in_use = damage::hold_in_use(path).await.map_err(opening(path))?;
        private_file::ensure(path).map_err(|error| unusable(path, error))?;
        let options = SqliteConnectOptions::new()
            .filename(path)
            .journal_mode(SqliteJournalMode::Wal)
            .synchronous(match durability {
                Durability::Process => SqliteSynchronous::Normal,
                Durability::Power => SqliteSynchronous::Full,
            })
            .pragma("journal_size_limit", WAL_BYTES.to_string())
            .foreign_keys(false)
            .busy_timeout(BUSY_TIMEOUT)
            .log_statements(log::LevelFilter::Trace);
        let writer = connect_writer(&options).await.map_err(opening_file(path))?;
        if let Err(error) = migrate::sqlite(&writer, path).await {
            writer.close().await;
            return Err(error);
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(MAX_READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options.read_only(true));
        Ok(Self {
            in_use: Mutex::new(Some(in_use)),
            path: path.into(),
            writer,
            readers,
        })
    }

    /// Returns what is wrong with the file: by a look at every page that takes no longer than its
    /// reading, or with a comparison of the indexes too.
    pub(crate) async fn look_through(&self, depth: Depth) -> Result<Option<String>, sqlx::Error> {
        let look = match depth {
            Depth::Pages => "PRAGMA quick_check(1)",
            Depth::Indexes => "PRAGMA integrity_check(1)",
        };
        let finding: String = sqlx::query_scalar(look).fetch_one(&self.readers).await?;
        Ok((finding != "ok").then_some(finding))
    }

    /// Returns the path of the file.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the connection that writes.
    pub(crate) fn writer(&self) -> &SqlitePool {
        &self.writer
    }

    /// Returns the connections that read.
    pub(crate) fn readers(&self) -> &SqlitePool {
        &self.readers
    }

    pub(super) async fn rows(
        &self,
        statement: &'static str,
        parameter: String,
    ) -> Result<Vec<String>, sqlx::Error> {
        let mut connection = self.readers.acquire().await?;
        rows(&mut connection, statement, parameter).await
    }

    pub(super) async fn begin(
        &self,
    ) -> Result<sqlx::Transaction<'static, sqlx::Sqlite>, sqlx::Error> {
        match self.writer.begin_with("BEGIN IMMEDIATE").await {
            // When the disk is full SQLite gives a transaction up by itself, the driver goes on
            // counting it, and its connection begins no other one.
            Err(sqlx::Error::InvalidSavePointStatement) => {
                self.writer.acquire().await?.close().await?;
                self.writer.begin_with("BEGIN IMMEDIATE").await
            }
            begun => begun,
        }
    }

    pub(super) async fn begin_reading(
        &self,
    ) -> Result<sqlx::Transaction<'static, sqlx::Sqlite>, sqlx::Error> {
        self.readers.begin().await
    }

    pub(super) async fn close(&self) {
        self.readers.close().await;
        self.writer.close().await;
        drop(
            self.in_use
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .take(),
        );
    }
}

/// Returns what it means that the file cannot be opened at all. A directory is none, and one that
/// is there and that we may not use stays so; whether the disk is full or writable may change.
fn unusable(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::IsADirectory => StoreError::Refused {
            what: path.display().to_string(),
            reason: "it is a directory".into(),
        },
        io::ErrorKind::PermissionDenied if path.exists() => StoreError::Damaged {
            what: path.display().to_string(),
            reason: error.to_string(),
        },
        _ => opening(path)(error),
    }
}

/// Opens the writing connection, with patience: the switch of a new file to WAL mode, which every
/// process that starts tries, does not wait for others by itself.
async fn connect_writer(options: &SqliteConnectOptions) -> Result<SqlitePool, sqlx::Error> {
    let deadline = Instant::now() + BUSY_TIMEOUT;
    loop {
        let connected = SqlitePoolOptions::new()
            .max_connections(1)
            .min_connections(1)
            .idle_timeout(None)
            .max_lifetime(None)
            .acquire_timeout(BUSY_TIMEOUT * 2)
            .test_before_acquire(false)
            .connect_with(options.clone())
            .await;
        match connected {
            Err(error) if is_busy(&error) && Instant::now() < deadline => sleep(BUSY_POLL).await,
            connected => return connected,
        }
    }
}

pub(super) async fn rows(
    connection: &mut SqliteConnection,
    statement: &'static str,
    parameter: String,
) -> Result<Vec<String>, sqlx::Error> {
    sqlx::query_scalar(statement)
        .bind(parameter)
        .fetch_all(connection)
        .await
}

pub(super) async fn execute(
    connection: &mut SqliteConnection,
    statement: &'static str,
    parameter: String,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query(statement)
        .bind(parameter)
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}
