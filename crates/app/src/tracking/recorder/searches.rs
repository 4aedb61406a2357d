//! The rows of searches for tools, and of what is said about what a client is doing.

use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::context::{Context, ContextSource};
use riglm_domain::embedding::Embedding;
use riglm_domain::id::{ContextId, SearchId, SessionId};
use riglm_domain::principal::Principal;
use riglm_domain::record::Record;
use riglm_domain::redaction::redacted_text;
use riglm_domain::search::{ScoredTool, Search, SearchQuality};

use super::{MAX_STORED_BYTES, Recorder, RecordingPolicy, micros};

/// What the rows of a search are made of, or of a text by which a client says what it does and that
/// is answered as a search is.
#[derive(Debug)]
pub struct SearchDetails<'a> {
    /// The session that searched.
    pub session: SessionId,
    /// Whose session that is.
    pub principal: &'a Principal,
    /// Whether it was a search.
    pub source: ContextSource,
    /// What was searched for.
    pub query: &'a str,
    /// When it was received.
    pub searched_at: Timestamp,
    /// Time to the answer.
    pub duration: Duration,
    /// How good the answer was judged to be.
    pub quality: SearchQuality,
    /// What was answered, best first.
    pub results: Vec<ScoredTool>,
    /// The embedding of the query, where an encoder was there.
    pub embedding: Option<Embedding>,
}

impl Recorder {
    /// Records a search that was answered, and what it says about what the client is doing; of other
    /// texts only the latter. Returns the identity of that; `None` where nothing is recorded.
    pub async fn searched(&self, details: SearchDetails<'_>) -> Option<ContextId> {
        if self.options.policy == RecordingPolicy::Off {
            return None;
        }
        let searched_at = details.searched_at;
        let query_hash = self.hasher.hash_text(details.query);
        let query = self
            .options
            .include_arguments
            .then(|| redacted_text(details.query, MAX_STORED_BYTES));
        let context = Context {
            id: ContextId::new(searched_at, self.entropy.next()),
            session: details.session,
            principal: details.principal.clone(),
            source: details.source,
            given_at: searched_at,
            text_hash: query_hash,
            text: query.clone(),
            embedding: details.embedding,
        };
        let id = context.id;
        if details.source != ContextSource::Search {
            let is_known = self.append(&Record::ContextGiven(context)).await;
            return is_known.then_some(id);
        }
        let search = Search {
            id: SearchId::new(searched_at, self.entropy.next()),
            session: details.session,
            principal: details.principal.clone(),
            searched_at,
            duration_us: micros(details.duration),
            query_hash,
            query,
            quality: details.quality,
            results: details.results,
        };
        self.append(&Record::Searched(search)).await;
        let is_known = self.append(&Record::ContextGiven(context)).await;
        is_known.then_some(id)
    }
}
