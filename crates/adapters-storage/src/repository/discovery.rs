//! The discovery of tools: the queries of its four kinds of records.

use async_trait::async_trait;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ContextId, RecommendationId, SessionId};
use riglm_domain::intent::context::Context;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::record::Recommendation;
use riglm_domain::retrieval::search::Search;
use riglm_domain::usage::feedback::Feedback;
use riglm_ports::analytics::{DiscoveryRepository, StoreError};

use super::{context, feedback, recommendation, search};
use crate::store::Store;

#[async_trait]
impl DiscoveryRepository for Store {
    async fn searches(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Search>, StoreError> {
        search::searches(self, session, limit).await
    }

    async fn contexts(
        &self,
        session: Option<SessionId>,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError> {
        context::contexts(self, session, limit).await
    }

    async fn contexts_of(
        &self,
        principal: &Principal,
        limit: u32,
    ) -> Result<Vec<Context>, StoreError> {
        context::contexts_of(self, principal, limit).await
    }

    async fn contexts_with(&self, ids: &[ContextId]) -> Result<Vec<Context>, StoreError> {
        context::contexts_with(self, ids).await
    }

    async fn recommendation(
        &self,
        id: RecommendationId,
    ) -> Result<Option<Recommendation>, StoreError> {
        recommendation::recommendation(self, id).await
    }

    async fn recommendations(&self, limit: u32) -> Result<Vec<Recommendation>, StoreError> {
        recommendation::recommendations(self, limit).await
    }

    async fn feedback(
        &self,
        scope: Option<&Principal>,
        tool: Option<&ToolRef>,
        limit: u32,
    ) -> Result<Vec<Feedback>, StoreError> {
        feedback::feedback(self, scope, tool, limit).await
    }
}
