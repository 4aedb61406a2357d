//! Recommendations for operators: for an open session, or without a session.

use jiff::Timestamp;
use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::analytics::{StoreError, ToolDefinitionRepository};

use std::sync::Arc;

use super::Proxy;
use super::session::ClientSession;
use crate::control::name_lookup::quote;
use crate::selection::ListRequest;
use riglm_discovery::recommend::{
    Project, RecommendError, RecommendReply, RecommendRequest, Recommender, stored_catalog,
};
use riglm_discovery::search::Catalog;

/// The parameters of a recommendation for an operator.
#[derive(Clone, Debug)]
pub struct RecommendationQuery {
    /// The task in words.
    pub query: String,
    /// The maximum number of tools; `None` for the configured number.
    pub limit: Option<usize>,
    /// The id of the session: of its work session, its connection or its transport. `None` for a
    /// recommendation without a session.
    pub session: Option<String>,
    /// The principal to recommend for if no session is given.
    pub principal: Principal,
    /// The project that the task belongs to.
    pub project: Project,
}

/// The reason for a missing recommendation.
#[derive(Debug, thiserror::Error)]
pub enum NoRecommendation {
    /// Recommendations are disabled.
    #[error("recommendations are off: recommend.enabled is false")]
    Off,
    /// No open session has this id.
    #[error("session {0} is not open")]
    NotOpen(String),
    /// The session has not listed its tools yet.
    #[error("the session has not listed its tools yet")]
    NotListed,
    /// No session is given or open, and no tools are stored.
    #[error("no tools are known: no session is open, and no tool definitions are stored")]
    NotStored,
    /// The query is invalid.
    #[error(transparent)]
    Query(#[from] RecommendError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Proxy {
    /// Recommends tools to an operator. `store` supplies the tools of earlier lists for requests
    /// without a session.
    ///
    /// # Errors
    ///
    /// Returns the reason for a missing recommendation.
    pub async fn recommend(
        &self,
        wanted: RecommendationQuery,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<RecommendReply, NoRecommendation> {
        let recommender = self.shared.recommender.as_ref();
        let recommender = recommender.ok_or(NoRecommendation::Off)?;
        let call = match &wanted.session {
            Some(id) => self.for_session(id, &wanted, store).await?,
            None => self.without_session(&wanted, store).await?,
        };
        Ok(recommender.recommend(call).await?)
    }

    /// Returns the recommender if recommendations are enabled.
    #[must_use]
    pub fn recommender(&self) -> Option<&Arc<Recommender>> {
        self.shared.recommender.as_ref()
    }

    async fn for_session(
        &self,
        id: &str,
        wanted: &RecommendationQuery,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<RecommendRequest, NoRecommendation> {
        let session = self.open_session_named(id);
        let session = session.ok_or_else(|| NoRecommendation::NotOpen(quote(id)))?;
        let client_context = &session.client_context;
        let row = client_context
            .known_row()
            .ok_or(NoRecommendation::NotListed)?;
        let catalog = if let Some(catalog) = self.catalog_of(&session) {
            catalog
        } else {
            let remembered = self.stored_session_catalog(&session, store).await?;
            self.shared.permitted_catalog(client_context, &remembered)
        };
        let session_key = client_context.session_key(row);
        let client = client_context.client_name();
        let now = self.shared.recorder.now();
        let mut ask = client_context.list_request(&client, session_key, client_context.era(), now);
        ask.client_hash = Some(client_context.client_hash(&self.shared.recorder));
        Ok(RecommendRequest {
            session: Some(row),
            session_key: Some(session_key),
            is_of_session: false,
            principal: client_context.principal.clone(),
            query: wanted.query.clone(),
            limit: wanted.limit,
            exclusions: self.shared.exclusions(&ask, &catalog),
            catalog,
            project: wanted.project.clone(),
        })
    }

    /// Returns the stored tools of the upstreams of a session without a list.
    async fn stored_session_catalog(
        &self,
        session: &ClientSession,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<Arc<Catalog>, NoRecommendation> {
        let members = session.members();
        let upstreams: Vec<UpstreamName> =
            members.iter().map(|member| member.name().clone()).collect();
        let stored = match self.stored_catalog(store, &upstreams).await {
            Err(NoRecommendation::NotStored) => return Err(NoRecommendation::NotListed),
            stored => stored?,
        };
        if stored.tools().is_empty() {
            return Err(NoRecommendation::NotListed);
        }
        Ok(Arc::new(stored))
    }

    async fn stored_catalog(
        &self,
        store: Option<&dyn ToolDefinitionRepository>,
        upstreams: &[UpstreamName],
    ) -> Result<Catalog, NoRecommendation> {
        let store = store.ok_or(NoRecommendation::NotStored)?;
        Ok(stored_catalog(store, upstreams, self.shared.naming).await?)
    }

    async fn without_session(
        &self,
        wanted: &RecommendationQuery,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<RecommendRequest, NoRecommendation> {
        let catalog = if let Some(catalog) = self.known_catalog(&wanted.principal, None) {
            catalog
        } else {
            let states = self.upstream_states().into_iter();
            let upstreams: Vec<UpstreamName> = states.map(|state| state.name).collect();
            Arc::new(self.stored_catalog(store, &upstreams).await?)
        };
        let catalog = self.shared.permitted_to_all(&catalog);
        // This key matches no session, so that no history influences the result.
        let nobody = SessionKey::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [0; 10]));
        let ask = ListRequest {
            principal: &wanted.principal,
            client: "",
            client_hash: None,
            profile: None,
            era: Era::Legacy,
            refetches_lists: false,
            loads_on_demand: false,
            session: nobody,
            connection: None,
            intent: None,
            stated: None,
            now: self.shared.recorder.now(),
        };
        Ok(RecommendRequest {
            session: None,
            session_key: None,
            is_of_session: false,
            principal: wanted.principal.clone(),
            query: wanted.query.clone(),
            limit: wanted.limit,
            exclusions: self.shared.exclusions(&ask, &catalog),
            catalog,
            project: wanted.project.clone(),
        })
    }
}
