//! Read-only inspection of the store, and the migration of its schema.

use std::path::Path;

use riglm_ports::analytics::StoreError;

use crate::config::{Backend, Durability, StorageConfig};
use crate::connect::{open_store, spool_dir, sqlite_path};
use crate::database::{self, DatabaseContents};
use crate::error::{open_error, operation_error};
use crate::{private_file, spool};

/// Facts about a store, read without opening it for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// The configured database.
    pub backend: Backend,
    /// The location: the path of a file, or `host:port/database`, without credentials.
    pub place: String,
    /// The version of the schema; 0 if there is none yet.
    pub schema_found: i64,
    /// The newest schema version that this build supports.
    pub schema_known: i64,
    /// The number of sessions; `None` when this build does not support the schema.
    pub n_sessions: Option<u64>,
    /// The number of tool calls; `None` when this build does not support the schema.
    pub n_calls: Option<u64>,
    /// The number of bytes of records in the spool.
    pub spool_bytes: u64,
}

impl Inspection {
    /// Returns whether the schema is from a newer version of riglm.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        self.schema_found > self.schema_known
    }
}

/// Returns the location of the future database, if nothing was recorded yet. Nothing is created.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the database cannot be inspected.
pub async fn location_if_unused(
    storage: &StorageConfig,
    data_dir: &Path,
) -> Result<Option<String>, StoreError> {
    let spooled = spool::bytes(&spool_dir(data_dir)).map_err(operation_error("read the spool"))?;
    match storage.backend {
        Backend::Sqlite => {
            let path = sqlite_path(storage, data_dir);
            let is_there = path.try_exists().map_err(open_error(&path))? || spooled > 0;
            Ok((!is_there).then(|| path.display().to_string()))
        }
        Backend::Postgres => {
            let (place, contents) = database::inspect_postgres(&storage.postgres).await?;
            Ok((contents.version == 0 && spooled == 0).then_some(place))
        }
    }
}

/// Inspects the store. Nothing is created, migrated or written to the database.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the database cannot be read.
pub async fn inspect(storage: &StorageConfig, data_dir: &Path) -> Result<Inspection, StoreError> {
    let (place, contents) = match storage.backend {
        Backend::Sqlite => {
            let path = sqlite_path(storage, data_dir);
            let contents = database::inspect_sqlite(&path).await?;
            (path.display().to_string(), contents)
        }
        Backend::Postgres => database::inspect_postgres(&storage.postgres).await?,
    };
    let DatabaseContents {
        version,
        n_sessions,
        n_calls,
    } = contents;
    Ok(Inspection {
        backend: storage.backend,
        place,
        schema_found: version,
        schema_known: database::newest_schema_version(),
        n_sessions,
        n_calls,
        spool_bytes: spool::bytes(&spool_dir(data_dir))
            .map_err(operation_error("read the spool"))?,
    })
}

/// Creates the store if it is missing and migrates its schema; returns the versions before and
/// after.
///
/// # Errors
///
/// Returns [`StoreError::NewerSchema`], with nothing written, when the schema is from a newer
/// version, and [`StoreError::Open`] when the store cannot be opened.
pub async fn migrate(storage: &StorageConfig, data_dir: &Path) -> Result<(i64, i64), StoreError> {
    private_file::create_dir_all(data_dir).map_err(open_error(data_dir))?;
    let before = inspect(storage, data_dir).await?.schema_found;
    let store = open_store(storage, data_dir, Durability::Process).await?;
    store.close().await;
    Ok((before, database::newest_schema_version()))
}
