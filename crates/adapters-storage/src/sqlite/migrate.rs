//! The schema: one numbered file for each change, embedded in the binary.

use std::path::Path;

use riglm_ports::analytics::StoreError;
use sqlx::migrate::Migrator;
use sqlx::{SqliteConnection, SqlitePool};

use crate::error::{failing, opening};

static MIGRATIONS: Migrator = sqlx::migrate!("../../migrations/sqlite");

/// Brings the schema up to date in one transaction that excludes other writers: of several
/// processes that start at once, one migrates and the others find it done.
///
/// # Errors
///
/// Returns [`StoreError::NewerSchema`], with nothing written, when the database has a version
/// that this build does not know.
pub(super) async fn to_latest(writer: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    let mut transaction = writer
        .begin_with("BEGIN IMMEDIATE")
        .await
        .map_err(opening(path))?;
    let known = MIGRATIONS
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0);
    let found = version(&mut transaction).await?;
    if found > known {
        transaction
            .rollback()
            .await
            .map_err(failing("give up a migration"))?;
        return Err(StoreError::NewerSchema { found, known });
    }
    MIGRATIONS
        .run_direct(None, &mut *transaction, false)
        .await
        .map_err(opening(path))?;
    transaction
        .commit()
        .await
        .map_err(failing("commit a migration"))
}

/// Returns the newest version that was applied to the database, 0 for an empty one.
async fn version(connection: &mut SqliteConnection) -> Result<i64, StoreError> {
    let n_tables: i64 =
        sqlx::query_scalar("SELECT count(*) FROM sqlite_schema WHERE name = '_sqlx_migrations'")
            .fetch_one(&mut *connection)
            .await
            .map_err(failing("read the schema"))?;
    if n_tables == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await
        .map_err(failing("read the version of the schema"))
}
