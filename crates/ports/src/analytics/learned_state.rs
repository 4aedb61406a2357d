//! Snapshots of learned state.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::usage::learned_state::Snapshot;

use super::StoreError;

/// Stores the newest snapshots of each model. Every new one changes
/// [`Topic::Snapshots`](super::Topic::Snapshots).
#[async_trait]
pub trait SnapshotRepository: Send + Sync + fmt::Debug {
    /// Stores a snapshot. The first version of a model is 1, and each later one is the newest
    /// version plus one. The newest two snapshots of each model are kept.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Conflict`], with nothing written, when the version does not follow the
    /// newest one.
    async fn save_snapshot(&self, snapshot: &Snapshot) -> Result<(), StoreError>;

    /// Returns the newest snapshot of a model; `None` if there is none.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn newest_snapshot(&self, model: &str) -> Result<Option<Snapshot>, StoreError>;

    /// Deletes all snapshots and changes [`Topic::Erasures`](super::Topic::Erasures), with or
    /// without a snapshot: learners then learn again from all recorded calls. For calls that were
    /// added behind those that were learned.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer; nothing is deleted then.
    async fn delete_snapshots(&self) -> Result<(), StoreError>;
}
