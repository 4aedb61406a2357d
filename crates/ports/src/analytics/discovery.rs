//! Recorded discovery of tools: searches, declared contexts, recommendations, and feedback.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ContextId, RecommendationId, SessionId};
use riglm_domain::intent::context::Context;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::usage::feedback::Feedback;

use super::StoreError;

/// Reads how clients found tools: what they searched for, the tasks that they declared, the tools
/// that were recommended to them, and their feedback.
///
/// All of it is recorded through the journal; nothing is written here.
#[async_trait]
pub trait DiscoveryRepository: Send + Sync + fmt::Debug {
    /// Returns the newest `limit` searches by identifier, oldest first, of a session or of all.
    /// Results keep their order.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn searches(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Search>, StoreError>;

    /// Returns the newest `limit` contexts by identifier, oldest first, of a session or of all.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn contexts(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError>;

    /// Returns the newest `limit` contexts of a principal by identifier, oldest first.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn contexts_of(
        &self,
        principal: &Principal,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError>;

    /// Returns the stored contexts with these identifiers, oldest first by identifier.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn contexts_with(&self, ids: &[ContextId]) -> Result<Vec<Context>, StoreError>;

    /// Returns a recommendation, whose tools keep their order; `None` when there is none with this identifier.
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

    /// Returns the newest `limit` pieces of feedback by identifier, oldest first: of a principal or
    /// of all, on a tool or on all tools.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn feedback(
        &self,
        scope: Option<&Principal>,
        tool: Option<&ToolRef>,
        limit: u32,
    ) -> Result<Vec<Feedback>, StoreError>;
}
