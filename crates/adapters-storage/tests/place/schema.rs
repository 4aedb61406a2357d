//! A schema in the PostgreSQL database of the tests.

use std::sync::atomic::{AtomicU32, Ordering};

use riglm_adapters_storage::PostgresConfig;
use sqlx::{AssertSqlSafe, Connection as _};

/// The number of the next schema of this process.
static NEXT: AtomicU32 = AtomicU32::new(0);

/// The schema of one test. It is removed when dropped.
#[derive(Debug)]
pub(crate) struct Schema {
    name: String,
}

impl Schema {
    /// Returns a new name. The schema does not exist yet.
    pub(crate) fn new() -> Self {
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("riglm_test_{}_{number}", std::process::id());
        Self { name }
    }

    /// Returns the configuration of a store in the schema.
    pub(crate) fn config(&self) -> PostgresConfig {
        PostgresConfig {
            url: Some(url().into()),
            schema: self.name.clone(),
            ..PostgresConfig::default()
        }
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        let drop = format!("DROP SCHEMA IF EXISTS {} CASCADE", self.name);
        // A separate runtime, because the current one may be about to end.
        let dropping = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()?;
            runtime.block_on(async {
                let mut connection = sqlx::PgConnection::connect(&url())
                    .await
                    .map_err(std::io::Error::other)?;
                sqlx::query(AssertSqlSafe(drop))
                    .execute(&mut connection)
                    .await
                    .map_err(std::io::Error::other)
            })
        });
        if !matches!(dropping.join(), Ok(Ok(_))) {
            eprintln!("schema {} is left over", self.name);
        }
    }
}

/// Returns the address of the database of the tests.
pub(crate) fn url() -> String {
    std::env::var("RIGLM_TEST_POSTGRES_URL")
        .expect("RIGLM_TEST_POSTGRES_URL has the address of a database")
}
