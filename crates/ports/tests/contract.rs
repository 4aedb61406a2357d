//! The store in memory keeps the contract of the usage store.

use riglm_ports::fake::MemoryStore;

async fn fresh() -> Box<MemoryStore> {
    Box::default()
}

riglm_ports::usage_store_contract!(memory, fresh());
