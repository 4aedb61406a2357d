//! The usage store: all repositories over one database.

use std::path::PathBuf;
use std::sync::Arc;

use riglm_ports::analytics::StoreError;
use tokio::sync::OnceCell;

use crate::config::{Durability, PostgresConfig};
use crate::damage;
use crate::database::{CheckDepth, Database, PostgresDatabase, SqliteDatabase};
use crate::error::{is_damage, operation_error};

/// The usage store in SQLite or PostgreSQL. Implements every repository, the sink of records and
/// the maintenance.
///
/// A store can be created before its database is available. Each use tries to open the database,
/// until it was opened once.
#[derive(Clone, Debug)]
pub struct Store(Arc<StoreState>);

#[derive(Debug)]
struct StoreState {
    place: DatabaseLocation,
    database: OnceCell<Database>,
}

#[derive(Clone, Debug)]
enum DatabaseLocation {
    Sqlite {
        path: PathBuf,
        durability: Durability,
    },
    Postgres(PostgresConfig),
}

impl Store {
    /// Returns a store in a SQLite file, which is not opened yet. The directory must exist.
    #[must_use]
    pub fn sqlite(path: PathBuf, durability: Durability) -> Self {
        Self::new(DatabaseLocation::Sqlite { path, durability })
    }

    /// Returns a store in a PostgreSQL database, which is not connected yet.
    #[must_use]
    pub fn postgres(config: PostgresConfig) -> Self {
        Self::new(DatabaseLocation::Postgres(config))
    }

    fn new(place: DatabaseLocation) -> Self {
        Self(Arc::new(StoreState {
            place,
            database: OnceCell::new(),
        }))
    }

    /// Opens the database unless it is open, creates missing parts and migrates its schema.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NewerSchema`] when the schema is from a newer version; nothing is
    /// written then. Returns [`StoreError::Open`] when the database cannot be reached or used.
    pub async fn open(&self) -> Result<(), StoreError> {
        self.database().await.map(drop)
    }

    pub(crate) async fn database(&self) -> Result<&Database, StoreError> {
        self.0
            .database
            .get_or_try_init(|| async {
                match &self.0.place {
                    DatabaseLocation::Sqlite { path, durability } => {
                        SqliteDatabase::open(path, *durability)
                            .await
                            .map(Database::Sqlite)
                    }
                    DatabaseLocation::Postgres(config) => {
                        PostgresDatabase::open(config).await.map(Database::Postgres)
                    }
                }
            })
            .await
    }

    /// Returns a new store with the same location, which is not opened yet.
    pub(crate) fn unopened_copy(&self) -> Self {
        Self::new(self.0.place.clone())
    }

    /// Returns a description of the damage in the file of an open SQLite database, if there is any.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Failed`] when the check cannot run now.
    pub(crate) async fn integrity_check(
        &self,
        depth: CheckDepth,
    ) -> Result<Option<String>, StoreError> {
        match self.0.database.get() {
            Some(Database::Sqlite(database)) => match database.integrity_check(depth).await {
                Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
                looked => looked.map_err(operation_error("check the database")),
            },
            Some(Database::Postgres(_)) | None => Ok(None),
        }
    }

    /// Returns the outcome. If it is an error that means damage, marks the file for a complete
    /// check at the next start.
    pub(crate) fn mark_if_damaged<T>(
        &self,
        outcome: Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        if let (Err(StoreError::Damaged { .. }), DatabaseLocation::Sqlite { path, .. }) =
            (&outcome, &self.0.place)
        {
            damage::mark_damaged(path);
        }
        outcome
    }

    /// Closes all connections. Statements in progress end first.
    pub async fn close(&self) {
        if let Some(database) = self.0.database.get() {
            database.close().await;
        }
    }
}
