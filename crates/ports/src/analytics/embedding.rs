//! Embedding vectors of tool definitions.

use std::collections::BTreeMap;
use std::fmt;

use async_trait::async_trait;
use riglm_domain::retrieval::embedding::Embedding;

use super::StoreError;

/// Caches vectors by model and content hash, so that each text is embedded only once.
#[async_trait]
pub trait EmbeddingRepository: Send + Sync + fmt::Debug {
    /// Stores vectors by the content hash of the embedded text. A later vector of the same model
    /// and hash replaces the earlier one.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects them; none is stored then.
    async fn put_embeddings(&self, embeddings: &[(String, Embedding)]) -> Result<(), StoreError>;

    /// Returns the stored vectors of a model for these content hashes. Hashes without a vector are
    /// omitted.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn embeddings(
        &self,
        model: &str,
        content_hashes: &[String],
    ) -> Result<BTreeMap<String, Embedding>, StoreError>;

    /// Deletes all vectors of a model and returns their number.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails.
    async fn forget_model(&self, model: &str) -> Result<u64, StoreError>;
}
