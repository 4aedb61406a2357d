//! How much a model is asked: each time for so long, so often in a minute, and not for a while after
//! it failed.

use std::collections::VecDeque;
use std::future::Future;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::observer::ModelOutcome;
use tokio::time::Instant;

/// How long a model is left alone after its first failure, and at most.
const FIRST_REST: Duration = Duration::from_secs(10);
const LONGEST_REST: Duration = Duration::from_mins(1);
/// After so many useless answers in a row it is left alone too.
const MAX_NONSENSE: u32 = 3;
/// The time in which requests are counted.
const MINUTE: Duration = Duration::from_mins(1);

/// How much a model is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// How long a search waits for an answer.
    pub deadline: Duration,
    /// The most requests in any minute.
    pub max_per_minute: u32,
}

impl Default for ModelLimits {
    fn default() -> Self {
        Self {
            deadline: Duration::from_secs(2),
            max_per_minute: 30,
        }
    }
}

/// Why a model gave nothing that can be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::search) enum ModelFailure {
    /// It failed before, and was not asked.
    Resting,
    /// There were enough requests in this minute, and it was not asked.
    OverBudget,
    /// It took too long.
    Late,
    /// It cannot be reached, or fails.
    Unavailable,
    /// It, or who decides over it, does not want to.
    Refused,
    /// It answered with something else.
    Nonsense(ModelUsage),
}

impl ModelFailure {
    /// Returns the name under which it is told.
    pub(in crate::search) fn outcome(self) -> ModelOutcome {
        match self {
            Self::Resting => ModelOutcome::Resting,
            Self::OverBudget => ModelOutcome::OverBudget,
            Self::Late => ModelOutcome::Late,
            Self::Unavailable => ModelOutcome::Unavailable,
            Self::Refused => ModelOutcome::Refused,
            Self::Nonsense(_) => ModelOutcome::Nonsense,
        }
    }

    /// Returns what it cost, as far as that is known.
    pub(in crate::search) fn usage(self) -> ModelUsage {
        match self {
            Self::Nonsense(usage) => usage,
            _ => ModelUsage::default(),
        }
    }
}

/// Asks a model within limits. After a failure it is left alone for a while, then one request at a
/// time is a trial; each that fails doubles the time, up to a minute.
#[derive(Debug)]
pub struct ModelGuard {
    limits: ModelLimits,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// When it was asked, of the last minute; the oldest one first.
    asked: VecDeque<Instant>,
    rest: Option<Rest>,
    /// How many useless answers came in a row.
    n_nonsense: u32,
    /// Counts the failures: one that began before another was noted tells nothing new.
    n_failures: u64,
}

#[derive(Clone, Copy, Debug)]
struct Rest {
    length: Duration,
    ends: Instant,
}

impl ModelGuard {
    /// Returns a guard of a model that was not asked yet.
    #[must_use]
    pub fn new(limits: ModelLimits) -> Self {
        Self {
            limits,
            state: Mutex::default(),
        }
    }

    /// Makes a request, unless there is a reason not to.
    pub(in crate::search) async fn run<T>(
        &self,
        request: impl Future<Output = Result<T, ModelCallError>>,
    ) -> Result<T, ModelFailure> {
        let n_failures = self.admit()?;
        match tokio::time::timeout(self.limits.deadline, request).await {
            Ok(Ok(answer)) => {
                let mut state = self.state();
                state.rest = None;
                state.n_nonsense = 0;
                Ok(answer)
            }
            Ok(Err(error)) => {
                let failure = match &error {
                    ModelCallError::Unavailable(_) => ModelFailure::Unavailable,
                    ModelCallError::Late => ModelFailure::Late,
                    ModelCallError::Refused => ModelFailure::Refused,
                    ModelCallError::Nonsense(usage) => ModelFailure::Nonsense(*usage),
                };
                let error = &error as &(dyn std::error::Error + 'static);
                tracing::debug!(error, "a language model gave nothing that can be used");
                self.failed(n_failures, failure);
                Err(failure)
            }
            Err(_) => {
                self.failed(n_failures, ModelFailure::Late);
                Err(ModelFailure::Late)
            }
        }
    }

    /// Takes note of a request that is made now.
    fn admit(&self) -> Result<u64, ModelFailure> {
        let now = Instant::now();
        let mut state = self.state();
        while state.asked.front().is_some_and(|at| now - *at >= MINUTE) {
            state.asked.pop_front();
        }
        if let Some(rest) = &state.rest
            && now < rest.ends
        {
            return Err(ModelFailure::Resting);
        }
        if state.asked.len() >= self.limits.max_per_minute as usize {
            return Err(ModelFailure::OverBudget);
        }
        if let Some(rest) = &mut state.rest {
            // The others wait for this trial.
            rest.ends = now + self.limits.deadline;
        }
        state.asked.push_back(now);
        Ok(state.n_failures)
    }

    fn failed(&self, n_before: u64, failure: ModelFailure) {
        let now = Instant::now();
        let mut state = self.state();
        if state.n_failures != n_before {
            return;
        }
        if let ModelFailure::Nonsense(_) = failure {
            state.n_nonsense += 1;
            // What answers at all is there.
            if state.n_nonsense < MAX_NONSENSE {
                state.rest = None;
                return;
            }
        }
        state.n_failures += 1;
        let length = (state.rest).map_or(FIRST_REST, |rest| (rest.length * 2).min(LONGEST_REST));
        let ends = now + length;
        let is_first = state.rest.replace(Rest { length, ends }).is_none();
        drop(state);
        if is_first {
            let rest_s = length.as_secs();
            tracing::warn!("a language model fails, and is not asked for {rest_s} s: {failure:?}");
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    type Answer = Result<(), ModelCallError>;

    fn guard(max_per_minute: u32) -> ModelGuard {
        ModelGuard::new(ModelLimits {
            max_per_minute,
            ..ModelLimits::default()
        })
    }

    async fn ask(guard: &ModelGuard, answer: Answer) -> Result<(), ModelFailure> {
        guard.run(ready(answer)).await
    }

    fn down() -> Answer {
        Err(ModelCallError::Unavailable("down".into()))
    }

    fn nonsense() -> Answer {
        Err(ModelCallError::Nonsense(ModelUsage::default()))
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_is_waited_for_until_the_deadline() {
        let guard = guard(10);
        let start = Instant::now();
        let late = guard.run(pending::<Answer>()).await;
        assert_eq!(late, Err(ModelFailure::Late));
        assert_eq!(start.elapsed().as_secs(), 2);
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::Resting));
        tokio::time::advance(FIRST_REST).await;
        let gave_up = ask(&guard, Err(ModelCallError::Late)).await;
        assert_eq!(
            gave_up,
            Err(ModelFailure::Late),
            "it has a deadline of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn a_model_that_fails_is_left_alone_longer_and_longer_until_it_answers() {
        let guard = guard(1_000);
        assert_eq!(ask(&guard, down()).await, Err(ModelFailure::Unavailable));
        for seconds in [10, 20, 40, 60, 60] {
            tokio::time::advance(Duration::from_millis(seconds * 1_000 - 1)).await;
            assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::Resting));
            tokio::time::advance(Duration::from_millis(1)).await;
            assert_eq!(ask(&guard, down()).await, Err(ModelFailure::Unavailable));
        }
        tokio::time::advance(Duration::from_mins(1)).await;
        assert_eq!(ask(&guard, Ok(())).await, Ok(()));
        assert_eq!(ask(&guard, Ok(())).await, Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_refusal_is_a_failure_and_so_are_three_useless_answers_in_a_row() {
        let guard = guard(1_000);
        assert_eq!(
            ask(&guard, Err(ModelCallError::Refused)).await,
            Err(ModelFailure::Refused)
        );
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::Resting));
        tokio::time::advance(FIRST_REST).await;
        for _ in 0..2 {
            assert!(ask(&guard, nonsense()).await.is_err());
        }
        assert_eq!(ask(&guard, Ok(())).await, Ok(()), "two are not enough");
        for _ in 0..3 {
            let failure = Err(ModelFailure::Nonsense(ModelUsage::default()));
            assert_eq!(ask(&guard, nonsense()).await, failure);
        }
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::Resting));
    }

    #[tokio::test(start_paused = true)]
    async fn in_no_minute_are_more_requests_than_allowed() {
        let guard = guard(3);
        for _ in 0..3 {
            assert_eq!(ask(&guard, Ok(())).await, Ok(()));
            tokio::time::advance(Duration::from_secs(10)).await;
        }
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::OverBudget));
        tokio::time::advance(Duration::from_millis(29_999)).await;
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::OverBudget));
        tokio::time::advance(Duration::from_millis(1)).await;
        assert_eq!(ask(&guard, Ok(())).await, Ok(()));
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::OverBudget));
    }

    #[tokio::test(start_paused = true)]
    async fn one_request_at_a_time_tries_whether_it_works_again() {
        let guard = guard(1_000);
        let _ = ask(&guard, down()).await;
        tokio::time::advance(FIRST_REST).await;
        let trial = guard.run(pending::<Answer>());
        let other = async {
            tokio::task::yield_now().await;
            ask(&guard, Ok(())).await
        };
        let (trial, other) = tokio::join!(trial, other);
        assert_eq!(trial, Err(ModelFailure::Late));
        assert_eq!(other, Err(ModelFailure::Resting));
    }
}
