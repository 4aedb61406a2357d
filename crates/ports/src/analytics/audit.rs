//! The audit trail.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;

use super::StoreError;

/// Stores audit entries forever: there is no method to change or remove one.
#[async_trait]
pub trait AuditTrail: Send + Sync + fmt::Debug {
    /// Adds an entry. An entry with the same identifier stays unchanged.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects it.
    async fn add(&self, entry: &AuditEntry) -> Result<(), StoreError>;

    /// Returns the newest `limit` entries by identifier, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn entries(&self, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        self.entries_before(None, limit).await
    }

    /// Returns the newest `limit` entries whose identifier is smaller than `before`, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn entries_before(
        &self,
        before: Option<AuditId>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError>;
}
