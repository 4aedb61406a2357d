//! Requests and results of the search.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::SessionId;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::{ScoredTool, SearchQuality};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::EventOrigin;
use riglm_ports::reranker::Reranker;

use super::catalog::Catalog;
use super::escalation::GuardedModel;

/// One search of a client.
#[derive(Clone, Debug)]
pub struct SearchRequest {
    /// The session of the client.
    pub session: SessionId,
    /// The session key.
    pub session_key: SessionKey,
    /// The principal of the session.
    pub principal: Principal,
    /// The name that the client gives itself.
    pub client: String,
    /// The query.
    pub query: String,
    /// The vector of the query if the client computed it, of the length 1. It replaces that of the
    /// encoder with its model.
    pub vector: Option<Arc<Embedding>>,
    /// Maximum number of tools in the answer.
    pub limit: Option<usize>,
    /// The catalog of the session.
    pub catalog: Arc<Catalog>,
    /// The list that the client sees, if lists are chosen as a whole. Otherwise the catalog says
    /// which tools are hidden.
    pub shown: Option<Arc<dyn ListedTools>>,
    /// Tools that earlier answers in this session named. The client knows them, so they are not
    /// predicted again.
    pub told: HashSet<ToolRef>,
    /// Positions of the tools that the operator pinned for this principal.
    pub pinned: Vec<usize>,
    /// The client's own model, if the client offers one and the configuration allows its use.
    pub client_model: Option<GuardedModel<dyn Reranker>>,
}

/// The list of a client, as far as a search has to know it.
pub trait ListedTools: std::fmt::Debug + Send + Sync {
    /// Returns whether the list has a tool.
    fn shows(&self, tool: &ToolRef) -> bool;
}

impl SearchRequest {
    /// Returns the origin of events during the search.
    pub(super) fn origin(&self) -> EventOrigin<'_> {
        EventOrigin::of_session(&self.principal, self.session_key).with_connection(self.session)
    }
}

impl SearchRequest {
    /// Returns whether the client's list omits the tool at a position of the catalog.
    #[must_use]
    pub fn is_hidden(&self, position: usize) -> bool {
        let Some(tool) = self.catalog.tools().get(position) else {
            return false;
        };
        match &self.shown {
            Some(shown) => !shown.shows(&tool.tool),
            None => tool.is_hidden,
        }
    }

    /// Returns whether the client does not know the tool at a position of the catalog, neither from
    /// its list nor from an earlier answer.
    #[must_use]
    pub fn is_unknown(&self, position: usize) -> bool {
        let tool = self.catalog.tools().get(position);
        self.is_hidden(position) && tool.is_some_and(|tool| !self.told.contains(&tool.tool))
    }
}

/// The answer to a search.
#[derive(Clone, Debug)]
pub struct SearchReply {
    /// Text for the model.
    pub text: String,
    /// The same as JSON text of an object.
    pub structured: String,
    /// Grade of the answer.
    pub quality: SearchQuality,
    /// The tools, best first.
    pub results: Vec<ScoredTool>,
    /// The predicted tools that fit into the answer, the most likely first.
    pub predicted: Vec<ToolRef>,
    /// The vector of the query, if an encoder was available.
    pub query_vector: Option<Embedding>,
    /// Whether the answer came from the cache because the session repeated the query.
    pub was_cached: bool,
}

/// A finished call of a tool.
#[derive(Clone, Debug)]
pub struct FinishedCall {
    /// The session of the caller.
    pub session: SessionId,
    /// The principal of the session.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolRef,
    /// Whether the call returned a result that is not an error.
    pub is_ok: bool,
    /// Start time of the call.
    pub began_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;

    use super::*;
    use crate::search::CatalogTool;

    fn tool(name: &str, is_hidden: bool) -> CatalogTool {
        CatalogTool {
            name: name.into(),
            tool: ToolRef {
                upstream: UpstreamName::parse("notes").unwrap(),
                tool: name.into(),
            },
            definition: "{}".into(),
            is_hidden,
        }
    }

    #[test]
    fn a_hidden_tool_without_an_earlier_answer_is_unknown() {
        let tools = vec![tool("listed", false), tool("told", true), tool("new", true)];
        let told = HashSet::from([tools[1].tool.clone()]);
        let session = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        let call = SearchRequest {
            session,
            session_key: SessionKey::Connection(session),
            principal: Principal::local(),
            client: String::new(),
            query: String::new(),
            vector: None,
            limit: None,
            catalog: Arc::new(Catalog::new(tools, Vec::new())),
            shown: None,
            told,
            pinned: Vec::new(),
            client_model: None,
        };
        let unknown = |at: &usize| call.is_unknown(*at);
        assert_eq!((0..4).filter(unknown).collect::<Vec<_>>(), [2]);
    }
}
