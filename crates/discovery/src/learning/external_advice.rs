//! Advice of an external predictor: asking it, within bounds, and keeping its answers for a while.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::prediction::{Advice, SessionHistory, ToolIx, Vocabulary};
use riglm_domain::resilience::{Backoff, CircuitBreaker};
use riglm_ports::external_predictor::{
    ExternalPredictor, MAX_TOOLS, SCHEMA, ScoreError, ScoreRequest, ScoreResponse, SessionSoFar,
    ToolToScore,
};
use riglm_ports::predictor::Predictor;
use tokio::time::{Instant, timeout};

/// Wait after failures. The first failure is often a program that is still starting.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(1), Duration::from_mins(1));
/// Maximum number of answers in memory.
const MAX_ANSWERS: NonZeroUsize = NonZeroUsize::new(256).expect("not zero");
/// The time for which an answer is used. Counts change slowly.
const ANSWER_AGE: Duration = Duration::from_mins(1);

/// An external predictor, and how it is asked.
#[derive(Clone, Debug)]
pub struct ExternalAdviser {
    /// The predictor.
    pub predictor: Arc<dyn ExternalPredictor>,
    /// The maximum time of a request.
    pub deadline: Duration,
    /// Whether requests have the declared intents of sessions, in words.
    pub sends_text: bool,
}

/// The scores of an answer, with the tools that they are for.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct NamedScores {
    scores: HashMap<ToolRef, f64>,
    reasons: HashMap<ToolRef, String>,
}

impl NamedScores {
    /// Returns the advice for a predictor with this vocabulary.
    pub(super) fn advice(&self, vocabulary: &Vocabulary) -> Option<Advice> {
        let scores = self.scores.iter();
        let scores = scores.filter_map(|(tool, score)| Some((vocabulary.slot(tool)?, *score)));
        let reasons = self.reasons.iter();
        let reasons = reasons.filter_map(|(tool, why)| Some((vocabulary.slot(tool)?, why.clone())));
        Some(Advice::new(scores)?.with_reasons(reasons))
    }
}

/// The external predictor in use: its circuit breaker, its recent answers and its counters.
#[derive(Debug)]
pub(super) struct ExternalAdvice {
    adviser: ExternalAdviser,
    breaker: Mutex<CircuitBreaker>,
    answers: Mutex<LruCache<u64, (Instant, Arc<NamedScores>)>>,
    next_id: AtomicU64,
    n_answers: AtomicU64,
    n_failures: AtomicU64,
}

impl ExternalAdvice {
    pub(super) fn new(adviser: ExternalAdviser) -> Self {
        let breaker = CircuitBreaker::new(BACKOFF, adviser.deadline);
        Self {
            adviser,
            breaker: Mutex::new(breaker),
            answers: Mutex::new(LruCache::new(MAX_ANSWERS)),
            next_id: AtomicU64::new(1),
            n_answers: AtomicU64::new(0),
            n_failures: AtomicU64::new(0),
        }
    }

    pub(super) fn sends_text(&self) -> bool {
        self.adviser.sends_text
    }

    /// Returns the number of answers and of failures since the start.
    pub(super) fn counts(&self) -> AdviceCounts {
        AdviceCounts {
            answers: self.n_answers.load(Ordering::Relaxed),
            failures: self.n_failures.load(Ordering::Relaxed),
        }
    }

    /// Asks for scores; `None` if there are none within the deadline, or if the predictor failed just
    /// before.
    pub(super) async fn ask(&self, asked: AdviceRequest) -> Option<Arc<NamedScores>> {
        let permit = (self.breaker.lock().admit(Instant::now().into_std())).ok()?;
        let AdviceRequest { mut request, tools } = asked;
        request.id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let Self { adviser, .. } = self;
        let answer = timeout(adviser.deadline, adviser.predictor.score(&request)).await;
        let answer = answer.unwrap_or(Err(ScoreError::Late(adviser.deadline)));
        // An implementation may forget to check.
        let answer = answer.and_then(|response| response.check(&request).map(|()| response));
        match answer {
            Ok(response) => {
                self.n_answers.fetch_add(1, Ordering::Relaxed);
                if self.breaker.lock().record_success() {
                    tracing::info!(
                        predictor = adviser.predictor.name(),
                        "the external predictor answers again"
                    );
                }
                Some(Arc::new(scores_by_tool(response, &tools)))
            }
            Err(error) => {
                self.n_failures.fetch_add(1, Ordering::Relaxed);
                let now = Instant::now().into_std();
                let was_closed = (self.breaker.lock()).record_failure(permit, now, fastrand::f64());
                if was_closed {
                    let error = &error as &dyn std::error::Error;
                    tracing::warn!(
                        predictor = adviser.predictor.name(),
                        error,
                        "predictions go on without the external predictor for a while"
                    );
                }
                None
            }
        }
    }

    /// Stores an answer for a situation.
    pub(super) fn store(&self, situation: u64, scores: Arc<NamedScores>) {
        self.answers.lock().put(situation, (Instant::now(), scores));
    }

    /// Returns the recent answer for a situation.
    pub(super) fn recall(&self, situation: u64) -> Option<Arc<NamedScores>> {
        let mut answers = self.answers.lock();
        let (at, scores) = answers.get(&situation)?;
        (at.elapsed() <= ANSWER_AGE).then(|| Arc::clone(scores))
    }
}

/// The number of requests to an external predictor since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AdviceCounts {
    /// Requests with scores in time.
    pub answers: u64,
    /// Requests without scores.
    pub failures: u64,
}

/// A request with the tools at its positions.
#[derive(Debug)]
pub(super) struct AdviceRequest {
    pub(super) request: ScoreRequest,
    tools: Vec<ToolRef>,
}

impl AdviceRequest {
    /// Returns the request for a session whose next call is one of `callable`. Tools above
    /// [`MAX_TOOLS`] are left out.
    pub(super) fn new(
        predictor: &dyn Predictor,
        history: &SessionHistory,
        callable: &[ToolRef],
        client: &str,
    ) -> Self {
        let vocabulary = predictor.vocabulary();
        let mut tools: Vec<ToolRef> = callable.iter().take(MAX_TOOLS).cloned().collect();
        let n_callable = tools.len();
        let mut position_of: BTreeMap<ToolIx, usize> = BTreeMap::new();
        for (position, tool) in tools.iter().enumerate() {
            if let Some(slot) = vocabulary.slot(tool) {
                position_of.entry(slot).or_insert(position);
            }
        }
        // Tools of the session that cannot be called now.
        for slot in history.used_tools() {
            if tools.len() < MAX_TOOLS
                && !position_of.contains_key(&slot)
                && let Some(tool) = vocabulary.tool(slot)
            {
                position_of.insert(slot, tools.len());
                tools.push(tool.clone());
            }
        }
        let slots: Vec<ToolIx> = position_of.keys().copied().collect();
        let counts = predictor.counts(history, &slots);
        let counts: BTreeMap<usize, _> = (slots.iter().zip(counts))
            .map(|(slot, counts)| (position_of[slot], counts))
            .collect();
        let positions = |slots: &mut dyn Iterator<Item = ToolIx>| {
            slots
                .filter_map(|slot| position_of.get(&slot).copied())
                .collect()
        };
        let session = SessionSoFar {
            client: client.to_owned(),
            n_calls: history.n_calls(),
            last_calls: positions(&mut history.last_calls().iter().copied()),
            used: positions(&mut history.used_tools()),
            time: history.time().map(jiff::Timestamp::as_second),
            text: None,
        };
        let scored = tools.iter().enumerate().map(|(at, tool)| ToolToScore {
            upstream: tool.upstream.to_string(),
            name: tool.tool.as_str().to_owned(),
            callable: at < n_callable,
            counts: counts.get(&at).copied().unwrap_or_default(),
        });
        Self {
            request: ScoreRequest {
                schema: SCHEMA.into(),
                id: 0,
                session,
                tools: scored.collect(),
            },
            tools,
        }
    }
}

/// Asks for the scores of an external predictor with `ask`, and sets them as the advice of a session.
/// `callable` are the tools that can be called now. For evaluations: a running proxy asks by
/// [`NextTools::consult`](super::NextTools::consult).
pub fn advise(
    predictor: &dyn Predictor,
    history: &mut SessionHistory,
    callable: &[ToolRef],
    client: &str,
    ask: impl FnOnce(&ScoreRequest) -> Option<ScoreResponse>,
) {
    let AdviceRequest { request, tools } = AdviceRequest::new(predictor, history, callable, client);
    let scores = ask(&request).map(|response| scores_by_tool(response, &tools));
    history.set_advice(scores.and_then(|scores| scores.advice(predictor.vocabulary())));
}

/// Returns the scores of the tools that can be called, by tool.
fn scores_by_tool(response: ScoreResponse, tools: &[ToolRef]) -> NamedScores {
    let scores = tools.iter().cloned().zip(response.scores);
    let reasons = response.reasons.into_iter();
    NamedScores {
        scores: scores.filter(|(_, score)| *score > 0.0).collect(),
        reasons: reasons
            .filter_map(|(at, reason)| Some((tools.get(at)?.clone(), reason)))
            .collect(),
    }
}
