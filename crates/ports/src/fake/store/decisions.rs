//! Decisions of operators, with the audit trail.

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_domain::catalog::tool_approval::ToolApproval;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::id::{AuditId, OverrideId, UpstreamName};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::recommendation::weights::WeightVersion;

use super::MemoryStore;
use super::queries::last_rows;
use super::rows::Rows;
use super::stored_form::ToStored;
use crate::analytics::{
    AuditTrail, OverrideRepository, StoreError, ToolApprovalRepository, Topic, WeightRepository,
};

impl Rows {
    pub(super) fn add_entry(&mut self, entry: &AuditEntry) {
        let row = || entry.to_stored();
        self.audit.entry(entry.id).or_insert_with(row);
    }

    fn add_approvals(&mut self, upstream: &UpstreamName, approvals: &[ToolApproval]) {
        let rows = approvals.iter().map(|approval| {
            let key = (upstream.clone(), approval.sighting.name.clone());
            (key, approval.to_stored())
        });
        self.tool_approvals.extend(rows);
    }

    fn approvals(&self, upstream: &UpstreamName) -> Vec<ToolApproval> {
        let rows = self.tool_approvals.iter();
        let rows = rows.filter(|((of, _), _)| of == upstream);
        rows.map(|(_, approval)| approval.clone()).collect()
    }
}

/// Refuses a version that is not the newest version plus one. `newest` is 0 before the first
/// version.
pub(super) fn check_follows(what: &str, version: u64, newest: u64) -> Result<(), StoreError> {
    if version == newest + 1 {
        return Ok(());
    }
    Err(StoreError::Conflict {
        what: what.into(),
        expected: version.saturating_sub(1),
        found: newest,
    })
}

#[async_trait]
impl AuditTrail for MemoryStore {
    async fn add(&self, entry: &AuditEntry) -> Result<(), StoreError> {
        self.rows_for_writing()?.add_entry(entry);
        Ok(())
    }

    async fn entries_before(
        &self,
        before: Option<AuditId>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        let rows = self.rows.lock();
        let is_before = |entry: &&AuditEntry| before.is_none_or(|before| entry.id < before);
        Ok(last_rows(rows.audit.values().filter(is_before), limit))
    }
}

#[async_trait]
impl OverrideRepository for MemoryStore {
    async fn set_override(
        &self,
        tool_override: &ToolOverride,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        let mut rows = self.rows_for_writing()?;
        rows.overrides
            .retain(|_, row| row.tool != tool_override.tool || row.scope != tool_override.scope);
        rows.overrides
            .insert(tool_override.id, tool_override.to_stored());
        rows.add_entry(audit);
        rows.touch(Topic::Overrides);
        Ok(())
    }

    async fn remove_override(
        &self,
        id: OverrideId,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let was_there = rows.overrides.remove(&id).is_some();
        if was_there {
            rows.add_entry(audit);
            rows.touch(Topic::Overrides);
        }
        Ok(was_there)
    }

    async fn overrides(&self, at: Timestamp) -> Result<Vec<ToolOverride>, StoreError> {
        let rows = self.rows.lock();
        let all = rows.overrides.values();
        Ok(last_rows(all.filter(|row| row.is_active(at)), u32::MAX))
    }
}

#[async_trait]
impl ToolApprovalRepository for MemoryStore {
    async fn approve_first(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let is_first = rows.approvals(upstream).is_empty();
        if is_first {
            rows.add_approvals(upstream, approvals);
        }
        Ok(is_first)
    }

    async fn approve(
        &self,
        upstream: &UpstreamName,
        approvals: &[ToolApproval],
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        let mut rows = self.rows_for_writing()?;
        rows.add_approvals(upstream, approvals);
        rows.add_entry(audit);
        Ok(())
    }

    async fn approvals(&self, upstream: &UpstreamName) -> Result<Vec<ToolApproval>, StoreError> {
        Ok(self.rows.lock().approvals(upstream))
    }
}

#[async_trait]
impl WeightRepository for MemoryStore {
    async fn add_weights(
        &self,
        weights: &WeightVersion,
        audit: &AuditEntry,
    ) -> Result<(), StoreError> {
        let mut rows = self.rows_for_writing()?;
        let versions = rows.weights.entry(weights.ranking.clone()).or_default();
        let newest = versions.keys().next_back().copied().unwrap_or(0);
        check_follows(
            &format!("ranking {}", weights.ranking),
            weights.version,
            newest,
        )?;
        versions.insert(weights.version, weights.to_stored());
        rows.used_weights
            .insert(weights.ranking.clone(), weights.version);
        rows.add_entry(audit);
        rows.touch(Topic::Weights);
        Ok(())
    }

    async fn use_weights(
        &self,
        ranking: &str,
        version: u64,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let versions = rows.weights.get(ranking);
        let is_there = versions.is_some_and(|versions| versions.contains_key(&version));
        if is_there {
            rows.used_weights.insert(ranking.into(), version);
            rows.add_entry(audit);
            rows.touch(Topic::Weights);
        }
        Ok(is_there)
    }

    async fn used_weights(&self, ranking: &str) -> Result<Option<WeightVersion>, StoreError> {
        let rows = self.rows.lock();
        let used = rows.used_weights.get(ranking);
        let versions = rows.weights.get(ranking);
        Ok(used
            .zip(versions)
            .and_then(|(used, versions)| versions.get(used).cloned()))
    }

    async fn weight_versions(
        &self,
        ranking: &str,
        limit: u32,
    ) -> Result<Vec<WeightVersion>, StoreError> {
        let rows = self.rows.lock();
        let versions = rows.weights.get(ranking).into_iter();
        Ok(last_rows(
            versions.flat_map(|versions| versions.values()),
            limit,
        ))
    }
}
