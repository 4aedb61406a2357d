//! Shared state of all processes: work sessions, epochs of lists, and the change feed.

use async_trait::async_trait;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::usage::work_session::{IdleGap, WorkSession};

use super::MemoryStore;
use super::decisions::check_follows;
use super::stored_form::ToStored;
use crate::analytics::{ChangeFeed, ListEpochRepository, StoreError, Topic, WorkSessionRepository};

#[async_trait]
impl WorkSessionRepository for MemoryStore {
    async fn resolve_work_session(
        &self,
        candidate: &WorkSession,
        idle_gap: IdleGap,
    ) -> Result<WorkSession, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let candidate = candidate.to_stored();
        let known = rows.work_sessions.values_mut();
        let newest = known
            .filter(|row| row.key == candidate.key)
            .max_by_key(|row| (row.last_active_at, row.id));
        if let Some(row) = newest
            && row.continues_at(candidate.started_at, idle_gap)
        {
            row.last_active_at = row.last_active_at.max(candidate.started_at);
            return Ok(row.clone());
        }
        let row = rows.work_sessions.entry(candidate.id).or_insert(candidate);
        Ok(row.clone())
    }
}

#[async_trait]
impl ListEpochRepository for MemoryStore {
    async fn begin_epoch(&self, epoch: &ListEpoch) -> Result<ListEpoch, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let known = rows.list_epochs.get(&epoch.scope);
        let next = known.map_or(1, |known| known.epoch + 1);
        if let Some(known) = known
            && epoch.epoch != next
        {
            return Ok(known.clone());
        }
        check_follows(&format!("scope {}", epoch.scope), epoch.epoch, next - 1)?;
        rows.list_epochs
            .insert(epoch.scope.clone(), epoch.to_stored());
        rows.touch(Topic::ListEpochs);
        Ok(epoch.to_stored())
    }

    async fn list_epoch(&self, scope: &str) -> Result<Option<ListEpoch>, StoreError> {
        Ok(self.rows.lock().list_epochs.get(scope).cloned())
    }
}

#[async_trait]
impl ChangeFeed for MemoryStore {
    async fn revisions(&self) -> Result<[u64; Topic::ALL.len()], StoreError> {
        let rows = self.rows.lock();
        let mut revisions = [0; Topic::ALL.len()];
        for (revision, topic) in revisions.iter_mut().zip(Topic::ALL) {
            *revision = rows.revisions.get(topic.as_str()).copied().unwrap_or(0);
        }
        Ok(revisions)
    }
}
