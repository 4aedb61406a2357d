//! A PostgreSQL database: one schema on a server.

mod inspection;
mod migration;
mod server;
mod task_lock;
mod upkeep;

use std::sync::Arc;
use std::time::Duration;

use riglm_ports::analytics::{MaintenanceGuard, MaintenanceTask, StoreError};
use sqlx::postgres::PgPoolOptions;
use sqlx::{PgConnection, PgPool};

pub(crate) use self::inspection::inspect;
use self::server::{LOCK_TIMEOUT, connect_error, server_name, test_connection, with_timeouts};
use self::task_lock::PendingReleases;
use super::{WriteLock, nul};
use crate::config::PostgresConfig;

/// Statements that take effect together or not at all.
pub(super) type PostgresTransaction = sqlx::Transaction<'static, sqlx::Postgres>;

// The time for a diagnostic connection after the pool timed out.
const EXPLAIN_WITHIN: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(crate) struct PostgresDatabase {
    deadline: Duration,
    schema: String,
    pool: PgPool,
    releases: Arc<PendingReleases>,
}

impl PostgresDatabase {
    /// Connects to the server, creates the schema if it is missing, and migrates it.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NewerSchema`] when the schema is from a newer version; nothing is
    /// written then. Returns [`StoreError::Refused`] when the server rejects the credentials and
    /// [`StoreError::Open`] when it cannot be reached.
    pub(crate) async fn open(config: &PostgresConfig) -> Result<Self, StoreError> {
        let options = config.connect_options()?;
        let name = server_name(&options);
        let options = with_timeouts(options, config);
        // A pool retries until its timeout, and then reports only the timeout. A single connection
        // reports the cause.
        test_connection(&options, config.connect_timeout)
            .await
            .map_err(connect_error(&name))?;
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(config.connect_timeout)
            .connect_with(options)
            .await
            .map_err(connect_error(&name))?;
        if let Err(error) = migration::migrate(&pool, &config.schema, &name).await {
            pool.close().await;
            return Err(error);
        }
        Ok(Self {
            deadline: config.connect_timeout + LOCK_TIMEOUT + 2 * config.statement_timeout,
            schema: config.schema.clone(),
            pool,
            releases: Arc::default(),
        })
    }

    /// Returns the time limit of a transaction, longer than the timeouts of its statements on the
    /// server.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    pub(super) async fn rows(
        &self,
        statement: &'static str,
        parameter: String,
    ) -> Result<Vec<String>, sqlx::Error> {
        let connection = self.pool.acquire().await;
        let mut connection = self.explain_pool_timeout(connection).await?;
        rows(&mut connection, statement, parameter).await
    }

    /// Begins a transaction with the lock. Writers of one kind run one after the other, so that
    /// none of them conflicts with rows that another one is about to write.
    pub(super) async fn begin(&self, lock: WriteLock) -> Result<PostgresTransaction, sqlx::Error> {
        let transaction = self.pool.begin().await;
        let mut transaction = self.explain_pool_timeout(transaction).await?;
        sqlx::query("SELECT pg_advisory_xact_lock(hashtext('riglm ' || current_schema()), $1)")
            .bind(match lock {
                WriteLock::Usage => 1,
                WriteLock::Decisions => 2,
            })
            .execute(&mut *transaction)
            .await?;
        Ok(transaction)
    }

    pub(super) async fn begin_reading(&self) -> Result<PostgresTransaction, sqlx::Error> {
        let transaction = self
            .pool
            .begin_with("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            .await;
        self.explain_pool_timeout(transaction).await
    }

    /// Replaces the error "no connection in time" by the reason why the server cannot be reached.
    async fn explain_pool_timeout<T>(
        &self,
        asked: Result<T, sqlx::Error>,
    ) -> Result<T, sqlx::Error> {
        let Err(sqlx::Error::PoolTimedOut) = asked else {
            return asked;
        };
        test_connection(&self.pool.connect_options(), EXPLAIN_WITHIN).await?;
        asked
    }

    /// Locks the task; returns `None` while another holder has it.
    pub(crate) async fn try_lock(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, sqlx::Error> {
        let guard = task_lock::try_lock(&self.pool, &self.releases, task).await?;
        Ok(guard.map(|guard| Box::new(guard) as _))
    }

    /// Reads every row of every table, including values that are stored outside of their row.
    /// Returns the failures, up to one more than `most`.
    pub(crate) async fn read_tables(&self, most: usize) -> Result<Vec<String>, sqlx::Error> {
        upkeep::read_tables(&self.pool, &self.schema, most).await
    }

    /// Makes the space of deleted rows reusable.
    pub(crate) async fn vacuum(&self) -> Result<(), sqlx::Error> {
        upkeep::vacuum(&self.pool).await
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

pub(super) async fn rows(
    connection: &mut PgConnection,
    statement: &'static str,
    parameter: String,
) -> Result<Vec<String>, sqlx::Error> {
    let rows: Vec<String> = sqlx::query_scalar(statement)
        .bind(nul::escape(&parameter).into_owned())
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(nul::unescape).collect())
}

pub(super) async fn execute(
    connection: &mut PgConnection,
    statement: &'static str,
    parameter: String,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query(statement)
        .bind(nul::escape(&parameter).into_owned())
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}
