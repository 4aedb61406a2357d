//! Overrides of what lists show.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::id::OverrideId;
use riglm_domain::tool_override::ToolOverride;

use super::StoreError;

/// Keeps overrides. Every change comes with its entry for the audit trail and is written together
/// with it, or not at all, and changes [`Topic::Overrides`](super::Topic::Overrides).
#[async_trait]
pub trait OverrideRepository: Send + Sync + fmt::Debug {
    /// Adds an override; one for the same tool and scope, or with the same identifier, is
    /// replaced.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take it.
    async fn set_override(
        &self,
        tool_override: &ToolOverride,
        audit: &AuditEntry,
    ) -> Result<(), StoreError>;

    /// Removes an override; returns whether it was there. Without it nothing is written.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn remove_override(&self, id: OverrideId, audit: &AuditEntry)
    -> Result<bool, StoreError>;

    /// Returns the overrides that hold at a moment, by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn overrides(&self, at: Timestamp) -> Result<Vec<ToolOverride>, StoreError>;
}
