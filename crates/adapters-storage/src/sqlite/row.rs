//! Columns to domain values and back.
//!
//! Identifiers and hashes leave the database as hexadecimal text (`hex(id)`), which the domain
//! parses; they enter it as text inside JSON (`unhex(.., '-')`) or as 16 bytes.

use std::str::FromStr;

use jiff::Timestamp;
use riglm_domain::canonical::KeyedHash;
use riglm_domain::id::UpstreamName;
use riglm_domain::invocation::Outcome;
use riglm_ports::analytics::StoreError;
use serde::{Serialize, Serializer as _};
use sqlx::SqliteConnection;

use crate::error::failing;

/// Names a column for the error that its value may cause.
#[derive(Clone, Copy)]
pub(super) struct Column {
    pub(super) table: &'static str,
    pub(super) column: &'static str,
}

impl Column {
    fn corrupt(self) -> StoreError {
        StoreError::Corrupt {
            table: self.table,
            reason: format!("column {}", self.column),
        }
    }

    /// Returns the value unless it is missing.
    pub(super) fn present<T>(self, value: Option<T>) -> Result<T, StoreError> {
        value.ok_or_else(|| self.corrupt())
    }

    pub(super) fn id<T: FromStr>(self, hex: &str) -> Result<T, StoreError> {
        hex.parse().map_err(|_| self.corrupt())
    }

    pub(super) fn hash(self, hex: &str) -> Result<KeyedHash, StoreError> {
        self.present(KeyedHash::from_hex(hex))
    }

    pub(super) fn time(self, micros: i64) -> Result<Timestamp, StoreError> {
        Timestamp::from_microsecond(micros).map_err(|_| self.corrupt())
    }

    pub(super) fn count(self, number: i64) -> Result<u64, StoreError> {
        u64::try_from(number).map_err(|_| self.corrupt())
    }

    pub(super) fn upstream(self, name: &str) -> Result<UpstreamName, StoreError> {
        UpstreamName::parse(name).map_err(|_| self.corrupt())
    }

    pub(super) fn outcome(self, name: &str) -> Result<Outcome, StoreError> {
        self.present(Outcome::parse(name))
    }
}

/// Returns a count as the database holds it; what does not fit becomes the largest value.
pub(super) fn saturated(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Rows as the JSON array that a statement takes; `None` without rows.
pub(super) struct Rows(Option<String>);

impl Rows {
    /// Encodes rows, each as a JSON array of its columns.
    pub(super) fn new<R: Serialize>(rows: impl Iterator<Item = R>) -> Result<Self, StoreError> {
        let mut rows = rows.peekable();
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

    /// Runs a statement whose only parameter is the array; nothing without rows.
    pub(super) async fn write(
        self,
        connection: &mut SqliteConnection,
        statement: &'static str,
    ) -> Result<(), StoreError> {
        let Some(json) = self.0 else {
            return Ok(());
        };
        sqlx::query(statement)
            .bind(json)
            .execute(connection)
            .await
            .map_err(failing("write rows"))?;
        Ok(())
    }
}
