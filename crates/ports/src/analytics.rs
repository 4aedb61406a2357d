//! The usage store: what is written of sessions and calls, and what can be asked of it.
//!
//! Writing has two steps. The [`Journal`] takes each [`Record`](riglm_domain::record::Record)
//! before the reply that it belongs to leaves; the [`RecordSink`] makes rows of records. Reading
//! goes through one repository for each aggregate.

mod exchange;
mod invocation;
mod journal;
mod session;

pub use exchange::ExchangeRepository;
pub use invocation::{InvocationFilter, InvocationRepository};
pub use journal::{Journal, RecordSink};
pub use session::SessionRepository;

/// Why the store could not do what it was asked to.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file, directory or server cannot be opened.
    #[error("failed to open {what}")]
    Open {
        /// What was to be opened.
        what: String,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A statement or a write failed.
    #[error("failed to {operation}")]
    Failed {
        /// What was being done, as a verb and its object.
        operation: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The schema in the database was made by a newer version.
    #[error("database schema has version {found}, this version of riglm knows {known} at most")]
    NewerSchema {
        /// The version in the database.
        found: i64,
        /// The newest version that this build knows.
        known: i64,
    },
    /// There is no room for another record.
    #[error("the spool is full: {bytes} bytes are waiting for the database")]
    Full {
        /// How many bytes are waiting.
        bytes: u64,
    },
    /// A row holds what no version of riglm writes.
    #[error("column {column} of table {table} holds an unexpected value")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// The column.
        column: &'static str,
    },
}
