//! PostgreSQL in a build without the feature `postgres`: the same interface, but no database is
//! ever opened. So nothing else has to know which of the two was built.

use std::convert::Infallible;
use std::time::Duration;

use riglm_ports::analytics::{MaintenanceGuard, MaintenanceTask, StoreError};

use super::{DatabaseContents, WriteLock};
use crate::config::{POSTGRES_NOT_BUILT, PostgresConfig};

/// A database that this build cannot open.
#[derive(Debug)]
pub(crate) struct PostgresDatabase(Infallible);

/// A transaction of such a database.
#[derive(Debug)]
pub(crate) struct PostgresTransaction(Infallible);

impl PostgresDatabase {
    /// Refuses to open any database.
    pub(crate) async fn open(_: &PostgresConfig) -> Result<Self, StoreError> {
        Err(not_built())
    }

    pub(super) fn deadline(&self) -> Duration {
        match self.0 {}
    }

    pub(super) async fn rows(
        &self,
        _: &'static str,
        _: String,
    ) -> Result<Vec<String>, sqlx::Error> {
        match self.0 {}
    }

    pub(super) async fn begin(&self, _: WriteLock) -> Result<PostgresTransaction, sqlx::Error> {
        match self.0 {}
    }

    pub(super) async fn begin_reading(&self) -> Result<PostgresTransaction, sqlx::Error> {
        match self.0 {}
    }

    pub(crate) async fn try_lock(
        &self,
        _: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, sqlx::Error> {
        match self.0 {}
    }

    pub(crate) async fn read_tables(&self, _: usize) -> Result<Vec<String>, sqlx::Error> {
        match self.0 {}
    }

    pub(crate) async fn vacuum(&self) -> Result<(), sqlx::Error> {
        match self.0 {}
    }

    pub(super) async fn close(&self) {
        match self.0 {}
    }
}

impl PostgresTransaction {
    pub(super) async fn commit(self) -> Result<(), sqlx::Error> {
        match self.0 {}
    }
}

/// Refuses to inspect any database.
pub(crate) async fn inspect(_: &PostgresConfig) -> Result<(String, DatabaseContents), StoreError> {
    Err(not_built())
}

pub(super) async fn rows(
    transaction: &mut PostgresTransaction,
    _: &'static str,
    _: String,
) -> Result<Vec<String>, sqlx::Error> {
    match transaction.0 {}
}

pub(super) async fn execute(
    transaction: &mut PostgresTransaction,
    _: &'static str,
    _: String,
) -> Result<u64, sqlx::Error> {
    match transaction.0 {}
}

fn not_built() -> StoreError {
    StoreError::Refused {
        what: "storage.backend \"postgres\"".into(),
        reason: POSTGRES_NOT_BUILT.into(),
    }
}
