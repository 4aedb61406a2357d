//! The store fulfils the contract of the usage store with either database.
#![expect(
    clippy::unwrap_used,
    reason = "a store that cannot be opened fails the test"
)]

#[path = "place/schema.rs"]
mod schema;

use std::ops::Deref;

use riglm_adapters_storage::{Durability, Store};

use crate::schema::Schema;

/// A store with its own database, and the owner of the database.
struct StoreInPlace<L> {
    store: Store,
    _place: L,
}

impl<L> Deref for StoreInPlace<L> {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

async fn in_sqlite() -> StoreInPlace<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::sqlite(dir.path().join("riglm.db"), Durability::Process);
    store.open().await.unwrap();
    StoreInPlace { store, _place: dir }
}

async fn in_postgres() -> StoreInPlace<Schema> {
    let schema = Schema::new();
    let store = Store::postgres(schema.config());
    store.open().await.unwrap();
    StoreInPlace {
        store,
        _place: schema,
    }
}

riglm_ports::usage_store_contract!(sqlite, in_sqlite());
riglm_ports::usage_store_contract!(
    #[ignore = "needs PostgreSQL"]
    postgres,
    in_postgres()
);
