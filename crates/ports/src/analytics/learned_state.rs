//! Snapshots of what was learned.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::learned_state::Snapshot;

use super::StoreError;

/// Keeps the newest snapshots of each model. Every new one changes
/// [`Topic::Snapshots`](super::Topic::Snapshots).
#[async_trait]
pub trait SnapshotRepository: Send + Sync + fmt::Debug {
    /// Stores a snapshot. The first version of a model is 1, each further one follows the newest.
    /// Of each model the newest two are kept.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Conflict`], with nothing written, when the version does not follow
    /// the newest one.
    async fn save_snapshot(&self, snapshot: &Snapshot) -> Result<(), StoreError>;

    /// Returns the newest snapshot of a model; `None` without any.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn newest_snapshot(&self, model: &str) -> Result<Option<Snapshot>, StoreError>;
}
