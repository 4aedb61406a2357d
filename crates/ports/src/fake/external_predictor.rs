//! An external predictor in memory, whose answers a test sets.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use parking_lot::Mutex;

use crate::external_predictor::{ExternalPredictor, ScoreError, ScoreRequest, ScoreResponse};

type Answer = dyn Fn(&ScoreRequest) -> Result<ScoreResponse, ScoreError> + Send + Sync;

/// Answers with a function of the request; by default with the counts after the last call.
pub struct FakeExternalPredictor {
    answer: Mutex<Box<Answer>>,
    n_requests: AtomicUsize,
}

impl std::fmt::Debug for FakeExternalPredictor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FakeExternalPredictor")
            .field("n_requests", &self.n_requests)
            .finish_non_exhaustive()
    }
}

impl FakeExternalPredictor {
    /// Sets the answer to each request.
    pub fn answer_with(
        &self,
        answer: impl Fn(&ScoreRequest) -> Result<ScoreResponse, ScoreError> + Send + Sync + 'static,
    ) {
        *self.answer.lock() = Box::new(answer);
    }

    /// Makes each request fail as if the deadline had passed.
    pub fn be_late(&self) {
        self.answer_with(|_| Err(ScoreError::Late(Duration::from_millis(1))));
    }

    /// Returns the number of requests so far.
    #[must_use]
    pub fn n_requests(&self) -> usize {
        self.n_requests.load(Ordering::SeqCst)
    }
}

impl Default for FakeExternalPredictor {
    fn default() -> Self {
        let by_counts = |request: &ScoreRequest| {
            let score = request.tools.iter().map(|tool| tool.counts.after_last);
            Ok(ScoreResponse::new(request.id, score.collect()))
        };
        Self {
            answer: Mutex::new(Box::new(by_counts)),
            n_requests: AtomicUsize::new(0),
        }
    }
}

#[async_trait]
impl ExternalPredictor for FakeExternalPredictor {
    fn name(&self) -> &'static str {
        "fake"
    }

    async fn score(&self, request: &ScoreRequest) -> Result<ScoreResponse, ScoreError> {
        self.n_requests.fetch_add(1, Ordering::SeqCst);
        let response = (self.answer.lock())(request)?;
        response.check(request)?;
        Ok(response)
    }
}
