//! A schema in a PostgreSQL database.

use std::sync::Arc;
use std::time::Duration;

use riglm_ports::analytics::StoreError;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, PgPool};

use super::{WriteLock, migrate, nul};
use crate::config::PostgresConfig;
use crate::error::{opening_server, server_name};
use crate::maintenance::Releases;

/// How long a statement waits for a lock that another transaction holds.
const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
/// How long it is looked for the reason that there is no connection.
const EXPLAIN_WITHIN: Duration = Duration::from_secs(1);
/// How long a transaction may do nothing: the lock of a process that hangs is free again then.
const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

/// A database on a server.
#[derive(Debug)]
pub(crate) struct PostgresDatabase {
    deadline: Duration,
    schema: String,
    pool: PgPool,
    releases: Arc<Releases>,
}

impl PostgresDatabase {
    /// Connects to the server, creates the schema when missing and brings it up to date.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NewerSchema`] when a newer version made the schema; nothing is
    /// written then. Returns [`StoreError::Refused`] when the server does not let us in and
    /// [`StoreError::Open`] when it cannot be reached.
    pub(crate) async fn open(config: &PostgresConfig) -> Result<Self, StoreError> {
        let options = config.connect_options()?;
        let name = server_name(&options);
        let options = with_timeouts(options, config);
        // A pool tries again until its time is over, and then tells no more than that.
        reached(&options, config.connect_timeout)
            .await
            .map_err(opening_server(&name))?;
        let pool = PgPoolOptions::new()
            .max_connections(config.max_connections)
            .acquire_timeout(config.connect_timeout)
            .connect_with(options)
            .await
            .map_err(opening_server(&name))?;
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

    /// Returns how long a transaction may take: longer than the server lets its statements take.
    pub(super) fn deadline(&self) -> Duration {
        self.deadline
    }

    /// Returns the connections.
    pub(crate) fn pool(&self) -> &PgPool {
        &self.pool
    }

    /// Returns the name of the schema.
    pub(crate) fn schema(&self) -> &str {
        &self.schema
    }

    /// Returns the locks of tasks that are being given back.
    pub(crate) fn releases(&self) -> &Arc<Releases> {
        &self.releases
    }

    pub(super) async fn rows(
        &self,
        statement: &'static str,
        parameter: String,
    ) -> Result<Vec<String>, sqlx::Error> {
        let connection = self.pool.acquire().await;
        let mut connection = self.explained(connection).await?;
        rows(&mut connection, statement, parameter).await
    }

    /// Begins a transaction that has the lock. Writers of one kind follow each other, so that none
    /// of them meets rows that another one is about to write.
    pub(super) async fn begin(
        &self,
        lock: WriteLock,
    ) -> Result<sqlx::Transaction<'static, sqlx::Postgres>, sqlx::Error> {
        let transaction = self.pool.begin().await;
        let mut transaction = self.explained(transaction).await?;
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
        self.explained(transaction).await
    }

    /// Returns why the server cannot be reached, in the place of the error that no connection came
    /// in time.
    async fn explained<T>(&self, asked: Result<T, sqlx::Error>) -> Result<T, sqlx::Error> {
        let Err(sqlx::Error::PoolTimedOut) = asked else {
            return asked;
        };
        reached(&self.pool.connect_options(), EXPLAIN_WITHIN).await?;
        asked
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

/// Checks that a connection can be made.
pub(super) async fn reached(
    options: &PgConnectOptions,
    within: Duration,
) -> Result<(), sqlx::Error> {
    let connecting = async { options.connect().await?.close().await };
    match tokio::time::timeout(within, connecting).await {
        Ok(done) => done,
        Err(_) => Err(no_answer()),
    }
}

/// Returns the error of a server that does not answer.
pub(super) fn no_answer() -> sqlx::Error {
    let text = "the server does not answer in time";
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
        .bind(nul::escaped(&parameter).into_owned())
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(nul::unescaped).collect())
}

pub(super) async fn execute(
    connection: &mut PgConnection,
    statement: &'static str,
    parameter: String,
) -> Result<u64, sqlx::Error> {
    let done = sqlx::query(statement)
        .bind(nul::escaped(&parameter).into_owned())
        .execute(connection)
        .await?;
    Ok(done.rows_affected())
}
