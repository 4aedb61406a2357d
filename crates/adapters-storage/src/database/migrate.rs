//! The schema: one numbered file for each change, the same numbers for both databases, embedded in
//! the binary.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use sqlx::migrate::{Migrate, Migrator};
use sqlx::{AssertSqlSafe, PgPool, SqlitePool};

use super::Transaction;
use crate::counts;
use crate::error::{failing, opening, opening_file, opening_named, opening_server};
use crate::private_file;
use crate::spool::lock;

static SQLITE: Migrator = sqlx::migrate!("../../migrations/sqlite");
static POSTGRES: Migrator = sqlx::migrate!("../../migrations/postgres");

/// The version of the schema that brought the counts: calls of older ones are counted then.
const FIRST_WITH_COUNTS: i64 = 2;

/// How often the lock of another process that migrates is looked at.
const LOCK_POLL: Duration = Duration::from_millis(10);

/// Returns the newest version that this build knows.
pub(crate) fn newest() -> i64 {
    newest_of(&SQLITE)
}

fn newest_of(migrations: &Migrator) -> i64 {
    migrations
        .iter()
        .map(|migration| migration.version)
        .max()
        .unwrap_or(0)
}

/// Brings the schema up to date in one transaction that excludes other writers: of several
/// processes that start at once, one migrates and the others find it done. A database that has
/// rows is copied first.
///
/// # Errors
///
/// Returns [`StoreError::NewerSchema`], with nothing written, when the database has a version
/// that this build does not know.
pub(super) async fn sqlite(writer: &SqlitePool, path: &Path) -> Result<(), StoreError> {
    let found = {
        let mut connection = writer.acquire().await.map_err(opening_file(path))?;
        let found = sqlite_version(&mut connection).await;
        found.map_err(opening_file(path))?
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
        .map_err(opening_file(path))?;
    let found = sqlite_version(&mut transaction)
        .await
        .map_err(opening_file(path))?;
    migrated(&SQLITE, &mut *transaction, found)
        .await
        .map_err(opening(path))?;
    let mut transaction = Transaction::Sqlite(transaction);
    count_older_calls(&mut transaction, found).await?;
    transaction.commit().await
}

/// Brings the schema up to date as [`sqlite`] does. The tables are in the schema with this name,
/// which is made when it is missing; `name` is that of the server.
///
/// # Errors
///
/// As for [`sqlite`].
pub(super) async fn postgres(pool: &PgPool, schema: &str, name: &str) -> Result<(), StoreError> {
    let unusable = |error: sqlx::Error| opening_server(name)(error);
    let known = newest_of(&POSTGRES);
    let mut transaction = pool.begin().await.map_err(unusable)?;
    // Of several processes that start at once one migrates, which takes as long as it takes.
    sqlx::query("SET LOCAL statement_timeout = 0")
        .execute(&mut *transaction)
        .await
        .map_err(unusable)?;
    sqlx::query("SET LOCAL lock_timeout = 0")
        .execute(&mut *transaction)
        .await
        .map_err(unusable)?;
    let encoding: String = sqlx::query_scalar("SHOW server_encoding")
        .fetch_one(&mut *transaction)
        .await
        .map_err(unusable)?;
    if encoding != "UTF8" {
        return Err(StoreError::Refused {
            what: name.to_owned(),
            reason: format!("its encoding is {encoding}, and names of tools need UTF8"),
        });
    }
    // Not by the name of the current schema, which there may not be yet.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('riglm ' || $1), 0)")
        .bind(schema)
        .execute(&mut *transaction)
        .await
        .map_err(unusable)?;
    let found = postgres_version(&mut transaction, schema)
        .await
        .map_err(unusable)?;
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    if found == known {
        return Ok(());
    }
    if found == 0 {
        // The name was checked to need no quotes.
        let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
        sqlx::query(AssertSqlSafe(create))
            .execute(&mut *transaction)
            .await
            .map_err(unusable)?;
    }
    migrated(&POSTGRES, &mut *transaction, found)
        .await
        .map_err(opening_named(name.to_owned()))?;
    let mut transaction = Transaction::Postgres(transaction);
    count_older_calls(&mut transaction, found).await?;
    transaction.commit().await
}

async fn migrated<C: Migrate>(
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

async fn count_older_calls(transaction: &mut Transaction, found: i64) -> Result<(), StoreError> {
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

pub(super) async fn postgres_version(
    connection: &mut sqlx::PgConnection,
    schema: &str,
) -> Result<i64, sqlx::Error> {
    let n_tables: i64 = sqlx::query_scalar(
        "SELECT count(*) FROM information_schema.tables
        WHERE table_schema = $1 AND table_name = '_sqlx_migrations'",
    )
    .bind(schema)
    .fetch_one(&mut *connection)
    .await?;
    if n_tables == 0 {
        return Ok(0);
    }
    sqlx::query_scalar("SELECT coalesce(max(version), 0) FROM _sqlx_migrations")
        .fetch_one(connection)
        .await
}

/// Returns the path of the copy that is made of a database of this version before it is migrated.
pub(crate) fn backup_of(path: &Path, version: i64) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".v{version}.backup"));
    name.into()
}

/// Copies the database beside itself. A copy that was cut off has another name and is replaced.
async fn back_up(writer: &SqlitePool, path: &Path, version: i64) -> Result<(), StoreError> {
    let copying = "copy the database before its migration";
    let copy = backup_of(path, version);
    let with_suffix = |suffix| {
        let mut name = copy.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    // Of several processes that start at once, one copies and the others find it done.
    let _lock = hold(&with_suffix(".lock"))
        .await
        .map_err(failing(copying))?;
    if copy.exists() {
        return Ok(());
    }
    let draft = with_suffix(".part");
    match std::fs::remove_file(&draft) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => {
            return Err(failing(copying)(error));
        }
        _ => {}
    }
    // The copy goes into a file that is there and empty, so that its mode is ours.
    private_file::ensure(&draft).map_err(failing(copying))?;
    sqlx::query("VACUUM INTO ?1")
        .bind(draft.display().to_string())
        .execute(writer)
        .await
        .map_err(failing(copying))?;
    std::fs::File::open(&draft)
        .and_then(|file| file.sync_all())
        .and_then(|()| std::fs::rename(&draft, &copy))
        .map_err(failing(copying))?;
    tracing::info!(
        "copied the database to {} before its migration",
        copy.display()
    );
    Ok(())
}

/// Waits until this process alone has the lock.
async fn hold(path: &Path) -> io::Result<std::fs::File> {
    loop {
        if let Some(held) = lock::try_hold(path)? {
            return Ok(held);
        }
        tokio::time::sleep(LOCK_POLL).await;
    }
}
