//! Storage of riglm: the journal on disk, and the databases behind the analytics ports.
//!
//! Code outside this crate sees neither SQL nor types of the database driver. The crate depends on
//! the ports and the domain, and on no other adapter.
//!
//! PostgreSQL needs the feature `postgres`. Without it, a configuration with that backend is refused.

mod client_data;
mod config;
mod connect;
mod counts;
mod damage;
mod database;
mod erase;
mod error;
mod inspect;
mod key;
mod maintenance;
mod no_journal;
mod private_file;
mod repository;
mod sink;
mod spool;
mod store;
mod value;

pub use config::{
    Backend, Durability, PostgresConfig, PostgresTls, RecordingConfig, RecordingMode, SqliteConfig,
    StorageConfig, TokenSizes,
};
pub use connect::{Storage, open, open_reader};
pub use erase::erase;
pub use inspect::{Inspection, inspect, location_if_unused, migrate};
pub use key::{control_token, existing_control_token, keyed_hasher};
pub use no_journal::NoJournal;
pub use spool::{SpoolJournal, SpoolOptions};
pub use store::Store;
