//! The usage store: repositories for recorded sessions, calls, lists, searches and decisions.
//!
//! Recording has two steps. The [`Journal`] takes each [`Record`](riglm_domain::usage::record::Record)
//! before the reply that it belongs to is sent. The [`RecordSink`] turns records into rows.
//! Decisions of operators and of the proxy itself are written directly, and are stored when the
//! method returns. Reading goes through one repository for each aggregate: sessions, calls, counts of
//! use, tool definitions, lists, and the discovery of tools.
//!
//! Traits that only read are wide. Traits that write are narrow, so that a user can change only what
//! it must: an override, an approval, weights, an epoch, a snapshot, a vector, a work session, the
//! memories of a server.
//!
//! All times are stored with a precision of microseconds. Numbers that do not fit a signed 64-bit
//! integer are stored as its largest value. Any text is stored unchanged. Texts are ordered by
//! their bytes.

mod audit;
mod changes;
mod client_data;
mod discovery;
mod embedding;
mod experiment;
mod invocation;
mod journal;
mod learned_state;
mod list;
mod list_epoch;
mod maintenance;
mod server_memory;
mod session;
mod tool_approval;
mod tool_definition;
mod tool_override;
mod usage;
mod weights;
mod work_session;

pub use audit::AuditTrail;
pub use changes::{ChangeFeed, Topic};
pub use client_data::{ClientData, ClientRow, ClientSelector, DeletedRows, ErasureReport};
pub use discovery::DiscoveryRepository;
pub use embedding::EmbeddingRepository;
pub use experiment::ExperimentRepository;
pub use invocation::{InvocationFilter, InvocationRepository};
pub use journal::{Journal, JournalCondition, RecordSink};
pub use learned_state::SnapshotRepository;
pub use list::ListRepository;
pub use list_epoch::ListEpochRepository;
pub use maintenance::{
    IntegrityProblem, Maintenance, MaintenanceGuard, MaintenanceTask, PurgeReport, RebuildReport,
};
pub use server_memory::{ServerMemory, ServerMemoryRepository};
pub use session::{SessionFilter, SessionRepository};
pub use tool_approval::ToolApprovalRepository;
pub use tool_definition::ToolDefinitionRepository;
pub use tool_override::OverrideRepository;
pub use usage::UsageRepository;
pub use weights::WeightRepository;
pub use work_session::WorkSessionRepository;

/// An error of the usage store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The file, directory or server cannot be opened.
    #[error("failed to open {what}")]
    Open {
        /// The file, directory or server to open.
        what: String,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// The database file is damaged.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// The path of the file.
        what: String,
        /// A description of the damage.
        reason: String,
    },
    /// The server rejects the credentials or has no such database. A retry does not help.
    #[error("{what} cannot be used: {reason}")]
    Refused {
        /// The address of the server.
        what: String,
        /// The message of the server.
        reason: String,
    },
    /// A statement or a write failed.
    #[error("failed to {operation}")]
    Failed {
        /// The failed operation, as a verb and its object.
        operation: &'static str,
        /// The cause.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A newer version of riglm created the schema of the database.
    #[error(
        "database schema has version {found}, but this version of riglm supports at most {known}: \
         use a newer riglm"
    )]
    NewerSchema {
        /// The schema version in the database.
        found: i64,
        /// The newest schema version that this build supports.
        known: i64,
    },
    /// The spool has no space for another record.
    #[error("the spool is full: {bytes} bytes are waiting for the database")]
    Full {
        /// The number of bytes that wait for the database.
        bytes: u64,
    },
    /// A row holds a value that no version of riglm writes.
    #[error("a row of table {table} holds an unexpected value: {reason}")]
    Corrupt {
        /// The name of the table.
        table: &'static str,
        /// The unexpected value, or a description of it.
        reason: String,
    },
    /// Another writer has already stored the next version (optimistic locking).
    #[error("{what} already has version {found}, expected {expected}")]
    Conflict {
        /// The name of the versioned object.
        what: String,
        /// The version that the writer expected.
        expected: u64,
        /// The version in the database.
        found: u64,
    },
}
