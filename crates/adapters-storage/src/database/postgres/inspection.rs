//! Inspection of a schema through one read-only connection.

use riglm_ports::analytics::StoreError;
use sqlx::postgres::PgConnectOptions;
use sqlx::{ConnectOptions as _, Connection as _};

use super::super::inspect::{COUNT, DatabaseContents, is_countable};
use super::migration::schema_version;
use super::server::{connect_error, server_name, timeout_error, with_timeouts};
use crate::config::PostgresConfig;

/// Inspects a schema of a PostgreSQL database; returns the location of the database and its
/// contents.
pub(crate) async fn inspect(
    config: &PostgresConfig,
) -> Result<(String, DatabaseContents), StoreError> {
    let options = config.connect_options()?;
    let (name, place) = (server_name(&options), location_of(&options));
    let timeout = config.connect_timeout;
    let looking = async {
        let options = with_timeouts(options, config);
        let mut connection = tokio::time::timeout(timeout, options.connect())
            .await
            .map_err(|_| timeout_error())??;
        sqlx::query("SET default_transaction_read_only = on")
            .execute(&mut connection)
            .await?;
        let version = schema_version(&mut connection, &config.schema).await?;
        let counts = if is_countable(version) {
            Some(sqlx::query_as(COUNT).fetch_one(&mut connection).await?)
        } else {
            None
        };
        connection.close().await?;
        Ok::<_, sqlx::Error>(DatabaseContents::new(version, counts))
    };
    let contents = looking.await.map_err(connect_error(&name))?;
    Ok((place, contents))
}

fn location_of(options: &PgConnectOptions) -> String {
    let database = options.get_database().unwrap_or(options.get_username());
    format!("{}:{}/{database}", options.get_host(), options.get_port())
}
