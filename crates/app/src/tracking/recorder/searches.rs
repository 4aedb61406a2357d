//! Recording of searches for tools, and of declared contexts.

use std::time::Duration;

use jiff::Timestamp;
use riglm_domain::id::{ContextId, SearchId, SessionId};
use riglm_domain::intent::context::{Context, ContextSource};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::privacy::redaction::redact_text;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::retrieval::search::{ScoredTool, Search, SearchQuality};
use riglm_domain::usage::record::Record;

use super::{MAX_STORED_BYTES, Recorder, RecordingPolicy, micros};

/// The data of a search, or of a declared context that is answered like a search.
#[derive(Debug)]
pub struct SearchDetails<'a> {
    /// The session of the search.
    pub session: SessionId,
    /// The owner of the session.
    pub principal: &'a Principal,
    /// Whether the text is a search or a declared context.
    pub source: ContextSource,
    /// The query.
    pub query: &'a str,
    /// The time of receipt.
    pub searched_at: Timestamp,
    /// Time to the answer.
    pub duration: Duration,
    /// The quality of the answer.
    pub quality: SearchQuality,
    /// The answer, best first.
    pub results: Vec<ScoredTool>,
    /// The embedding of the query, if an encoder is available.
    pub embedding: Option<Embedding>,
}

impl Recorder {
    /// Records a search with its text as a context; for other texts only the context. Returns the
    /// identifier of the context; `None` if nothing is recorded.
    pub async fn record_search(&self, details: SearchDetails<'_>) -> Option<ContextId> {
        if self.options.policy == RecordingPolicy::Off {
            return None;
        }
        let searched_at = details.searched_at;
        let query_hash = self.hasher.hash_text(details.query);
        let query = self
            .options
            .include_arguments
            .then(|| redact_text(details.query, MAX_STORED_BYTES));
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
