//! Learned state: vectors, snapshots and memories of servers.

use std::collections::BTreeMap;

use async_trait::async_trait;
use riglm_domain::id::UpstreamName;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::usage::learned_state::Snapshot;

use super::MemoryStore;
use super::decisions::check_follows;
use super::rows::Rows;
use super::stored_form::ToStored;
use crate::analytics::{
    EmbeddingRepository, ServerMemory, ServerMemoryRepository, SnapshotRepository, StoreError,
    Topic,
};

#[async_trait]
impl EmbeddingRepository for MemoryStore {
    async fn put_embeddings(&self, embeddings: &[(String, Embedding)]) -> Result<(), StoreError> {
        let mut rows = self.rows_for_writing()?;
        for (content_hash, embedding) in embeddings {
            let key = (embedding.model().into(), content_hash.clone());
            rows.embeddings.insert(key, embedding.clone());
        }
        Ok(())
    }

    async fn embeddings(
        &self,
        model: &str,
        content_hashes: &[String],
    ) -> Result<BTreeMap<String, Embedding>, StoreError> {
        let rows = self.rows.lock();
        let found = content_hashes.iter().filter_map(|content_hash| {
            let key = (model.into(), content_hash.clone());
            let embedding = rows.embeddings.get(&key)?;
            Some((content_hash.clone(), embedding.clone()))
        });
        Ok(found.collect())
    }

    async fn forget_model(&self, model: &str) -> Result<u64, StoreError> {
        let mut rows = self.rows_for_writing()?;
        let n_before = rows.embeddings.len();
        rows.embeddings.retain(|(of, _), _| of != model);
        Ok((n_before - rows.embeddings.len()) as u64)
    }
}

#[async_trait]
impl SnapshotRepository for MemoryStore {
    async fn save_snapshot(&self, snapshot: &Snapshot) -> Result<(), StoreError> {
        const N_KEPT: usize = 2;
        let mut rows = self.rows_for_writing()?;
        let versions = rows.snapshots.entry(snapshot.model.clone()).or_default();
        let newest = versions.keys().next_back().copied().unwrap_or(0);
        check_follows(
            &format!("model {}", snapshot.model),
            snapshot.version,
            newest,
        )?;
        versions.insert(snapshot.version, snapshot.to_stored());
        while versions.len() > N_KEPT {
            versions.pop_first();
        }
        rows.touch(Topic::Snapshots);
        Ok(())
    }

    async fn newest_snapshot(&self, model: &str) -> Result<Option<Snapshot>, StoreError> {
        let rows = self.rows.lock();
        let versions = rows.snapshots.get(model);
        let newest = versions.and_then(|versions| versions.values().next_back());
        Ok(newest.cloned())
    }

    async fn delete_snapshots(&self) -> Result<(), StoreError> {
        let mut rows = self.rows_for_writing()?;
        rows.snapshots.clear();
        rows.touch(Topic::Erasures);
        Ok(())
    }
}

impl Rows {
    /// Removes the oldest memories of an upstream that are more than allowed.
    fn limit_memories(&mut self, upstream: &UpstreamName) {
        let of_upstream = (self.server_memories.values()).filter(|row| row.upstream == *upstream);
        let mut parts: Vec<_> = of_upstream
            .map(|row| (row.learned_at, row.part.clone()))
            .collect();
        parts.sort();
        let n_too_many = parts.len().saturating_sub(ServerMemory::MAX_PARTS);
        for (_, part) in parts.drain(..n_too_many) {
            self.server_memories.remove(&(upstream.clone(), part));
        }
    }
}

#[async_trait]
impl ServerMemoryRepository for MemoryStore {
    async fn remember_servers(&self, memories: &[ServerMemory]) -> Result<(), StoreError> {
        let mut rows = self.rows_for_writing()?;
        for memory in memories {
            let key = (memory.upstream.clone(), memory.part.clone());
            if memory.fits() {
                rows.server_memories.insert(key, memory.to_stored());
            } else {
                rows.server_memories.remove(&key);
            }
        }
        for memory in memories {
            rows.limit_memories(&memory.upstream);
        }
        Ok(())
    }

    async fn recall_servers(
        &self,
        upstreams: &[UpstreamName],
    ) -> Result<Vec<ServerMemory>, StoreError> {
        let rows = self.rows.lock();
        let known = rows.server_memories.values();
        let asked = known.filter(|row| upstreams.contains(&row.upstream));
        Ok(asked.cloned().collect())
    }
}
