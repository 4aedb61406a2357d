//! The audit trail.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::audit::AuditEntry;
use riglm_domain::id::AuditId;

use super::StoreError;

/// Keeps entries for ever: there is no way to change or remove one.
#[async_trait]
pub trait AuditTrail: Send + Sync + fmt::Debug {
    /// Adds an entry. An entry whose identifier is there already is left as it is.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take it.
    async fn add(&self, entry: &AuditEntry) -> Result<(), StoreError>;

    /// Returns the newest `limit` entries by identifier, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn entries(&self, limit: u32) -> Result<Vec<AuditEntry>, StoreError> {
        self.entries_before(None, limit).await
    }

    /// Returns the newest `limit` entries by identifier, oldest first, of those whose identifier is
    /// below this one.
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
