//! Approvals: the definitions of tools that an operator accepted.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::audit::AuditEntry;

use super::StoreError;

/// Stores the approved definition of each tool of an upstream.
#[async_trait]
pub trait ToolApprovalRepository: Send + Sync + fmt::Debug {
    /// Approves tools of an upstream that has no approvals yet. Returns false, with nothing
    /// written, if it has any. Of several concurrent calls one succeeds.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects it.
    async fn approve_first(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
    ) -> Result<bool, StoreError>;

    /// Approves tools of an upstream, and replaces their earlier approvals. The entry for the audit
    /// trail is written in the same transaction.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects it.
    async fn approve(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
        audit: &AuditEntry,
    ) -> Result<(), StoreError>;

    /// Returns the approvals of an upstream, ordered by the name of the tool.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn approvals(&self, upstream: &UpstreamName) -> Result<Vec<ToolApproval>, StoreError>;
}
