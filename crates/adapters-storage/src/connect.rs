//! From configuration to the ports: a store that writes, or one that only reads.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::RunId;
use riglm_ports::analytics::{Journal, JournalCondition, StoreError};
use riglm_ports::clock::Clock;

use crate::config::{Backend, Durability, RecordingConfig, StorageConfig};
use crate::damage;
use crate::error::opening;
use crate::private_file;
use crate::spool::{self, SpoolJournal, SpoolOptions};
use crate::store::Store;

/// The usage store of a running proxy.
#[derive(Debug)]
#[non_exhaustive]
pub struct Storage {
    /// Takes the records.
    pub journal: Arc<dyn Journal>,
    /// Reads them, and keeps what is decided.
    pub store: Store,
    spool: Arc<SpoolJournal>,
    damage: Option<String>,
}

impl Storage {
    /// Returns how many records were refused or could not be written since the start.
    pub fn dropped_records(&self) -> u64 {
        self.spool.dropped()
    }

    /// Returns how many bytes of records wait for the database.
    pub fn waiting_bytes(&self) -> u64 {
        self.spool.waiting_bytes()
    }

    /// Returns what was wrong with the database at the start, if it was damaged.
    pub fn damage(&self) -> Option<&str> {
        self.damage.as_deref()
    }

    /// Returns whether records become rows at present.
    pub fn condition(&self) -> JournalCondition {
        self.journal.condition()
    }

    /// Waits until the repositories show every record appended before this call; returns whether
    /// they do within the given time.
    pub async fn settled(&self, within: Duration) -> bool {
        self.spool.settled(within).await
    }

    /// Refuses further records, carries the last ones to the database for at most five seconds,
    /// and closes it. What does not get there in time is replayed by the next start.
    pub async fn close(&self) {
        self.spool.close().await;
        self.store.close().await;
    }
}

/// Opens the usage store for the proxy and creates what is missing of it, `data_dir` included.
///
/// `run` is new for each start. What dead runs left in the spool is carried to the database in
/// the background. A database that cannot be reached is no error: records wait in the spool until
/// it can. A damaged file is moved aside, and an empty one takes its place.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the directory or the spool cannot be opened,
/// [`StoreError::NewerSchema`] when a newer version made the database, and
/// [`StoreError::Refused`] when a server does not let us in.
pub async fn open(
    storage: &StorageConfig,
    recording: &RecordingConfig,
    data_dir: &Path,
    run: RunId,
    clock: &dyn Clock,
) -> Result<Storage, StoreError> {
    private_file::create_dir_all(data_dir).map_err(opening(data_dir))?;
    let store = store(storage, data_dir, recording.durability);
    let (store, damage) = match storage.backend {
        Backend::Sqlite => {
            let path = sqlite_path(storage, data_dir);
            damage::without(store, &path, clock.now()).await
        }
        Backend::Postgres => (store, None),
    };
    if let Err(error) = store.open().await {
        match error {
            StoreError::NewerSchema { .. } | StoreError::Refused { .. } => return Err(error),
            error => tracing::error!(
                error = &error as &dyn std::error::Error,
                "the database cannot be used, records wait in the spool: {error}"
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

/// Opens the usage store for reading, beside a running proxy or after it.
///
/// What stands in the spool is brought to the database first, so that every call whose reply was
/// received is seen: also while the proxy runs, and after it was killed.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the database is a file and `data_dir` does not exist, without
/// creating anything, and when the database cannot be reached or used, [`StoreError::Damaged`] for a damaged file, and
/// the other errors of [`open`].
pub async fn open_reader(
    storage: &StorageConfig,
    data_dir: &Path,
    clock: &dyn Clock,
) -> Result<Store, StoreError> {
    let looked = std::fs::read_dir(data_dir).map(drop);
    match (storage.backend, looked) {
        // The rows are elsewhere, and no proxy of this machine left a spool.
        (Backend::Postgres, Err(error)) if error.kind() == ErrorKind::NotFound => {}
        (_, looked) => looked.map_err(opening(data_dir))?,
    }
    // What dead runs wrote may have been promised to survive the loss of power, and their spool goes.
    let store = open_store(storage, data_dir, Durability::Power).await?;
    spool::import(&spool_dir(data_dir), &store, clock.now()).await?;
    Ok(store)
}

/// Opens the database that is configured, and brings its schema up to date.
pub(crate) async fn open_store(
    storage: &StorageConfig,
    data_dir: &Path,
    durability: Durability,
) -> Result<Store, StoreError> {
    let store = store(storage, data_dir, durability);
    store.open().await?;
    Ok(store)
}

/// Returns the store that is configured, which is not opened yet.
fn store(storage: &StorageConfig, data_dir: &Path, durability: Durability) -> Store {
    match storage.backend {
        Backend::Sqlite => Store::sqlite(sqlite_path(storage, data_dir), durability),
        Backend::Postgres => Store::postgres(storage.postgres.clone()),
    }
}

/// Returns the path of the SQLite file.
pub(crate) fn sqlite_path(storage: &StorageConfig, data_dir: &Path) -> PathBuf {
    let path = storage.sqlite.path.clone();
    path.unwrap_or_else(|| data_dir.join("riglm.db"))
}

pub(crate) fn spool_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("spool")
}
