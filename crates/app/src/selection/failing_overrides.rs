//! A fake store for tests whose overrides can fail to be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::id::OverrideId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_ports::analytics::{OverrideRepository, StoreError};
use riglm_ports::fake::MemoryStore;

/// A store whose overrides can fail to be read.
#[derive(Debug, Default)]
pub(super) struct FailingOverrides {
    pub(super) store: Arc<MemoryStore>,
    pub(super) is_failing: AtomicBool,
    /// Counts the attempts to read.
    pub(super) n_tried: AtomicUsize,
}

#[async_trait]
impl OverrideRepository for FailingOverrides {
    async fn set_override(
        &self,
        tool_override: &ToolOverride,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        self.store.set_override(tool_override, audit).await
    }

    async fn remove_override(
        &self,
        id: OverrideId,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        self.store.remove_override(id, audit).await
    }

    async fn overrides(&self, at: Timestamp) -> Result<Vec<ToolOverride>, StoreError> {
        self.n_tried.fetch_add(1, Ordering::SeqCst);
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(StoreError::Failed {
                operation: "read overrides",
                source: "it was told to fail".into(),
            });
        }
        self.store.overrides(at).await
    }
}
