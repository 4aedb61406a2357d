//! The store in memory keeps the contract of the usage store.

use std::future::{Ready, ready};

use riglm_ports::fake::MemoryStore;

fn fresh() -> Ready<Box<MemoryStore>> {
    ready(Box::default())
}

riglm_ports::usage_store_contract!(memory, fresh());
