//! What tools must look like to be shown.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::audit::AuditEntry;
use riglm_domain::id::UpstreamName;
use riglm_domain::tool_approval::ToolApproval;

use super::StoreError;

/// Keeps what tools of upstreams were approved as, one definition of each tool.
#[async_trait]
pub trait ToolApprovalRepository: Send + Sync + fmt::Debug {
    /// Approves tools of an upstream of which nothing is approved yet; returns false, with nothing
    /// written, where something is. Of several at once one is taken.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take it.
    async fn approve_first(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
    ) -> Result<bool, StoreError>;

    /// Approves tools of an upstream: what a tool was approved as before is replaced. The entry for
    /// the audit trail is written together with it, or nothing is.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take it.
    async fn approve(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
        audit: &AuditEntry,
    ) -> Result<(), StoreError>;

    /// Returns what the tools of an upstream are approved as, by name.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn approvals(&self, upstream: &UpstreamName) -> Result<Vec<ToolApproval>, StoreError>;
}
