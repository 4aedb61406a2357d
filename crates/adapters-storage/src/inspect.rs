//! A look at the store that changes nothing, and the migration of its schema.

use std::path::Path;

use riglm_ports::analytics::StoreError;

use crate::config::{Backend, Durability, StorageConfig};
use crate::connect::{open_store, spool_dir, sqlite_path};
use crate::database::{self, Contents};
use crate::error::{failing, opening};
use crate::{private_file, spool};

/// What is known of a store without opening it for use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inspection {
    /// Which database holds the rows.
    pub backend: Backend,
    /// Where it is: the path of a file, or `host:port/database`. Has no credentials.
    pub place: String,
    /// The version of its schema; 0 when there is none yet.
    pub schema_found: i64,
    /// The newest version that this build knows.
    pub schema_known: i64,
    /// How many sessions it has; `None` when this build does not know the schema.
    pub n_sessions: Option<u64>,
    /// How many tool calls it has; `None` when this build does not know the schema.
    pub n_calls: Option<u64>,
    /// How many bytes of records the spool holds.
    pub spool_bytes: u64,
}

impl Inspection {
    /// Returns whether a newer version of riglm made the schema.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        self.schema_found > self.schema_known
    }
}

/// Returns where the database would be, if nothing was recorded yet. Nothing is created.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the database cannot be looked at.
pub async fn unused_place(
    storage: &StorageConfig,
    data_dir: &Path,
) -> Result<Option<String>, StoreError> {
    let spooled = spool::bytes(&spool_dir(data_dir)).map_err(failing("read the spool"))?;
    match storage.backend {
        Backend::Sqlite => {
            let path = sqlite_path(storage, data_dir);
            let is_there = path.try_exists().map_err(opening(&path))? || spooled > 0;
            Ok((!is_there).then(|| path.display().to_string()))
        }
        Backend::Postgres => {
            let (place, contents) = database::inspect_postgres(&storage.postgres).await?;
            Ok((contents.version == 0 && spooled == 0).then_some(place))
        }
    }
}

/// Looks at the store. Nothing is created, migrated or carried to the database.
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
    let Contents {
        version,
        n_sessions,
        n_calls,
    } = contents;
    Ok(Inspection {
        backend: storage.backend,
        place,
        schema_found: version,
        schema_known: database::newest(),
        n_sessions,
        n_calls,
        spool_bytes: spool::bytes(&spool_dir(data_dir)).map_err(failing("read the spool"))?,
    })
}

/// Creates the store where it is missing and brings its schema up to date; returns the versions
/// before and after.
///
/// # Errors
///
/// Returns [`StoreError::NewerSchema`], with nothing written, when a newer version made the schema,
/// and [`StoreError::Open`] when the store cannot be opened.
pub async fn migrate(storage: &StorageConfig, data_dir: &Path) -> Result<(i64, i64), StoreError> {
    private_file::create_dir_all(data_dir).map_err(opening(data_dir))?;
    let before = inspect(storage, data_dir).await?.schema_found;
    let store = open_store(storage, data_dir, Durability::Process).await?;
    store.close().await;
    Ok((before, database::newest()))
}
