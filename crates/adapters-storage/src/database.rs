//! A common interface for statements to SQLite and PostgreSQL.
//!
//! A [`Statement`] is the same query in both SQL dialects. Its only parameter is a JSON text, and
//! each row of the result is one JSON array, or several one after the other, so that the code above
//! this module is written only once. The statement extracts the values of the parameter, and `serde`
//! reads the row. A statement
//! that writes many rows expands the parameter into a table, so that the number of round trips does
//! not grow with the number of rows. A statement that searches for many values builds an array for
//! PostgreSQL, `= ANY (ARRAY(...))`. With `IN (SELECT ...)` that server may scan whole tables,
//! because it expects too many matching rows.

mod inspect;
mod migrate;
mod migrations;
#[cfg(feature = "postgres")]
mod nul;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(not(feature = "postgres"))]
#[path = "database/no_postgres.rs"]
mod postgres;
mod sqlite;

use std::time::Duration;

use riglm_ports::analytics::StoreError;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer as _};
use tracing::{Instrument as _, Span, debug_span};

pub(crate) use self::inspect::{DatabaseContents, sqlite as inspect_sqlite};
pub(crate) use self::migrate::{backup_of, newest_schema_version};
use self::postgres::PostgresTransaction;
pub(crate) use self::postgres::{PostgresDatabase, inspect as inspect_postgres};
pub(crate) use self::sqlite::{CheckDepth, SqliteDatabase};
use crate::error::{operation_error, statement_error};

/// A statement in both SQL dialects. The parameter is `?1` in SQLite and `$1` in PostgreSQL.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    /// The main table of the statement, for error messages.
    pub(crate) table: &'static str,
    pub(crate) sqlite: &'static str,
    pub(crate) postgres: &'static str,
}

impl Statement {
    /// Returns the span of log events during the statement. It costs nothing below the log level
    /// `debug`.
    fn span(&self) -> Span {
        debug_span!("statement", table = self.table)
    }
}

/// The kind of data that a writing transaction locks against other writers of the same database.
/// (SQLite has one writer at a time in any case.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteLock {
    /// Records and counts.
    Usage,
    /// Decisions: overrides, weights, epochs, work sessions and the like.
    Decisions,
}

/// A database with a migrated schema.
#[derive(Debug)]
pub(crate) enum Database {
    Sqlite(SqliteDatabase),
    Postgres(PostgresDatabase),
}

impl Database {
    // Readers do not wait for writers.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Vec<T>, StoreError> {
        let parameter = encode_parameter(parameter)?;
        let reading = async {
            match self {
                Self::Sqlite(database) => database.rows(statement.sqlite, parameter).await,
                Self::Postgres(database) => database.rows(statement.postgres, parameter).await,
            }
        };
        let rows = reading.instrument(statement.span()).await;
        decode_rows(statement, &rows.map_err(statement_error("read rows"))?)
    }

    /// Executes a query that returns at most one row.
    pub(crate) async fn row<T: DeserializeOwned>(
        &self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(statement, parameter).await?.into_iter().next())
    }

    /// Begins a transaction for writing. Dropping it rolls it back.
    pub(crate) async fn begin(&self, lock: WriteLock) -> Result<Transaction, StoreError> {
        match self {
            Self::Sqlite(database) => database.begin().await.map(Transaction::Sqlite),
            Self::Postgres(database) => database.begin(lock).await.map(Transaction::Postgres),
        }
        .map_err(statement_error("begin a write transaction"))
    }

    /// Begins a transaction for reading, with a snapshot that does not change until the transaction
    /// ends.
    pub(crate) async fn begin_reading(&self) -> Result<Transaction, StoreError> {
        match self {
            Self::Sqlite(database) => database.begin_reading().await.map(Transaction::Sqlite),
            Self::Postgres(database) => database.begin_reading().await.map(Transaction::Postgres),
        }
        .map_err(statement_error("begin a read transaction"))
    }

    /// Returns the time limit of a transaction, after which its connection counts as dead; `None`
    /// for SQLite, which has no connection that could die.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(database) => Some(database.deadline()),
        }
    }

    /// Closes all connections. Statements in progress end first.
    pub(crate) async fn close(&self) {
        match self {
            Self::Sqlite(database) => database.close().await,
            Self::Postgres(database) => database.close().await,
        }
    }
}

/// Statements that take effect together or not at all.
#[derive(Debug)]
pub(crate) enum Transaction {
    Sqlite(sqlx::Transaction<'static, sqlx::Sqlite>),
    Postgres(PostgresTransaction),
}

impl Transaction {
    /// Executes a query that returns rows.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &mut self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Vec<T>, StoreError> {
        let parameter = encode_parameter(parameter)?;
        let reading = async {
            match self {
                Self::Sqlite(connection) => {
                    sqlite::rows(connection, statement.sqlite, parameter).await
                }
                Self::Postgres(connection) => {
                    postgres::rows(connection, statement.postgres, parameter).await
                }
            }
        };
        let rows = reading.instrument(statement.span()).await;
        decode_rows(statement, &rows.map_err(statement_error("read rows"))?)
    }

    /// Executes a query that returns at most one row.
    pub(crate) async fn row<T: DeserializeOwned>(
        &mut self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(statement, parameter).await?.into_iter().next())
    }

    /// Executes a statement without a result; returns the number of changed rows.
    pub(crate) async fn execute(
        &mut self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<u64, StoreError> {
        self.run(statement, encode_parameter(parameter)?).await
    }

    /// Executes a statement for many rows; does nothing without rows. Returns the number of changed
    /// rows.
    pub(crate) async fn write(
        &mut self,
        statement: &Statement,
        rows: EncodedRows,
    ) -> Result<u64, StoreError> {
        match rows.0 {
            Some(rows) => self.run(statement, rows).await,
            None => Ok(0),
        }
    }

    async fn run(&mut self, statement: &Statement, parameter: String) -> Result<u64, StoreError> {
        let writing = async {
            match self {
                Self::Sqlite(connection) => {
                    sqlite::execute(connection, statement.sqlite, parameter).await
                }
                Self::Postgres(connection) => {
                    postgres::execute(connection, statement.postgres, parameter).await
                }
            }
        };
        let written = writing.instrument(statement.span()).await;
        written.map_err(statement_error("write rows"))
    }

    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
        .map_err(statement_error("commit"))
    }
}

/// Rows as the JSON array that a statement expects; `None` without rows.
pub(crate) struct EncodedRows(Option<String>);

impl EncodedRows {
    /// Encodes rows, each as an array of its columns.
    pub(crate) fn new<R: Serialize>(rows: impl IntoIterator<Item = R>) -> Result<Self, StoreError> {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(Self(None));
        }
        let mut json = Vec::new();
        serde_json::Serializer::new(&mut json)
            .collect_seq(rows)
            .map_err(operation_error("encode rows"))?;
        String::from_utf8(json)
            .map(|json| Self(Some(json)))
            .map_err(operation_error("encode rows"))
    }
}

fn encode_parameter(parameter: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(parameter).map_err(operation_error("encode the parameter of a statement"))
}

fn decode_rows<T: DeserializeOwned>(
    statement: &Statement,
    rows: &[String],
) -> Result<Vec<T>, StoreError> {
    rows.iter()
        .flat_map(|text| serde_json::Deserializer::from_str(text).into_iter())
        .map(|row| {
            row.map_err(|error| StoreError::Corrupt {
                table: statement.table,
                reason: error.to_string(),
            })
        })
        .collect()
}
