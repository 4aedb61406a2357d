//! Schema migrations: one numbered file for each change, with the same numbers for both databases.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use sqlx::SqlitePool;
use sqlx::migrate::{Migrate, Migrator};

use super::Transaction;
use super::migrations::SQLITE;
use crate::counts;
use crate::error::{open_error, open_file_error, operation_error};
use crate::private_file;
use crate::spool::lock;

/// The first schema version with counts. A migration from an older version counts the existing
/// calls.
const FIRST_WITH_COUNTS: i64 = 2;

// The polling interval for the lock of another process that migrates.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Returns the newest schema version that this build supports.
pub(crate) fn newest_schema_version() -> i64 {
    newest_of(&SQLITE)
}

pub(super) fn newest_of(migrations: &Migrator) -> i64 {
    migrations
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

/// Migrates the schema in one transaction that excludes other writers.
///
/// Of several processes that start at once, one migrates and the others find it done. A database
/// with rows is backed up first.
///
/// # Errors
///
/// Returns [`StoreError::NewerSchema`], with nothing written, when the database has a version that
/// this build does not support.
pub(super) async fn sqlite(writer: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    let found = {
        let mut connection = writer.acquire().await.map_err(open_file_error(path))?;
        let found = sqlite_version(&mut connection).await;
        found.map_err(open_file_error(path))?
    };
    let known = newest_of(&SQLITE);
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    if found == known {
        return Ok(());
    }
    if found > 0 {
        back_up(writer, path, found).await?;
    }
    let mut transaction = writer
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(open_file_error(path))?;
    // Read again: another process may have migrated meanwhile.
    let found = sqlite_version(&mut transaction)
        .await
        .map_err(open_file_error(path))?;
    run_migrations(&SQLITE, &mut *transaction, found)
        .await
        .map_err(open_error(path))?;
    let mut transaction = Transaction::Sqlite(transaction);
    count_older_calls(&mut transaction, found).await?;
    transaction.commit().await
}

/// Runs the migrations after the version `found`, in the transaction of the connection.
pub(super) async fn run_migrations<C: Migrate>(
    migrations: &Migrator,
    connection: &mut C,
    found: i64,
) -> Result<(), sqlx::migrate::MigrateError> {
    let known = newest_of(migrations);
    if found == known {
        return Ok(());
    }
    tracing::info!("migrating the database from version {found} to {known}");
    migrations.run_direct(None, connection, false).await
}

/// Counts the calls of a database that had no counts before its migration.
pub(super) async fn count_older_calls(
    transaction: &mut Transaction,
    found: i64,
) -> Result<(), StoreError> {
    if found > 0 && found < FIRST_WITH_COUNTS {
        counts::rebuild(transaction).await?;
    }
    Ok(())
}

/// Returns the newest version that was applied to the database, 0 for an empty one.
pub(super) async fn sqlite_version(
    connection: &mut sqlx::SqliteConnection,
) -> Result<i64, sqlx::Error> {
    let n_tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'")
            .fetch_one(&mut *connection)
            .await?;
    if n_tables == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await
}

/// Returns the path of the backup that is made before a database of this version is migrated.
pub(crate) fn backup_of(path: &Path, version: i64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".v{version}.backup"));
    name.into()
}

/// Backs up the database into its directory. An interrupted backup has another name and is
/// replaced.
async fn back_up(writer: &SqlitePool, path: &Path, version: i64) -> Result<(), StoreError> {
    let copying = "back up the database before its migration";
    let copy = backup_of(path, version);
    let with_suffix = |suffix| {
        let mut name = copy.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    // Of several processes that start at once, one makes the backup and the others find it done.
    let _lock = wait_for_lock(&with_suffix(".lock"))
        .await
        .map_err(operation_error(copying))?;
    if copy.exists() {
        return Ok(());
    }
    let draft = with_suffix(".part");
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(operation_error(copying)(error));
        }
        _ => {}
    }
    // The target must be an existing empty file, so that it has the private mode.
    private_file::ensure(&draft).map_err(operation_error(copying))?;
    sqlx::query("VACUUM INTO ?1")
        .bind(draft.display().to_string())
        .execute(writer)
        .await
        .map_err(operation_error(copying))?;
    std::fs::File::open(&draft)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&draft, &copy))
        .map_err(operation_error(copying))?;
    tracing::info!(
        "backed up the database to {} before its migration",
        copy.display()
    );
    Ok(())
}

/// Waits for the exclusive lock.
async fn wait_for_lock(path: &Path) -> io::Result<std::fs::File> {
    loop {
        if let Some(held) = lock::try_hold(path)? {
            return Ok(held);
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}
