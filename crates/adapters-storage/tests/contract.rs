//! The store in SQLite keeps the contract of the usage store.
#![expect(
    clippy::unwrap_used,
    reason = "a store that cannot be opened fails the test"
)]

use std::ops::Deref;

use riglm_adapters_storage::{Durability, SqliteStore};

/// A store in a directory of its own.
struct Fresh {
    store: SqliteStore,
    _dir: tempfile::TempDir,
}

impl Deref for Fresh {
    type Target = SqliteStore;

    fn deref(&self) -> &SqliteStore {
        &self.store
    }
}

async fn fresh() -> Fresh {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = SqliteStore::open(&path, Durability::Process).await.unwrap();
    Fresh { store, _dir: dir }
}

riglm_ports::usage_store_contract!(sqlite, fresh());
