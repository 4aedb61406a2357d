//! Answers that are held for sessions that ask the same again.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

use super::request::SearchReply;

/// How many answers are held.
const MAX_ANSWERS: usize = 1_000;
/// How many bytes they have in all, their questions included.
const MAX_BYTES: usize = 16 << 20;
/// The most bytes of one that is held. None is that large with the default token budget.
const MAX_ANSWER_BYTES: usize = MAX_BYTES / 16;

/// What was asked.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Question {
    /// By whom: what is known of others is not told.
    pub(super) principal: Principal,
    /// In which work session: over another connection it is the same question.
    pub(super) together: CallSession,
    /// Over which offer.
    pub(super) offer: [u8; 32],
    /// For how many tools.
    pub(super) limit: usize,
    /// In which words.
    pub(super) text: String,
    /// In which arm of an experiment that ranks tools in another way.
    pub(super) arm: Option<ExperimentArm>,
    /// The positions of tools that the operator pinned.
    pub(super) pinned: Vec<usize>,
    /// By the number of which predictor it is told what is needed next.
    pub(super) predictor: usize,
}

/// The answers that were given last.
#[derive(Debug)]
pub(super) struct Answers(Mutex<Held>);

#[derive(Debug)]
struct Held {
    by_question: LruCache<Question, SearchReply>,
    n_bytes: usize,
}

impl Answers {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Held {
            by_question: LruCache::unbounded(),
            n_bytes: 0,
        }))
    }

    /// Returns the answer that was given to a question.
    pub(super) fn get(&self, question: &Question) -> Option<SearchReply> {
        let known = self.held().by_question.get(question).cloned()?;
        Some(SearchReply {
            was_cached: true,
            ..known
        })
    }

    /// Holds an answer, unless it is very large, and forgets the oldest ones beyond the bounds.
    pub(super) fn put(&self, question: Question, reply: SearchReply) {
        let n_bytes = n_bytes(&question, &reply);
        if n_bytes > MAX_ANSWER_BYTES {
            return;
        }
        let mut held = self.held();
        held.n_bytes += n_bytes;
        let size = |(question, reply): (Question, SearchReply)| self::n_bytes(&question, &reply);
        // What is given back is the answer to the same question: there is no bound yet.
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

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns about how much memory an answer takes.
fn n_bytes(question: &Question, reply: &SearchReply) -> usize {
    let names = |tool: &ToolRef| tool.upstream.as_str().len() + tool.tool.as_str().len();
    let results = reply.results.iter();
    let results = results.map(|result| size_of_val(result) + names(&result.tool));
    let predicted = reply.predicted.iter();
    let predicted = predicted.map(|tool| size_of_val(tool) + names(tool));
    let vector = reply.query_vector.as_ref();
    let vector = vector.map_or(0, |vector| size_of_val(vector.vector()));
    let texts = question.text.len() + reply.text.len() + reply.structured.len();
    size_of::<(Question, SearchReply)>() + texts + vector + results.chain(predicted).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use riglm_domain::search::SearchQuality;

    use super::*;

    fn question(n: usize) -> Question {
        let session = "01890000-0000-7000-8000-000000000001".parse().unwrap();
        Question {
            principal: Principal::local(),
            together: CallSession::Connection(session),
            offer: [0; 32],
            limit: 10,
            text: n.to_string(),
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
    fn the_bytes_of_held_answers_are_bounded_and_the_oldest_go_first() {
        let answers = Answers::new();
        for n in 0..40 {
            answers.put(question(n), reply(1_000_000));
            assert!(answers.get(&question(n)).unwrap().was_cached);
            assert!(answers.held().n_bytes <= MAX_BYTES);
        }
        assert!(answers.get(&question(0)).is_none());
        assert_eq!(answers.held().by_question.len(), 16);
        answers.put(question(39), reply(1));
        answers.put(question(38), reply(1));
        assert!(answers.held().n_bytes < 15_000_000, "both were replaced");
    }

    #[test]
    fn the_number_of_held_answers_is_bounded_and_none_is_very_large() {
        let answers = Answers::new();
        for n in 0..=MAX_ANSWERS {
            answers.put(question(n), reply(1));
        }
        assert_eq!(answers.held().by_question.len(), MAX_ANSWERS);
        answers.put(question(5_000), reply(MAX_ANSWER_BYTES));
        assert!(answers.get(&question(5_000)).is_none());
    }
}
