//! What is asked of the search, and what it answers.

use std::collections::HashSet;
use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::search::{ScoredTool, SearchQuality};
use riglm_domain::tool::ToolRef;
use riglm_ports::observer::EventOrigin;
use riglm_ports::reranker::Reranker;

use super::ladder::Guarded;
use super::offer::Offer;
use crate::filtering::ShownList;

/// One search of a client.
#[derive(Clone, Debug)]
pub struct SearchCall {
    /// The session that searches.
    pub session: SessionId,
    /// What the calls of the session have in common.
    pub together: CallSession,
    /// Whose session that is.
    pub principal: Principal,
    /// The name that the client gives itself.
    pub client: String,
    /// What is looked for.
    pub query: String,
    /// The most tools to answer.
    pub limit: Option<usize>,
    /// What the session could call.
    pub offer: Arc<Offer>,
    /// The list that the client sees, where lists are chosen as a whole; else what the offer says is
    /// hidden is.
    pub shown: Option<Arc<ShownList>>,
    /// The tools that answers to earlier searches of the session named: the client knows them, and
    /// is not told again that it may need them next.
    pub told: HashSet<ToolRef>,
    /// The positions of the tools that the operator pinned for who searches.
    pub pinned: Vec<usize>,
    /// The client's own model, where it offers one and may be asked.
    pub client_model: Option<Guarded<dyn Reranker>>,
}

impl SearchCall {
    /// Returns the origin of what happens during the search.
    pub(super) fn origin(&self) -> EventOrigin<'_> {
        EventOrigin::of_session(&self.principal, self.together).over(self.session)
    }
}

impl SearchCall {
    /// Returns whether the client's list leaves out the tool at a position of the offer.
    #[must_use]
    pub fn is_hidden(&self, position: usize) -> bool {
        let Some(tool) = self.offer.tools().get(position) else {
            return false;
        };
        match &self.shown {
            Some(shown) => !shown.shows(&tool.tool),
            None => tool.is_hidden,
        }
    }

    /// Returns whether the client does not know the tool at a position of the offer: neither from
    /// its list nor from an answer before.
    #[must_use]
    pub fn is_unknown(&self, position: usize) -> bool {
        let tool = self.offer.tools().get(position);
        self.is_hidden(position) && tool.is_some_and(|tool| !self.told.contains(&tool.tool))
    }
}

/// The answer to a search.
#[derive(Clone, Debug)]
pub struct SearchReply {
    /// For the model.
    pub text: String,
    /// The JSON text of an object.
    pub structured: String,
    /// How good the answer is.
    pub quality: SearchQuality,
    /// The tools, best first.
    pub results: Vec<ScoredTool>,
    /// The tools that are likely to be needed next, of those that the answer has room for, the most
    /// likely first.
    pub predicted: Vec<ToolRef>,
    /// The vector of the query, where an encoder was there.
    pub query_vector: Option<Embedding>,
    /// Whether the session had asked the same before, and was given the same answer.
    pub was_cached: bool,
}

/// A call of a tool has ended.
#[derive(Clone, Debug)]
pub struct ToolCalled {
    /// The session that called.
    pub session: SessionId,
    /// Whose session that is.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolRef,
    /// Whether it was answered with a result that is no error.
    pub is_ok: bool,
    /// When the call began.
    pub began_at: Timestamp,
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::UpstreamName;

    use super::*;
    use crate::search::OfferedTool;

    fn tool(name: &str, is_hidden: bool) -> OfferedTool {
        OfferedTool {
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
    fn a_tool_is_unknown_that_is_neither_listed_nor_was_told_of() {
        let tools = vec![tool("listed", false), tool("told", true), tool("new", true)];
        let told = HashSet::from([tools[1].tool.clone()]);
        let session = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        let call = SearchCall {
            session,
            together: CallSession::Connection(session),
            principal: Principal::local(),
            client: String::new(),
            query: String::new(),
            limit: None,
            offer: Arc::new(Offer::new(tools, Vec::new())),
            shown: None,
            told,
            pinned: Vec::new(),
            client_model: None,
        };
        let unknown = |at: &usize| call.is_unknown(*at);
        assert_eq!((0..4).filter(unknown).collect::<Vec<_>>(), [2]);
    }
}
