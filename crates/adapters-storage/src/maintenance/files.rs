//! What removed rows leave in the files of the database.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};

use riglm_ports::analytics::StoreError;
use sqlx::{Connection as _, SqlitePool};

use crate::database::{Database, PostgresDatabase, SqliteDatabase};
use crate::error::failing;

/// Carries the write-ahead log of a SQLite database into its file as far as readers allow, and
/// empties it where it `is_last`. It is tried again after the next call where that fails.
pub(super) async fn checkpoint(database: &Database, is_last: bool) {
    let Database::Sqlite(database) = database else {
        return;
    };
    let statement = if is_last {
        "PRAGMA wal_checkpoint(TRUNCATE)"
    } else {
        "PRAGMA wal_checkpoint(PASSIVE)"
    };
    let done = sqlx::query(statement).execute(database.writer()).await;
    if let Err(error) = done {
        tracing::warn!("failed to shorten the write-ahead log of the database: {error}");
    }
}

/// Returns what has to be said to a SQLite database before rows are deleted whose bytes have to
/// go.
const OVERWRITE: &str = "PRAGMA secure_delete = ON";

/// Overwrites what deleted rows left in the files of the database: writes the SQLite file anew,
/// empties its log, and removes the copies that were made of it before migrations. In PostgreSQL
/// it gives the room of deleted rows free.
///
/// # Errors
///
/// Returns [`StoreError`] when the database fails, or when a reader keeps the log from being
/// emptied for seconds.
pub(crate) async fn scrub(database: &Database) -> Result<(), StoreError> {
    match database {
        Database::Sqlite(database) => scrub_sqlite(database).await,
        Database::Postgres(database) => {
            (vacuum_postgres(database).await).map_err(failing("give the room of rows free"))
        }
    }
}

async fn scrub_sqlite(database: &SqliteDatabase) -> Result<(), StoreError> {
    let failing_scrub = || failing("overwrite what was deleted");
    let is_empty = rewrite(database.writer())
        .await
        .map_err(failing("overwrite what was deleted"))?;
    if !is_empty {
        let busy = io::Error::new(io::ErrorKind::ResourceBusy, "a reader is in the way");
        return Err(failing_scrub()(busy));
    }
    for copy in copies_of(database.path()).map_err(failing("list copies of the database"))? {
        std::fs::remove_file(&copy).map_err(failing("remove a copy of the database"))?;
        tracing::info!(
            "removed {}, which has rows that were deleted",
            copy.display()
        );
    }
    Ok(())
}

/// Writes the file anew and empties the log; returns whether that was possible.
async fn rewrite(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    let mut connection = writer.acquire().await?;
    // Pages are built anew in memory that may have held rows.
    sqlx::query(OVERWRITE).execute(&mut *connection).await?;
    sqlx::query("VACUUM").execute(&mut *connection).await?;
    let (is_busy, _, _): (i64, i64, i64) = sqlx::query_as("PRAGMA wal_checkpoint(TRUNCATE)")
        .fetch_one(&mut *connection)
        .await?;
    sqlx::query("PRAGMA secure_delete = OFF")
        .execute(&mut *connection)
        .await?;
    Ok(is_busy == 0)
}

/// Returns the copies that were made of the database before migrations, cut off ones too.
fn copies_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (path.parent(), path.file_name().and_then(OsStr::to_str))
    else {
        return Ok(Vec::new());
    };
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    let mut copies = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let path = entry?.path();
        let found = path.file_name().and_then(OsStr::to_str);
        if found.is_some_and(|found| is_copy(found, name)) {
            copies.push(path);
        }
    }
    Ok(copies)
}

/// Returns whether `found` is the name of a copy of the database file called `name`.
fn is_copy(found: &str, name: &str) -> bool {
    let rest = (found.strip_prefix(name)).and_then(|rest| rest.strip_prefix(".v"));
    rest.and_then(|rest| rest.split_once(".backup"))
        .is_some_and(|(version, _)| version.parse::<u32>().is_ok())
}

async fn vacuum_postgres(database: &PostgresDatabase) -> Result<(), sqlx::Error> {
    // A connection of its own: what is set here must not be found by others.
    let mut connection = database.pool().acquire().await?.detach();
    sqlx::query("SET statement_timeout = 0")
        .execute(&mut connection)
        .await?;
    sqlx::query(
        "VACUUM sessions, invocations, exchanges, session_tool_lists, session_tools, lists_shown,
            searches, contexts, recommendations, feedback, work_sessions, overrides, tools,
            tool_sets, call_counts, latency_counts, transition_counts, pair_counts",
    )
    .execute(&mut connection)
    .await?;
    connection.close().await
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::backup_of;

    #[test]
    fn copies_are_told_from_other_files() {
        let copy = backup_of(Path::new("riglm.db"), 1);
        let copy = copy.to_str().unwrap();
        assert!(is_copy(copy, "riglm.db"));
        assert!(is_copy(&format!("{copy}.4711"), "riglm.db"));
        for other in [
            "riglm.db",
            "riglm.db-wal",
            "riglm.db.vX.backup",
            "other.v1.backup",
        ] {
            assert!(!is_copy(other, "riglm.db"), "{other}");
        }
    }
}
