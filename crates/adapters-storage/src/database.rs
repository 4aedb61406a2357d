//! The two databases behind one way to run statements.
//!
//! A [`Statement`] is the same question in the words of each database. Its only parameter is a
//! JSON text, and each row that it gives is one JSON array, so that everything above this module
//! is written once: the statement takes the parameter apart, the reader takes the row apart with
//! `serde`. A statement that writes many rows turns the parameter into a table, so that the number
//! of round trips does not grow with the number of rows. One that looks for many values makes an
//! array of it for PostgreSQL, `= ANY (ARRAY(...))`: for `IN (SELECT ...)` that server may read
//! whole tables, whose rows it expects to fit far more often than they do.

mod inspect;
mod migrate;
mod nul;
mod postgres;
mod sqlite;

use std::time::Duration;

use riglm_ports::analytics::StoreError;
use serde::de::DeserializeOwned;
use serde::{Serialize, Serializer as _};

pub(crate) use self::inspect::{Contents, postgres as inspect_postgres, sqlite as inspect_sqlite};
pub(crate) use self::migrate::{backup_of, newest};
pub(crate) use self::postgres::PostgresDatabase;
pub(crate) use self::sqlite::{Depth, SqliteDatabase};
use crate::error::{doing, failing};

/// A statement in the words of each database. The parameter is `?1` in one and `$1` in the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Statement {
    /// The table that it is mainly about, for errors.
    pub(crate) table: &'static str,
    /// What SQLite is told.
    pub(crate) sqlite: &'static str,
    /// What PostgreSQL is told.
    pub(crate) postgres: &'static str,
}

/// What a transaction that writes keeps others from writing, of those that share the database.
/// (SQLite has one writer at a time in any case.)
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WriteLock {
    /// What is recorded, and the counts.
    Usage,
    /// What is decided: overrides, weights, epochs, work sessions and the like.
    Decisions,
}

/// A database with an up-to-date schema.
#[derive(Debug)]
pub(crate) enum Database {
    /// One file.
    Sqlite(SqliteDatabase),
    /// A server.
    Postgres(PostgresDatabase),
}

impl Database {
    /// Runs a statement that reads, beside whatever is written.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Vec<T>, StoreError> {
        let parameter = encoded(parameter)?;
        let rows = match self {
            Self::Sqlite(database) => database.rows(statement.sqlite, parameter).await,
            Self::Postgres(database) => database.rows(statement.postgres, parameter).await,
        };
        decoded(statement, &rows.map_err(doing("read rows"))?)
    }

    /// Runs a statement that gives one row at most.
    pub(crate) async fn row<T: DeserializeOwned>(
        &self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(statement, parameter).await?.into_iter().next())
    }

    /// Begins to write. Dropping the transaction gives it up.
    pub(crate) async fn begin(&self, lock: WriteLock) -> Result<Transaction, StoreError> {
        match self {
            Self::Sqlite(database) => database.begin().await.map(Transaction::Sqlite),
            Self::Postgres(database) => database.begin(lock).await.map(Transaction::Postgres),
        }
        .map_err(doing("begin to write"))
    }

    /// Begins to read what does not change until the transaction ends.
    pub(crate) async fn begin_reading(&self) -> Result<Transaction, StoreError> {
        match self {
            Self::Sqlite(database) => database.begin_reading().await.map(Transaction::Sqlite),
            Self::Postgres(database) => database.begin_reading().await.map(Transaction::Postgres),
        }
        .map_err(doing("begin to read"))
    }

    /// Returns how long a transaction may take before its connection counts as dead; `None` where
    /// there is no connection that could die.
    pub(crate) fn deadline(&self) -> Option<Duration> {
        match self {
            Self::Sqlite(_) => None,
            Self::Postgres(database) => Some(database.deadline()),
        }
    }

    /// Closes all connections; statements in progress end first.
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
    Postgres(sqlx::Transaction<'static, sqlx::Postgres>),
}

impl Transaction {
    /// Runs a statement that gives rows.
    pub(crate) async fn rows<T: DeserializeOwned>(
        &mut self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Vec<T>, StoreError> {
        let parameter = encoded(parameter)?;
        let rows = match self {
            Self::Sqlite(connection) => sqlite::rows(connection, statement.sqlite, parameter).await,
            Self::Postgres(connection) => {
                postgres::rows(connection, statement.postgres, parameter).await
            }
        };
        decoded(statement, &rows.map_err(doing("read rows"))?)
    }

    /// Runs a statement that gives one row at most.
    pub(crate) async fn row<T: DeserializeOwned>(
        &mut self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<Option<T>, StoreError> {
        Ok(self.rows(statement, parameter).await?.into_iter().next())
    }

    /// Runs a statement that gives no rows; returns how many it changed.
    pub(crate) async fn execute(
        &mut self,
        statement: &Statement,
        parameter: &impl Serialize,
    ) -> Result<u64, StoreError> {
        self.run(statement, encoded(parameter)?).await
    }

    /// Runs a statement that takes rows; nothing without rows. Returns how many were changed.
    pub(crate) async fn write(
        &mut self,
        statement: &Statement,
        rows: Rows,
    ) -> Result<u64, StoreError> {
        match rows.0 {
            Some(rows) => self.run(statement, rows).await,
            None => Ok(0),
        }
    }

    async fn run(&mut self, statement: &Statement, parameter: String) -> Result<u64, StoreError> {
        match self {
            Self::Sqlite(connection) => {
                sqlite::execute(connection, statement.sqlite, parameter).await
            }
            Self::Postgres(connection) => {
                postgres::execute(connection, statement.postgres, parameter).await
            }
        }
        .map_err(doing("write rows"))
    }

    /// Makes everything take effect.
    pub(crate) async fn commit(self) -> Result<(), StoreError> {
        match self {
            Self::Sqlite(transaction) => transaction.commit().await,
            Self::Postgres(transaction) => transaction.commit().await,
        }
        .map_err(doing("commit"))
    }
}

/// Rows as the JSON array that a statement takes; `None` without rows.
pub(crate) struct Rows(Option<String>);

impl Rows {
    /// Encodes rows, each as an array of its columns.
    pub(crate) fn new<R: Serialize>(rows: impl IntoIterator<Item = R>) -> Result<Self, StoreError> {
        let mut rows = rows.into_iter().peekable();
        if rows.peek().is_none() {
            return Ok(Self(None));
        }
        let mut json = Vec::new();
        serde_json::Serializer::new(&mut json)
            .collect_seq(rows)
            .map_err(failing("encode rows"))?;
        String::from_utf8(json)
            .map(|json| Self(Some(json)))
            .map_err(failing("encode rows"))
    }
}

fn encoded(parameter: &impl Serialize) -> Result<String, StoreError> {
    serde_json::to_string(parameter).map_err(failing("encode the parameter of a statement"))
}

fn decoded<T: DeserializeOwned>(
    statement: &Statement,
    rows: &[String],
) -> Result<Vec<T>, StoreError> {
    rows.iter()
        .map(|row| {
            serde_json::from_str(row).map_err(|error| StoreError::Corrupt {
                table: statement.table,
                reason: error.to_string(),
            })
        })
        .collect()
}
