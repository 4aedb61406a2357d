//! Removal of the traces of deleted rows from the files of the database.

use std::io;
use std::path::{Path, PathBuf};

use riglm_ports::analytics::StoreError;
use sqlx::SqlitePool;

use crate::database::{Database, SqliteDatabase, backup_of, newest_schema_version};
use crate::error::operation_error;

/// Checkpoints the write-ahead log of a SQLite database as far as readers allow, and truncates it
/// if `is_last`. A failure is only logged, because the next call tries again.
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
        tracing::warn!("failed to checkpoint the write-ahead log of the database: {error}");
    }
}

const OVERWRITE: &str = "PRAGMA secure_delete = ON";

/// Makes a SQLite database overwrite deleted data until [`scrub`] has run.
///
/// # Errors
///
/// Returns [`StoreError`] when the database fails.
pub(crate) async fn enable_secure_delete(database: &Database) -> Result<(), StoreError> {
    if let Database::Sqlite(database) = database {
        (sqlx::query(OVERWRITE).execute(database.writer()).await)
            .map_err(operation_error("enable the overwriting of deleted data"))?;
    }
    Ok(())
}

/// Overwrites the traces of deleted rows in the files of the database.
///
/// Rewrites the SQLite file, empties its log, and deletes the backups made before migrations. In
/// PostgreSQL it makes the space of deleted rows reusable.
///
/// # Errors
///
/// Returns [`StoreError`] when the database fails, or when a reader prevents the log from being
/// emptied for seconds.
pub(crate) async fn scrub(database: &Database) -> Result<(), StoreError> {
    match database {
        Database::Sqlite(database) => scrub_sqlite(database).await,
        Database::Postgres(database) => {
            (database.vacuum().await).map_err(operation_error("free the space of deleted rows"))
        }
    }
}

async fn scrub_sqlite(database: &SqliteDatabase) -> Result<(), StoreError> {
    let operation = "overwrite deleted data";
    if !(rewrite(database.writer()).await).map_err(operation_error(operation))? {
        let busy = io::Error::new(
            io::ErrorKind::ResourceBusy,
            "another connection reads the database",
        );
        return Err(operation_error(operation)(busy));
    }
    for copy in
        copies_of(database.path()).map_err(operation_error("list backups of the database"))?
    {
        std::fs::remove_file(&copy).map_err(operation_error("remove a backup of the database"))?;
        tracing::info!("removed backup {}: it had deleted rows", copy.display());
    }
    Ok(())
}

/// Rewrites the file and empties the log; returns false if a reader prevented it.
async fn rewrite(writer: &SqlitePool) -> Result<bool, sqlx::Error> {
    let mut connection = writer.acquire().await?;
    // `VACUUM` builds new pages in memory that may have held rows.
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

/// Returns the backups of the database from before migrations, incomplete ones too, and the damaged
/// files that were moved aside.
fn copies_of(path: &Path) -> io::Result<Vec<PathBuf>> {
    let directory = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let mut copies = Vec::new();
    for entry in std::fs::read_dir(directory)? {
        let entry = entry?;
        let found = path.with_file_name(entry.file_name());
        let is_damaged = is_named_after(&found, path, b".damaged-");
        if is_damaged
            || (1..=newest_schema_version())
                .any(|version| is_copy(&found, &backup_of(path, version)))
        {
            copies.push(entry.path());
        }
    }
    Ok(copies)
}

/// Returns whether the name of `file` is the name of `other` followed by `then`.
fn is_named_after(file: &Path, other: &Path, then: &[u8]) -> bool {
    let name = |path: &Path| (path.file_name()).map(|name| name.as_encoded_bytes().to_vec());
    name(file).zip(name(other)).is_some_and(|(file, other)| {
        (file.strip_prefix(&*other)).is_some_and(|rest| rest.starts_with(then))
    })
}

/// Returns whether the file is this backup or an incomplete part of it.
fn is_copy(file: &Path, copy: &Path) -> bool {
    let name = |path: &Path| {
        path.file_name()
            .map(|name| name.as_encoded_bytes().to_vec())
    };
    let rest = name(file).zip(name(copy)).and_then(|(file, copy)| {
        let rest = file.strip_prefix(&*copy)?;
        Some(rest.to_vec())
    });
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(b"."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backups_are_distinguished_from_other_files() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("riglm.db");
        let names = |paths: Vec<PathBuf>| {
            let mut names: Vec<_> = (paths.iter())
                .map(|path| path.file_name().unwrap().to_str().unwrap().to_owned())
                .collect();
            names.sort();
            names
        };
        for name in [
            "riglm.db",
            "riglm.db-wal",
            "riglm.db.v1.backup",
            "riglm.db.v1.backup.4711",
            "riglm.db.v1.backups",
            "riglm.db.vX.backup",
            "other.db.v1.backup",
        ] {
            std::fs::write(dir.path().join(name), "").unwrap();
        }
        assert_eq!(
            names(copies_of(&path).unwrap()),
            ["riglm.db.v1.backup", "riglm.db.v1.backup.4711"]
        );
    }
}
