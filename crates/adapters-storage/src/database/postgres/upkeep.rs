//! Maintenance of all tables of a schema.

use sqlx::{AssertSqlSafe, Connection as _, PgPool};

/// Reads every row of every table, including values that are stored outside of their row. Returns
/// the failures, up to one more than `most`.
pub(super) async fn read_tables(
    pool: &PgPool,
    schema: &str,
    most: usize,
) -> Result<Vec<String>, sqlx::Error> {
    let mut transaction = pool.begin().await?;
    sqlx::query("SET LOCAL statement_timeout = 0")
        .execute(&mut *transaction)
        .await?;
    let tables: Vec<String> = sqlx::query_scalar(
        "SELECT quote_ident(tablename) FROM pg_tables
        WHERE schemaname = $1
        ORDER BY tablename",
    )
    .bind(schema)
    .fetch_all(&mut *transaction)
    .await?;
    let mut problems = Vec::new();
    for table in tables {
        // A failed statement aborts a transaction; the savepoint lets the next table be read.
        sqlx::query("SAVEPOINT reading")
            .execute(&mut *transaction)
            .await?;
        // The server quoted the name.
        let read = format!("SELECT sum(length(row::text)) FROM {table} AS row");
        let read = sqlx::query(AssertSqlSafe(read))
            .execute(&mut *transaction)
            .await;
        match read {
            Ok(_) => {}
            Err(sqlx::Error::Database(error)) => {
                sqlx::query("ROLLBACK TO reading")
                    .execute(&mut *transaction)
                    .await?;
                problems.push(format!("failed to read table {table}: {}", error.message()));
            }
            Err(error) => return Err(error),
        }
        if problems.len() > most {
            break;
        }
    }
    Ok(problems)
}

/// Makes the space of deleted rows reusable.
pub(super) async fn vacuum(pool: &PgPool) -> Result<(), sqlx::Error> {
    // A separate connection, so that its settings do not stay in the pool.
    let mut connection = pool.acquire().await?.detach();
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
