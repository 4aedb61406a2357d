//! Recommendations as they were shown to clients.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::id::RecommendationId;
use riglm_domain::recommendation::record::Recommendation;

use super::StoreError;

/// Reads recorded recommendations. Their tools keep their order.
#[async_trait]
pub trait RecommendationRepository: Send + Sync + fmt::Debug {
    /// Returns a recommendation; `None` when there is none with this identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn recommendation(
        &self,
        id: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError>;

    /// Returns the newest `limit` recommendations by identifier, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn recommendations(&self, limit: u32) -> Result<Vec<Recommendation>, StoreError>;
}
