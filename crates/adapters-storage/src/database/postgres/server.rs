//! Connections to a server: their options, a test, and their errors.

use std::time::Duration;

use riglm_ports::analytics::StoreError;
use sqlx::error::DatabaseError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use crate::config::PostgresConfig;
use crate::error::{ShortError, open_error_named};

/// The time that a statement waits for a lock of another transaction.
pub(super) const LOCK_TIMEOUT: Duration = Duration::from_secs(10);
// The idle timeout of a transaction, after which the server releases the locks of a hanging
// process.
const IDLE_TRANSACTION_TIMEOUT: Duration = Duration::from_secs(10);

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

/// Returns a function that wraps an error while connecting to a server.
pub(super) fn connect_error(what: &str) -> impl FnOnce(sqlx::Error) -> StoreError {
    /// Invalid authorization, invalid password, no such database, no such schema, no privilege.
    const REFUSALS: [&str; 5] = ["28000", "28P01", "3D000", "3F000", "42501"];
    move |error| {
        let code = error.as_database_error().and_then(DatabaseError::code);
        if code.is_some_and(|code| REFUSALS.contains(&code.as_ref())) {
            StoreError::Refused {
                what: what.to_owned(),
                reason: ShortError(error).to_string(),
            }
        } else {
            open_error_named(what.to_owned())(ShortError(error))
        }
    }
}

/// Returns the address of a server without its secrets.
pub(super) fn server_name(options: &PgConnectOptions) -> String {
    format!(
        "the database {} at {}:{} as {}",
        options.get_database().unwrap_or(options.get_username()),
        options.get_host(),
        options.get_port(),
        options.get_username(),
    )
}
