//! The audit trail: the log of changes, each with its time, actor and target.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::AuditId;
use crate::privacy::principal::Principal;

/// One change. The log is append-only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Identifies the entry.
    pub id: AuditId,
    /// The time of the change.
    pub at: Timestamp,
    /// The principal that made the change.
    pub actor: Principal,
    /// The action as object and verb: `override.create`, `config.update`.
    pub action: String,
    /// The changed object.
    pub target: String,
    /// JSON text with details, without secrets.
    pub detail: Option<String>,
}
