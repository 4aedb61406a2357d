//! Overrides for tests, and a fake store whose overrides can fail to be read.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::OverrideId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{OverrideRepository, StoreError};
use riglm_ports::fake::MemoryStore;

/// Returns an override for all clients, without an end.
pub(super) fn override_for_all(tool: &str, action: OverrideAction) -> ToolOverride {
    let at = Timestamp::constant(1_800_000_000, 0);
    ToolOverride {
        id: OverrideId::new(at, [1; 10]),
        tool: tool.into(),
        action,
        scope: OverrideScope::Global,
        expires_at: None,
        reason: None,
        created_by: Principal::local(),
        created_at: at,
    }
}

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
