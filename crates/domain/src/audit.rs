//! The audit trail: who changed what, and when.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::id::AuditId;
use crate::principal::Principal;

/// One change. Entries are only ever added.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuditEntry {
    /// Identifies the entry.
    pub id: AuditId,
    /// When it happened.
    pub at: Timestamp,
    /// Who did it.
    pub actor: Principal,
    /// What was done, as a verb and its object: `override.create`, `config.update`.
    pub action: String,
    /// What it was done to.
    pub target: String,
    /// JSON text that says more, with secrets removed.
    pub detail: Option<String>,
}
