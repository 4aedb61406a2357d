//! What is asked of the search, and what it answers.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::search::{ScoredTool, SearchQuality};
use riglm_domain::tool::ToolRef;

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
