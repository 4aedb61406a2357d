//! Checks of the file or the tables themselves, and of the version of the schema.

use riglm_ports::analytics::StoreError;

use super::{CheckFindings, MAX_TOLD};
use crate::database::{Database, SqliteDatabase, Statement, newest_schema_version};
use crate::error::operation_error;

const VERSION: Statement = Statement {
    table: "_sqlx_migrations",
    sqlite: "
        SELECT json_array(max(version), min(success)) FROM _sqlx_migrations WHERE ?1 = '[]'",
    postgres: "
        SELECT json_build_array(max(version), min(success::int))::text
        FROM _sqlx_migrations
        WHERE $1 = '[]'",
};

pub(super) async fn check(
    database: &Database,
    findings: &mut CheckFindings,
) -> Result<(), StoreError> {
    match database {
        Database::Sqlite(database) => check_file(database, findings).await,
        Database::Postgres(database) => (database.read_tables(MAX_TOLD).await)
            .map(|problems| findings.add_limited("database", problems)),
    }
    .map_err(operation_error("check the database"))?;
    let known = newest_schema_version();
    let version: Option<(Option<i64>, Option<i64>)> = database.row(&VERSION, &[(); 0]).await?;
    match version {
        Some((Some(found), Some(1))) if found == known => {}
        Some((Some(found), Some(1))) => findings.add(
            "schema",
            format!("has version {found}, but this version of riglm needs {known}"),
        ),
        _ => findings.add("schema", "was not migrated completely"),
    }
    Ok(())
}

/// Makes SQLite check every page, row and index entry.
async fn check_file(
    database: &SqliteDatabase,
    findings: &mut CheckFindings,
) -> Result<(), sqlx::Error> {
    let found: Vec<String> = sqlx::query_scalar("PRAGMA integrity_check(1000)")
        .fetch_all(database.readers())
        .await?;
    let problems = found
        .into_iter()
        .filter(|problem| problem != "ok")
        .collect();
    findings.add_limited("database", problems);
    Ok(())
}
