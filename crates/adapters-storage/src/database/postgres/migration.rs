//! Migration of the schema on a server.

use riglm_ports::analytics::StoreError;
use sqlx::{AssertSqlSafe, PgPool};

use super::super::Transaction;
use super::super::migrate::{count_older_calls, newest_of, run_migrations};
use super::super::migrations::POSTGRES;
use super::server::connect_error;
use crate::error::open_error_named;

/// Migrates the schema in one transaction that excludes other writers.
///
/// The tables are in the schema named `schema`, which is created if it is missing; `name` is the
/// name of the server for messages.
///
/// # Errors
///
/// Returns [`StoreError::NewerSchema`], with nothing written, when the database has a version that
/// this build does not support.
pub(super) async fn migrate(pool: &PgPool, schema: &str, name: &str) -> Result<(), StoreError> {
    let unusable = |error: sqlx::Error| connect_error(name)(error);
    let known = newest_of(&POSTGRES);
    let mut transaction = pool.begin().await.map_err(unusable)?;
    // Of several processes that start at once, one migrates and the others wait, without a timeout.
    sqlx::query("SET LOCAL statement_timeout = 0")
        .execute(&mut *transaction)
        .await
        .map_err(unusable)?;
    sqlx::query("SET LOCAL lock_timeout = 0")
        .execute(&mut *transaction)
        .await
        .map_err(unusable)?;
    // Other encodings cannot store every name.
    let encoding: String = sqlx::query_scalar("SHOW server_encoding")
        .fetch_one(&mut *transaction)
        .await
        .map_err(unusable)?;
    if encoding != "UTF8" {
        return Err(StoreError::Refused {
            what: name.to_owned(),
            reason: format!("its encoding is {encoding}, but riglm needs UTF8"),
        });
    }
    // The key is not `current_schema()`, which may not exist yet.
    sqlx::query("SELECT pg_advisory_xact_lock(hashtext('riglm ' || $1), 0)")
        .bind(schema)
        .execute(&mut *transaction)
        .await
        .map_err(unusable)?;
    let found = schema_version(&mut transaction, schema)
        .await
        .map_err(unusable)?;
    if found > known {
        return Err(StoreError::NewerSchema { found, known });
    }
    if found == known {
        return Ok(());
    }
    if found == 0 {
        // The name was validated to need no quotes.
        let create = format!("CREATE SCHEMA IF NOT EXISTS {schema}");
        sqlx::query(AssertSqlSafe(create))
            .execute(&mut *transaction)
            .await
            .map_err(unusable)?;
    }
    run_migrations(&POSTGRES, &mut *transaction, found)
        .await
        .map_err(open_error_named(name.to_owned()))?;
    let mut transaction = Transaction::Postgres(transaction);
    count_older_calls(&mut transaction, found).await?;
    transaction.commit().await
}

/// Returns the newest version that was applied to the schema, 0 for an empty one.
pub(super) async fn schema_version(
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
