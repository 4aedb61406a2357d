//! Opens a database so that neither it nor a running opencode notices.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{ConnectOptions as _, SqliteConnection};

use crate::transcripts::folders::{UnreadableReason, write_ahead_log};
use crate::transcripts::reader::io_reason;

/// The time that a query waits while another program has the database locked.
const BUSY_TIMEOUT: Duration = Duration::from_secs(1);

/// The place of the version for readers in the header of a database, and its value in WAL mode.
const READ_VERSION_PLACE: usize = 19;
const WAL_VERSION: u8 = 2;

/// The way in which a file is opened. Neither changes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Access {
    /// With the locks of a reader, which other readers and, in WAL mode, a writer do not notice.
    /// SQLite creates a missing index of the write-ahead log (`-shm`), as it does for every reader.
    ReadOnly,
    /// Without locks and other files, as on a medium that cannot be written.
    Immutable,
}

/// Opens a database.
pub(super) async fn open(path: &Path) -> Result<SqliteConnection, UnreadableReason> {
    let access = access_to(path).map_err(io_reason)?;
    SqliteConnectOptions::new()
        .filename(path)
        .create_if_missing(false)
        .read_only(true)
        .immutable(access == Access::Immutable)
        .busy_timeout(BUSY_TIMEOUT)
        // A file of somebody else could call functions in its schema.
        .pragma("trusted_schema", "OFF")
        .disable_statement_logging()
        .connect()
        .await
        .map_err(sqlite_reason)
}

/// Returns the reason of an error of the driver.
pub(super) fn sqlite_reason(error: sqlx::Error) -> UnreadableReason {
    match error {
        sqlx::Error::Io(error) => io_reason(error),
        // The whole message names the error twice.
        sqlx::Error::Database(error) => UnreadableReason::Database(error.message().into()),
        error => UnreadableReason::Database(error.to_string().into()),
    }
}

/// Without a log, nobody has a database in WAL mode open, and a reader with locks would create a log.
/// In the other modes a reader creates no file.
fn access_to(path: &Path) -> io::Result<Access> {
    let mut header = Vec::new();
    let n_bytes = READ_VERSION_PLACE as u64 + 1;
    File::open(path)?.take(n_bytes).read_to_end(&mut header)?;
    let is_wal = header.get(READ_VERSION_PLACE) == Some(&WAL_VERSION);
    Ok(if is_wal && !write_ahead_log(path).exists() {
        Access::Immutable
    } else {
        Access::ReadOnly
    })
}
