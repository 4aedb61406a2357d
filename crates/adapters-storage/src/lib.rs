//! Storage of riglm: the journal on disk and the databases behind the analytics ports.
//!
//! Nothing outside this crate sees SQL or a type of the database driver. It depends on the ports
//! and the domain, on no other adapter.

mod config;
mod connect;
mod error;
mod key;
mod private_file;
mod spool;
mod sqlite;

pub use config::{
    Backend, Durability, RecordingConfig, RecordingMode, SqliteConfig, StorageConfig,
};
pub use connect::{Readers, Storage, open, open_reader};
pub use key::keyed_hasher;
pub use spool::{SpoolJournal, SpoolOptions};
pub use sqlite::SqliteStore;
