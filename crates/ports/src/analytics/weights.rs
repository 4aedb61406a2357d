//! Weights of rankings.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::audit::AuditEntry;
use riglm_domain::weights::WeightVersion;

use super::StoreError;

/// Keeps all versions of the weights of each ranking, and which of them is used.
///
/// Every change comes with its entry for the audit trail and is written together with it, or not
/// at all, and changes [`Topic::Weights`](super::Topic::Weights).
#[async_trait]
pub trait WeightRepository: Send + Sync + fmt::Debug {
    /// Adds a version and uses it from now on. The first version is 1, each further one follows
    /// the newest.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Conflict`], with nothing written, when the version does not follow
    /// the newest one.
    async fn add_weights(
        &self,
        weights: &WeightVersion,
        audit: &AuditEntry,
    ) -> Result<(), StoreError>;

    /// Goes back, or forth, to a version that is there; returns whether it is.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn use_weights(
        &self,
        ranking: &str,
        version: u64,
        audit: &AuditEntry,
    ) -> Result<bool, StoreError>;

    /// Returns the version that is used; `None` for a ranking without any.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn used_weights(&self, ranking: &str) -> Result<Option<WeightVersion>, StoreError>;

    /// Returns the newest `limit` versions of a ranking, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn weight_versions(
        &self,
        ranking: &str,
        limit: u32,
    ) -> Result<Vec<WeightVersion>, StoreError>;
}
