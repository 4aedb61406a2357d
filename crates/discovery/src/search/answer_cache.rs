//! Answers that are held for sessions that ask the same again.

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::SessionKey;

use super::request::SearchReply;

const MAX_ANSWERS: usize = 1_000;
/// Limit for all cached answers, including their questions.
const MAX_BYTES: usize = 16 << 20;
/// Limit for one cached answer. With the default token budget, no answer is that large.
const MAX_ANSWER_BYTES: usize = MAX_BYTES / 16;

/// The cache key of an answer: every input that changes it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct AnswerKey {
    /// The caller. Answers are never shared between principals.
    pub(super) principal: Principal,
    /// The session key, so that a new connection of the same work session finds the answer.
    pub(super) session_key: SessionKey,
    /// Hash of the catalog.
    pub(super) catalog: [u8; 32],
    /// Maximum number of tools of the answer.
    pub(super) limit: usize,
    /// The normalized query.
    pub(super) text: String,
    /// Digest of the vector of the query, if the client computed it.
    pub(super) vector: Option<[u8; 32]>,
    /// The arm of a ranking experiment.
    pub(super) arm: Option<ExperimentArm>,
    /// Positions of the tools that the operator pinned.
    pub(super) pinned: Vec<usize>,
    /// Number of the predictor that predicted the next tools.
    pub(super) predictor: usize,
}

#[derive(Debug)]
pub(super) struct AnswerCache(Mutex<AnswerCacheState>);

#[derive(Debug)]
struct AnswerCacheState {
    by_question: LruCache<AnswerKey, SearchReply>,
    n_bytes: usize,
}

impl AnswerCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(AnswerCacheState {
            by_question: LruCache::unbounded(),
            n_bytes: 0,
        }))
    }

    /// Returns the cached answer to a question, marked as cached.
    pub(super) fn get(&self, question: &AnswerKey) -> Option<SearchReply> {
        let known = self.0.lock().by_question.get(question).cloned()?;
        Some(SearchReply {
            was_cached: true,
            ..known
        })
    }

    /// Stores an answer and evicts the oldest ones beyond the limits. A very large answer is not
    /// stored.
    pub(super) fn put(&self, question: AnswerKey, reply: SearchReply) {
        let n_bytes = n_bytes(&question, &reply);
        if n_bytes > MAX_ANSWER_BYTES {
            return;
        }
        let mut held = self.0.lock();
        held.n_bytes += n_bytes;
        let size = |(question, reply): (AnswerKey, SearchReply)| self::n_bytes(&question, &reply);
        // `push` returns only the old answer to the same question, because the cache itself is
        // unbounded.
        if let Some(earlier) = held.by_question.push(question, reply).map(size) {
            held.n_bytes -= earlier;
        }
        while held.by_question.len() > MAX_ANSWERS || held.n_bytes > MAX_BYTES {
            let Some(oldest) = held.by_question.pop_lru().map(size) else {
                break;
            };
            held.n_bytes -= oldest;
        }
    }
}

/// Estimates the memory of an entry in bytes.
fn n_bytes(question: &AnswerKey, reply: &SearchReply) -> usize {
    let names = |tool: &ToolRef| tool.upstream.as_str().len() + tool.tool.as_str().len();
    let results = reply.results.iter();
    let results = results.map(|result| size_of_val(result) + names(&result.tool));
    let predicted = reply.predicted.iter();
    let predicted = predicted.map(|tool| size_of_val(tool) + names(tool));
    let vector = reply.query_vector.as_ref();
    let vector = vector.map_or(0, |vector| size_of_val(vector.vector()));
    let texts = question.text.len() + reply.text.len() + reply.structured.len();
    size_of::<(AnswerKey, SearchReply)>() + texts + vector + results.chain(predicted).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use riglm_domain::retrieval::search::SearchQuality;

    use super::*;

    fn question(n: usize) -> AnswerKey {
        let session = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        AnswerKey {
            principal: Principal::local(),
            session_key: SessionKey::Connection(session),
            catalog: [0; 32],
            limit: 10,
            text: n.to_string(),
            vector: None,
            arm: None,
            pinned: Vec::new(),
            predictor: 0,
        }
    }

    fn reply(n_bytes: usize) -> SearchReply {
        SearchReply {
            text: "x".repeat(n_bytes),
            structured: String::new(),
            quality: SearchQuality::High,
            results: Vec::new(),
            predicted: Vec::new(),
            query_vector: None,
            was_cached: false,
        }
    }

    #[test]
    fn oldest_answers_are_evicted_beyond_the_byte_limit() {
        let answers = AnswerCache::new();
        for n in 0..40 {
            answers.put(question(n), reply(1_000_000));
            assert!(answers.get(&question(n)).unwrap().was_cached);
            assert!(answers.0.lock().n_bytes <= MAX_BYTES);
        }
        assert!(answers.get(&question(0)).is_none());
        assert_eq!(answers.0.lock().by_question.len(), 16);
        answers.put(question(39), reply(1));
        answers.put(question(38), reply(1));
        assert!(answers.0.lock().n_bytes < 15_000_000, "both were replaced");
    }

    #[test]
    fn cached_answers_are_limited_in_number_and_size() {
        let answers = AnswerCache::new();
        for n in 0..=MAX_ANSWERS {
            answers.put(question(n), reply(1));
        }
        assert_eq!(answers.0.lock().by_question.len(), MAX_ANSWERS);
        answers.put(question(5_000), reply(MAX_ANSWER_BYTES));
        assert!(answers.get(&question(5_000)).is_none());
    }
}
