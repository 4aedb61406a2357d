//! Storage of riglm: the journal on disk and the databases behind the analytics ports.
//!
//! Nothing outside this crate sees SQL or a type of the database driver. It depends on the ports
//! and the domain, on no other adapter.

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
mod private_file;
mod repository;
mod sink;
mod spool;
mod store;
mod unrecorded;
mod value;

pub use config::{
    Backend, Durability, PostgresConfig, PostgresTls, RecordingConfig, RecordingMode, SqliteConfig,
    StorageConfig, TokenSizes,
};
pub use connect::{Storage, open, open_reader};
pub use erase::{Erased, erase};
pub use inspect::{Inspection, inspect, migrate, unused_place};
pub use key::{control_token, existing_control_token, keyed_hasher};
pub use spool::{SpoolJournal, SpoolOptions};
pub use store::Store;
pub use unrecorded::NoJournal;
