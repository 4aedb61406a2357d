//! The usage store: what is written of sessions and calls, and what can be asked of it.
//!
//! Writing what clients do has two steps. The [`Journal`] takes each
//! [`Record`](riglm_domain::record::Record) before the reply that it belongs to leaves; the
//! [`RecordSink`] makes rows of records. What operators and the proxy itself decide is written
//! directly, and is there when the method returns. Reading goes through one repository for each
//! aggregate.
//!
//! All times are kept to the microsecond, and numbers that do not fit a signed 64-bit integer as
//! its largest value. Any text is kept as it is. Texts are ordered by their bytes.

mod audit;
mod changes;
mod client_data;
mod context;
mod embedding;
mod exchange;
mod experiment;
mod feedback;
mod invocation;
mod journal;
mod learned_state;
mod list_activity;
mod list_epoch;
mod list_shown;
mod maintenance;
mod recommendation;
mod search;
mod session;
mod tool_approval;
mod tool_definition;
mod tool_override;
mod usage;
mod weights;
mod work_session;

pub use audit::AuditTrail;
pub use changes::{ChangeFeed, Topic};
pub use client_data::{ClientData, ClientRow, ClientSelector, Deleted};
pub use context::ContextRepository;
pub use embedding::EmbeddingRepository;
pub use exchange::ExchangeRepository;
pub use experiment::{AssignmentRepository, ExperimentRepository};
pub use feedback::FeedbackRepository;
pub use invocation::{InvocationFilter, InvocationRepository};
pub use journal::{Journal, JournalCondition, RecordSink};
pub use learned_state::SnapshotRepository;
pub use list_activity::ListActivityRepository;
pub use list_epoch::ListEpochRepository;
pub use list_shown::ListShownRepository;
pub use maintenance::{Finding, Maintenance, MaintenanceGuard, MaintenanceTask, Purged, Rebuilt};
pub use recommendation::RecommendationRepository;
pub use search::SearchRepository;
pub use session::{SessionFilter, SessionRepository};
pub use tool_approval::ToolApprovalRepository;
pub use tool_definition::ToolDefinitionRepository;
pub use tool_override::OverrideRepository;
pub use usage::UsageRepository;
pub use weights::WeightRepository;
pub use work_session::WorkSessionRepository;

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
    /// The database file is damaged.
    #[error("{what} is damaged: {reason}")]
    Damaged {
        /// The file.
        what: String,
        /// What is wrong with it.
        reason: String,
    },
    /// The server does not let us in, or has no such database: waiting does not help.
    #[error("{what} refuses: {reason}")]
    Refused {
        /// The server.
        what: String,
        /// What it said.
        reason: String,
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
    #[error("a row of table {table} holds an unexpected value: {reason}")]
    Corrupt {
        /// The table.
        table: &'static str,
        /// What is unexpected.
        reason: String,
    },
    /// Somebody else has written the version that was to follow.
    #[error("{what} has version {found} by now, not {expected}")]
    Conflict {
        /// What was to be written.
        what: String,
        /// The version that the writer knew.
        expected: u64,
        /// The version that is there.
        found: u64,
    },
}
