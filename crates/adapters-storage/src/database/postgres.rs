//! A PostgreSQL database: one schema on a server.

use std::sync::Arc;
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};

use super::{WriteLock, migrate, nul};
use crate::config::PostgresConfig;
use crate::error::{connect_error, server_name};
use crate::maintenance::PendingReleases;

// The time that a statement waits for a lock of another transaction.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
// The time for a diagnostic connection after the pool timed out.
const EXPLAIN_WITHIN: Duration = Duration::from_secs(1);
// The idle timeout of a transaction, after which the server releases the locks of a hanging
// process.
const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

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
        if let Err(error) = migrate::postgres(&pool, &config.schema, &name).await {
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

    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the locks of tasks that are being released.
    pub(crate) fn releases(&self) -> &Arc<PendingReleases> {
        &self.releases
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
    pub(super) async fn begin(
        &self,
        lock: WriteLock,
    ) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, sqlx::Error> {
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

    pub(super) async fn begin_reading(
        &self,
    ) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, sqlx::Error> {
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

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Tests whether the server accepts a connection.
pub(super) async fn test_connection(
    options: &PgConnectOptions,
    within: Duration,
) -> Result<(), sqlx::Error> {
    let connecting = async { options.connect().await?.close().await };
    match tokio::time::timeout(within, connecting).await {
        Ok(done) => done,
        Err(_) => Err(timeout_error()),
    }
}

/// Returns the error for a server that does not answer.
pub(super) fn timeout_error() -> sqlx::Error {
    let text = "the server did not answer in time";
    std::io::Error::new(std::io::ErrorKind::TimedOut, text).into()
}

pub(super) fn with_timeouts(
    options: PgConnectOptions,
    config: &PostgresConfig,
) -> PgConnectOptions {
    let millis = |duration: Duration| duration.as_millis().to_string();
    let options = options.log_statements(log::LevelFilter::Trace);
    options.application_name("riglm").options([
        ("search_path", config.schema.clone()),
        ("statement_timeout", millis(config.statement_timeout)),
        ("lock_timeout", millis(LOCK_TIMEOUT)),
        (
            "idle_in_transaction_session_timeout",
            millis(IDLE_TRANSACTION_TIMEOUT),
        ),
    ])
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
