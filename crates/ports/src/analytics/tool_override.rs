//! Overrides: decisions of operators about tools in lists.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::id::OverrideId;
use riglm_domain::privacy::audit::AuditEntry;

use super::StoreError;

/// Stores overrides.
///
/// Every change is written with its entry for the audit trail in one transaction, and changes
/// [`Topic::Overrides`](super::Topic::Overrides).
#[async_trait]
pub trait OverrideRepository: Send + Sync + fmt::Debug {
    /// Adds an override. It replaces an override for the same tool and scope, or with the same
    /// identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects it.
    async fn set_override(
        &self,
        tool_override: &ToolOverride,
        audit: &AuditEntry,
    ) -> Result<(), StoreError>;

    /// Removes an override; returns whether it existed. If it did not, nothing is written.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn remove_override(&self, id: OverrideId, audit: &AuditEntry)
    -> Result<bool, StoreError>;

    /// Returns the overrides that are in force at a moment, by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn overrides(&self, at: Timestamp) -> Result<Vec<ToolOverride>, StoreError>;
}
