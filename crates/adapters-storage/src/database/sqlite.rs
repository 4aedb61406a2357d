//! A SQLite database: one file.
//!
//! One connection writes, and a few read: SQLite has one writer at a time anyway, and in WAL mode
//! readers do not wait for it.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use parking_lot::Mutex;
use riglm_ports::analytics::StoreError;
use sqlx::sqlite::{SqliteConnectOptions, SqliteJournalMode, SqlitePoolOptions, SqliteSynchronous};
use sqlx::{ConnectOptions as _, SqliteConnection, SqlitePool};
use tokio::time::{Instant, sleep};

use super::migrate;
use crate::config::Durability;
use crate::damage;
use crate::error::{is_busy, open_error, open_file_error};
use crate::private_file;

// The time that a statement waits for another process that writes.
const BUSY_TIMEOUT: Duration = Duration::from_secs(5);
// The interval between attempts to open the file while another process locks it.
const BUSY_POLL: Duration = Duration::from_millis(10);
/// The size in bytes to which the write-ahead log shrinks after a checkpoint.
const WAL_BYTES: u32 = 16 * 1024 * 1024;
/// The size in pages of 4 KiB above which a commit checkpoints the log, which leaves room for one
/// more transaction below [`WAL_BYTES`]. A page that several transactions change is copied once for
/// all of them.
const CHECKPOINT_PAGES: u16 = 2_500;
/// The size in KiB of the page cache of the writer: enough for the pages that a full batch of calls
/// changes. SQLite writes pages twice if they do not fit.
const WRITER_CACHE_KIB: i32 = 8 * 1024;
// The time that a reader waits for a free connection.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(5);
// The maximum number of concurrent readers.
const MAX_READERS: u32 = 4;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CheckDepth {
    /// Each page separately.
    Pages,
    /// Also each index against its table.
    Indexes,
}

#[derive(Debug)]
pub(crate) struct SqliteDatabase {
    /// A lock that tells other processes not to move the file. `None` after the database is closed.
    in_use: Mutex<Option<File>>,
    path: PathBuf,
    writer: SqlitePool,
    readers: SqlitePool,
}

impl SqliteDatabase {
    /// Opens the database at `path`, creates it if it is missing, and migrates its schema.
    ///
    /// The directory must exist. The file, and the files that SQLite creates in its directory, are
    /// readable and writable only by the owner.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NewerSchema`] when the schema is from a newer version; nothing is
    /// written then. Returns [`StoreError::Damaged`] when the file is not a database or may not be
    /// used, and [`StoreError::Open`] when it cannot be used now.
    pub(crate) async fn open(path: &Path, durability: Durability) -> Result<Self, StoreError> {
        let in_use = damage::lock_shared(path).await.map_err(open_error(path))?;
        private_file::ensure(path).map_err(|error| open_file_failure(path, error))?;
        let writer = connect_writer(&writer_options(path, durability))
            .await
            .map_err(open_file_error(path))?;
        if let Err(error) = migrate::sqlite(&writer, path).await {
            writer.close().await;
            return Err(error);
        }
        let readers = SqlitePoolOptions::new()
            .max_connections(MAX_READERS)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .connect_lazy_with(options(path, durability).read_only(true));
        Ok(Self {
            in_use: Mutex::new(Some(in_use)),
            path: path.into(),
            writer,
            readers,
        })
    }

    /// Returns a description of the damage in the file. The shallow check reads every page, which
    /// takes no longer than reading the file. The deep check compares the indexes too.
    pub(crate) async fn integrity_check(
        &self,
        depth: CheckDepth,
    ) -> Result<Option<String>, sqlx::Error> {
        let look = match depth {
            CheckDepth::Pages => "PRAGMA quick_check(1)",
            CheckDepth::Indexes => "PRAGMA integrity_check(1)",
        };
        let finding: String = sqlx::query_scalar(look).fetch_one(&self.readers).await?;
        Ok((finding != "ok").then_some(finding))
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    pub(crate) fn writer(&self) -> &SqlitePool {
        &self.writer
    }

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
            // If the disk is full, SQLite rolls a transaction back by itself, but the driver still
            // counts it. Its connection can then begin no other transaction, so it is closed.
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
        // Readers first, so that the writer is the last connection, which can checkpoint the log.
        self.readers.close().await;
        self.writer.close().await;
        drop(self.in_use.lock().take());
    }
}

/// Returns the error for a file that cannot be opened at all. A directory, and an existing file
/// without permission, are permanent errors. A full or read-only disk may change.
fn open_file_failure(path: &Path, error: io::Error) -> StoreError {
    match error.kind() {
        io::ErrorKind::IsADirectory => StoreError::Refused {
            what: path.display().to_string(),
            reason: "it is a directory".into(),
        },
        io::ErrorKind::PermissionDenied if path.exists() => StoreError::Damaged {
            what: path.display().to_string(),
            reason: error.to_string(),
        },
        _ => open_error(path)(error),
    }
}

fn options(path: &Path, durability: Durability) -> SqliteConnectOptions {
    SqliteConnectOptions::new()
        .filename(path)
        .journal_mode(SqliteJournalMode::Wal)
        .synchronous(match durability {
            Durability::Process => SqliteSynchronous::Normal,
            Durability::Power => SqliteSynchronous::Full,
        })
        .pragma("journal_size_limit", WAL_BYTES.to_string())
        // The driver enables foreign keys, but no table declares any: a row may belong to a session
        // that was never recorded.
        .foreign_keys(false)
        .busy_timeout(BUSY_TIMEOUT)
        .log_statements(log::LevelFilter::Trace)
}

fn writer_options(path: &Path, durability: Durability) -> SqliteConnectOptions {
    options(path, durability)
        .pragma("cache_size", (-WRITER_CACHE_KIB).to_string())
        // The pages that a statement would restore after a failure. In a file, which is the default,
        // they are two fifths of all written pages. They are freed with the statement.
        .pragma("temp_store", "MEMORY")
        .pragma("wal_autocheckpoint", CHECKPOINT_PAGES.to_string())
}

/// Opens the writing connection, with retries: the switch of a new file to WAL mode, which every
/// starting process tries, does not honour the busy timeout.
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
