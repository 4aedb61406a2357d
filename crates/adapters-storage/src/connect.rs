//! Construction of the ports from the configuration: a store for writing, or one for reading only.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::RunId;
use riglm_ports::analytics::{Journal, JournalCondition, StoreError};
use riglm_ports::clock::Clock;

use crate::config::{Backend, Durability, RecordingConfig, StorageConfig};
use crate::damage;
use crate::error::open_error;
use crate::private_file;
use crate::spool::{self, SpoolJournal, SpoolOptions};
use crate::store::Store;

/// The usage store of a running proxy.
#[derive(Debug)]
#[non_exhaustive]
pub struct Storage {
    /// The journal for new records.
    pub journal: Arc<dyn Journal>,
    /// The repositories, for reading records and for storing decisions.
    pub store: Store,
    spool: Arc<SpoolJournal>,
    damage: Option<String>,
}

impl Storage {
    /// Returns the number of records that were refused or could not be written since the start.
    pub fn dropped_records(&self) -> u64 {
        self.spool.dropped_records()
    }

    /// Returns the number of bytes of records that wait for the database.
    pub fn waiting_bytes(&self) -> u64 {
        self.spool.waiting_bytes()
    }

    /// Returns a description of the damage, if the database was damaged at the start.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns whether records currently become rows.
    pub fn condition(&self) -> JournalCondition {
        self.journal.condition()
    }

    /// Waits until the repositories contain every record appended before this call. Returns false
    /// if that takes longer than `within`.
    pub async fn wait_until_applied(&self, within: Duration) -> bool {
        self.spool.wait_until_applied(within).await
    }

    /// Refuses further records, writes the last ones to the database for at most five seconds, and
    /// closes it. The next start replays the records that are not written in time.
    pub async fn close(&self) {
        self.spool.close().await;
        self.store.close().await;
    }
}

/// Opens the usage store for the proxy and creates missing parts, `data_dir` included.
///
/// `run` is new for each start. Records that dead runs left in the spool are written to the
/// database in the background. An unreachable database is no error: records wait in the spool until
/// it can be reached. A damaged file is moved aside and replaced by an empty one.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the directory or the spool cannot be opened,
/// [`StoreError::NewerSchema`] when the database has the schema of a newer version, and
/// [`StoreError::Refused`] when a server rejects the credentials.
pub async fn open(
    storage: &StorageConfig,
    recording: &RecordingConfig,
    data_dir: &Path,
    run: RunId,
    clock: &dyn Clock,
) -> Result<Storage, StoreError> {
    private_file::create_dir_all(data_dir).map_err(open_error(data_dir))?;
    let store = store(storage, data_dir, recording.durability);
    let (store, damage) = match storage.backend {
        Backend::Sqlite => {
            let path = sqlite_path(storage, data_dir);
            damage::replace_if_damaged(store, &path, clock.now()).await
        }
        Backend::Postgres => (store, None),
    };
    if let Err(error) = store.open().await {
        match error {
            // A retry cannot fix these.
            StoreError::NewerSchema { .. } | StoreError::Refused { .. } => return Err(error),
            error => tracing::error!(
                error = &error as &dyn std::error::Error,
                "database unavailable, records wait in the spool: {error}"
            ),
        }
    }
    let options = SpoolOptions {
        durability: recording.durability,
        max_bytes: recording.spool_max_bytes,
        ..SpoolOptions::default()
    };
    let sink = Arc::new(store.clone());
    let spool =
        Arc::new(SpoolJournal::open(&spool_dir(data_dir), options, run, sink, clock.now()).await?);
    Ok(Storage {
        journal: spool.clone(),
        store,
        spool,
        damage,
    })
}

/// Opens the usage store for reading, while the proxy runs or after it ended.
///
/// The records of the spool are written to the database first, so that every call whose reply was
/// received is visible, even while the proxy runs and after it was killed.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the database is a file and `data_dir` does not exist, without
/// creating anything, and when the database cannot be reached or used, [`StoreError::Damaged`] for
/// a damaged file, and the other errors of [`open`].
pub async fn open_reader(
    storage: &StorageConfig,
    data_dir: &Path,
    clock: &dyn Clock,
) -> Result<Store, StoreError> {
    let looked = std::fs::read_dir(data_dir).map(drop);
    match (storage.backend, looked) {
        // The rows are on the server. Without a data directory, no proxy of this machine left a
        // spool.
        (Backend::Postgres, Err(error)) if error.kind() == ErrorKind::NotFound => {}
        (_, looked) => looked.map_err(open_error(data_dir))?,
    }
    // Dead runs may have used durability `power`, and their spool is deleted after the import. So
    // the rows must survive a loss of power too.
    let store = open_store(storage, data_dir, Durability::Power).await?;
    spool::import(&spool_dir(data_dir), &store, clock.now()).await?;
    Ok(store)
}

/// Opens the configured database and migrates its schema.
pub(crate) async fn open_store(
    storage: &StorageConfig,
    data_dir: &Path,
    durability: Durability,
) -> Result<Store, StoreError> {
    let store = store(storage, data_dir, durability);
    store.open().await?;
    Ok(store)
}

/// Returns the configured store, which is not opened yet.
fn store(storage: &StorageConfig, data_dir: &Path, durability: Durability) -> Store {
    match storage.backend {
        Backend::Sqlite => Store::sqlite(sqlite_path(storage, data_dir), durability),
        Backend::Postgres => Store::postgres(storage.postgres.clone()),
    }
}

pub(crate) fn sqlite_path(storage: &StorageConfig, data_dir: &Path) -> PathBuf {
    let path = storage.sqlite.path.clone();
    path.unwrap_or_else(|| data_dir.join("riglm.db"))
}

pub(crate) fn spool_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("spool")
}
