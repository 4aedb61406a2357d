//! The store keeps the contract of the usage store in either database.
#![expect(
    clippy::unwrap_used,
    reason = "a store that cannot be opened fails the test"
)]

#[path = "place/schema.rs"]
mod schema;

use std::ops::Deref;

use riglm_adapters_storage::{Durability, Store};

use crate::schema::Schema;

/// A store of its own, and what it lives in.
struct Fresh<L> {
    store: Store,
    _place: L,
}

impl<L> Deref for Fresh<L> {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

async fn in_sqlite() -> Fresh<tempfile::TempDir> {
    let dir = tempfile::tempdir().unwrap();
    let store = Store::sqlite(dir.path().join("riglm.db"), Durability::Process);
    store.open().await.unwrap();
    Fresh { store, _place: dir }
}

async fn in_postgres() -> Fresh<Schema> {
    let schema = Schema::new();
    let store = Store::postgres(schema.config());
    store.open().await.unwrap();
    Fresh {
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
