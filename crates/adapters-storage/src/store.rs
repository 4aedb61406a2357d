//! The usage store: all repositories over one database.

use std::path::PathBuf;
use std::sync::Arc;

use riglm_ports::analytics::StoreError;
use tokio::sync::OnceCell;

use crate::config::{Durability, PostgresConfig};
use crate::damage;
use crate::database::{Database, Depth, PostgresDatabase, SqliteDatabase};
use crate::error::{failing, is_damage};

/// Everything that is stored, in SQLite or PostgreSQL. Implements every repository, the sink of
/// records and the upkeep.
///
/// A store may be there before its database is: each use of it tries to open the database until
/// that was possible once.
#[derive(Clone, Debug)]
pub struct Store(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    place: Place,
    database: OnceCell<Database>,
}

/// Where the database is.
#[derive(Clone, Debug)]
enum Place {
    Sqlite {
        path: PathBuf,
        durability: Durability,
    },
    Postgres(PostgresConfig),
}

impl Store {
    /// Returns the store in a SQLite file, which is not opened yet. The directory must exist.
    #[must_use]
    pub fn sqlite(path: PathBuf, durability: Durability) -> Self {
        Self::new(Place::Sqlite { path, durability })
    }

    /// Returns the store in a PostgreSQL database, which is not connected yet.
    #[must_use]
    pub fn postgres(config: PostgresConfig) -> Self {
        Self::new(Place::Postgres(config))
    }

    fn new(place: Place) -> Self {
        Self(Arc::new(Inner {
            place,
            database: OnceCell::new(),
        }))
    }

    /// Opens the database unless it is open, creates what is missing of it and brings its schema
    /// up to date.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::NewerSchema`] when a newer version made the schema; nothing is
    /// written then. Returns [`StoreError::Open`] when the database cannot be reached or used.
    pub async fn open(&self) -> Result<(), StoreError> {
        self.database().await.map(drop)
    }

    pub(crate) async fn database(&self) -> Result<&Database, StoreError> {
        self.0
            .database
            .get_or_try_init(|| async {
                match &self.0.place {
                    Place::Sqlite { path, durability } => SqliteDatabase::open(path, *durability)
                        .await
                        .map(Database::Sqlite),
                    Place::Postgres(config) => {
                        PostgresDatabase::open(config).await.map(Database::Postgres)
                    }
                }
            })
            .await
    }

    /// Returns a store in the same place, which is not opened yet.
    pub(crate) fn reopened(&self) -> Self {
        Self::new(self.0.place.clone())
    }

    /// Returns what is wrong with the file of an open database, if it is a file and anything is.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Failed`] when that cannot be found out now.
    pub(crate) async fn look_through(&self, depth: Depth) -> Result<Option<String>, StoreError> {
        match self.0.database.get() {
            Some(Database::Sqlite(database)) => match database.look_through(depth).await {
                Err(error) if is_damage(&error) => Ok(Some(error.to_string())),
                looked => looked.map_err(failing("look through the database")),
            },
            Some(Database::Postgres(_)) | None => Ok(None),
        }
    }

    /// Returns the outcome, having taken note of it if it means that the file is damaged.
    pub(crate) fn noting_damage<T>(&self, outcome: Result<T, StoreError>) -> Result<T, StoreError> {
        if let (Err(StoreError::Damaged { .. }), Place::Sqlite { path, .. }) =
            (&outcome, &self.0.place)
        {
            damage::note(path);
        }
        outcome
    }

    /// Closes all connections; statements in progress end first.
    pub async fn close(&self) {
        if let Some(database) = self.0.database.get() {
            database.close().await;
        }
    }
}
