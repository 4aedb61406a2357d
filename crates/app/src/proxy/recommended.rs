//! Recommendations for who operates the proxy: for an open session, or for nobody in particular.

use jiff::Timestamp;
use riglm_domain::id::{SessionId, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_ports::analytics::{StoreError, ToolDefinitionRepository};

use std::sync::Arc;

use super::Proxy;
use super::session::ClientSession;
use crate::filtering::ListAsk;
use crate::names::quoted;
use crate::recommend::{
    Project, RecommendCall, RecommendError, RecommendReply, Recommender, stored_offer,
};
use crate::search::Offer;

/// What an operator wants recommended.
#[derive(Clone, Debug)]
pub struct RecommendationWanted {
    /// What is to be done, in words.
    pub query: String,
    /// The most tools to answer; `None` for as many as is configured.
    pub limit: Option<usize>,
    /// The session that it is for, by its work session, its connection or the identifier of its
    /// transport; `None` for nobody in particular.
    pub session: Option<String>,
    /// Who it is for, where no session is named.
    pub principal: Principal,
    /// What the work is about.
    pub project: Project,
}

/// Why nothing is recommended.
#[derive(Debug, thiserror::Error)]
pub enum NoRecommendation {
    /// Nothing is recommended here.
    #[error("nothing is recommended: recommend.enabled is false")]
    Off,
    /// No open session has the identifier.
    #[error("no session {0} is open")]
    NotOpen(String),
    /// The session has not listed its tools yet.
    #[error("the session has not listed its tools yet")]
    NotListed,
    /// No session is named or open, and nothing is stored.
    #[error("no session is open, and nothing is stored")]
    NotStored,
    /// The query says nothing.
    #[error(transparent)]
    Query(#[from] RecommendError),
    /// The store does not answer.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl Proxy {
    /// Recommends tools to an operator. `store` has the tools that were listed before, for requests
    /// that name no session.
    ///
    /// # Errors
    ///
    /// Returns why nothing is recommended.
    pub async fn recommend(
        &self,
        wanted: RecommendationWanted,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<RecommendReply, NoRecommendation> {
        let recommender = self.shared.recommender.as_ref();
        let recommender = recommender.ok_or(NoRecommendation::Off)?;
        let call = match &wanted.session {
            Some(id) => self.for_session(id, &wanted, store).await?,
            None => self.for_nobody(&wanted, store).await?,
        };
        Ok(recommender.recommend(call).await?)
    }

    /// Returns what recommends tools, where something does.
    #[must_use]
    pub fn recommender(&self) -> Option<&Arc<Recommender>> {
        self.shared.recommender.as_ref()
    }

    async fn for_session(
        &self,
        id: &str,
        wanted: &RecommendationWanted,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<RecommendCall, NoRecommendation> {
        let session = self.open_session_named(id);
        let session = session.ok_or_else(|| NoRecommendation::NotOpen(quoted(id)))?;
        let caller = &session.caller;
        let row = caller.known_row().ok_or(NoRecommendation::NotListed)?;
        let offer = if let Some(offer) = self.offer_of(&session) {
            offer
        } else {
            let remembered = self.remembered_offer(&session, store).await?;
            self.shared.permitted(caller, &remembered)
        };
        let together = caller.together(row);
        let client = caller.client_name();
        let now = self.shared.recorder.now();
        let mut ask = caller.list_ask(&client, together, caller.is_modern(), now);
        ask.client_hash = Some(caller.client_hash(&self.shared.recorder));
        Ok(RecommendCall {
            session: Some(row),
            together: Some(together),
            is_of_session: false,
            principal: caller.principal.clone(),
            query: wanted.query.clone(),
            limit: wanted.limit,
            hindrances: self.shared.hindrances(&ask, &offer),
            offer,
            project: wanted.project.clone(),
        })
    }

    /// Returns what was listed before, for a session that was shown nothing yet.
    async fn remembered_offer(
        &self,
        session: &ClientSession,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<Arc<Offer>, NoRecommendation> {
        let members = session.members();
        let upstreams: Vec<UpstreamName> =
            members.iter().map(|member| member.name().clone()).collect();
        let stored = match self.stored_offer(store, &upstreams).await {
            Err(NoRecommendation::NotStored) => return Err(NoRecommendation::NotListed),
            stored => stored?,
        };
        if stored.tools().is_empty() {
            return Err(NoRecommendation::NotListed);
        }
        Ok(Arc::new(stored))
    }

    async fn stored_offer(
        &self,
        store: Option<&dyn ToolDefinitionRepository>,
        upstreams: &[UpstreamName],
    ) -> Result<Offer, NoRecommendation> {
        let store = store.ok_or(NoRecommendation::NotStored)?;
        Ok(stored_offer(store, upstreams, self.shared.naming).await?)
    }

    async fn for_nobody(
        &self,
        wanted: &RecommendationWanted,
        store: Option<&dyn ToolDefinitionRepository>,
    ) -> Result<RecommendCall, NoRecommendation> {
        let offer = if let Some(offer) = self.known_offer(&wanted.principal, None) {
            offer
        } else {
            let states = self.upstream_states().into_iter();
            let upstreams: Vec<UpstreamName> = states.map(|state| state.name).collect();
            Arc::new(self.stored_offer(store, &upstreams).await?)
        };
        let offer = self.shared.permitted_to_all(&offer);
        let nobody = CallSession::Connection(SessionId::new(Timestamp::UNIX_EPOCH, [0; 10]));
        let ask = ListAsk {
            principal: &wanted.principal,
            client: "",
            client_hash: None,
            profile: None,
            is_modern: false,
            relists: false,
            session: nobody,
            connection: None,
            intent: None,
            stated: None,
            now: self.shared.recorder.now(),
        };
        Ok(RecommendCall {
            session: None,
            together: None,
            is_of_session: false,
            principal: wanted.principal.clone(),
            query: wanted.query.clone(),
            limit: wanted.limit,
            hindrances: self.shared.hindrances(&ask, &offer),
            offer,
            project: wanted.project.clone(),
        })
    }
}
