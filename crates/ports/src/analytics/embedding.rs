//! Vectors of tool definitions.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use riglm_domain::embedding::Embedding;

use super::StoreError;

/// Keeps vectors by model and content hash, so that what was embedded once need not be again.
#[async_trait]
pub trait EmbeddingRepository: Send + Sync + fmt::Debug {
    /// Stores vectors by the content hash of what they stand for. A later vector of the same model
    /// and hash replaces the earlier one.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not take them; none was stored then.
    async fn put_embeddings(&self, embeddings: &[(String, Embedding)]) -> Result<(), StoreError>;

    /// Returns the vectors of a model for these content hashes; those that are not there are left
    /// out.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn embeddings(
        &self,
        model: &str,
        content_hashes: &[String],
    ) -> Result<BTreeMap<String, Embedding>, StoreError>;

    /// Removes all vectors of a model; returns how many there were.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn forget_model(&self, model: &str) -> Result<u64, StoreError>;
}
