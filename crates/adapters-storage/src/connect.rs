//! From configuration to the ports: a store that writes, or one that only reads.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::RunId;
use riglm_ports::analytics::{
    ExchangeRepository, InvocationRepository, Journal, SessionRepository, StoreError,
};
use riglm_ports::clock::Clock;

use crate::config::{Backend, Durability, RecordingConfig, StorageConfig};
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
    /// Reads sessions.
    pub sessions: Arc<dyn SessionRepository>,
    /// Reads tool calls.
    pub invocations: Arc<dyn InvocationRepository>,
    /// Reads other requests.
    pub exchanges: Arc<dyn ExchangeRepository>,
    spool: Arc<SpoolJournal>,
    store: Store,
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

    /// Waits until the repositories show every record appended before this call; returns whether
    /// they do within the given time.
    pub async fn settled(&self, within: Duration) -> bool {
        self.spool.settled(within).await
    }

    /// Refuses further records, carries the last ones to the database for at most five seconds,
    /// and closes it. What does not get there in time is replayed by the next start.
    pub async fn close(self) {
        self.spool.close().await;
        self.store.close().await;
    }
}

/// The usage store of a process that only looks at it.
#[derive(Debug)]
#[non_exhaustive]
pub struct Readers {
    /// Reads sessions.
    pub sessions: Arc<dyn SessionRepository>,
    /// Reads tool calls.
    pub invocations: Arc<dyn InvocationRepository>,
    /// Reads other requests.
    pub exchanges: Arc<dyn ExchangeRepository>,
    store: Store,
}

impl Readers {
    /// Closes the database.
    pub async fn close(self) {
        self.store.close().await;
    }
}

/// Opens the usage store for the proxy and creates what is missing of it, `data_dir` included.
///
/// `run` is new for each start. What dead runs left in the spool is carried to the database in
/// the background.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when the directory, the spool or the database cannot be opened and
/// [`StoreError::NewerSchema`] when a newer version made the database.
pub async fn open(
    storage: &StorageConfig,
    recording: &RecordingConfig,
    data_dir: &Path,
    run: RunId,
    clock: &dyn Clock,
) -> Result<Storage, StoreError> {
    private_file::create_dir_all(data_dir).map_err(opening(data_dir))?;
    let store = open_store(storage, data_dir, recording.durability).await?;
    let options = SpoolOptions {
        durability: recording.durability,
        max_bytes: recording.spool_max_bytes,
        ..SpoolOptions::default()
    };
    let sink = Arc::new(store.clone());
    let spool =
        Arc::new(SpoolJournal::open(&spool_dir(data_dir), options, run, sink, clock.now()).await?);
    let repositories = Arc::new(store.clone());
    Ok(Storage {
        journal: spool.clone(),
        sessions: repositories.clone(),
        invocations: repositories.clone(),
        exchanges: repositories,
        spool,
        store,
    })
}

/// Opens the usage store for reading, beside a running proxy or after it.
///
/// What stands in the spool is brought to the database first, so that every call whose reply was
/// received is seen: also while the proxy runs, and after it was killed.
///
/// # Errors
///
/// Returns [`StoreError::Open`] when `data_dir` does not exist, without creating anything, and the
/// errors of [`open`].
pub async fn open_reader(
    storage: &StorageConfig,
    data_dir: &Path,
    clock: &dyn Clock,
) -> Result<Readers, StoreError> {
    std::fs::read_dir(data_dir).map_err(opening(data_dir))?;
    let store = open_store(storage, data_dir, Durability::Process).await?;
    spool::import(&spool_dir(data_dir), &store, clock.now()).await?;
    let repositories = Arc::new(store.clone());
    Ok(Readers {
        sessions: repositories.clone(),
        invocations: repositories.clone(),
        exchanges: repositories,
        store,
    })
}

async fn open_store(
    storage: &StorageConfig,
    data_dir: &Path,
    durability: Durability,
) -> Result<Store, StoreError> {
    let store = match storage.backend {
        Backend::Sqlite => {
            let path = storage.sqlite.path.clone();
            Store::sqlite(
                path.unwrap_or_else(|| data_dir.join("riglm.db")),
                durability,
            )
        }
        Backend::Postgres => Store::postgres(storage.postgres.clone()),
    };
    store.open().await?;
    Ok(store)
}

fn spool_dir(data_dir: &Path) -> PathBuf {
    data_dir.join("spool")
}
