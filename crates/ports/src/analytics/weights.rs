//! Weights of rankings.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::recommendation::weights::WeightVersion;

use super::StoreError;

/// Stores all versions of the weights of each ranking, and the version in use.
///
/// Every change is written with its entry for the audit trail in one transaction, and changes
/// [`Topic::Weights`](super::Topic::Weights).
#[async_trait]
pub trait WeightRepository: Send + Sync + fmt::Debug {
    /// Adds a version and uses it from now on. The first version is 1, and each later one is the
    /// newest version plus one.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Conflict`], with nothing written, when the version does not follow the
    /// newest one.
    async fn add_weights(
        &self,
        weights: &WeightVersion,
        audit: &AuditEntry,
    ) -> Result<(), StoreError>;

    /// Switches to an existing version, older or newer; returns false if the version does not
    /// exist.
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

    /// Returns the version in use; `None` for a ranking without versions.
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
