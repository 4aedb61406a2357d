//! Limits on requests to a model: a deadline, a rate limit, and a back-off after failures.

use std::collections::VecDeque;
use std::future::Future;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::resilience::{Backoff, CircuitBreaker, Permit};
use riglm_ports::model_call::{ModelCallError, ModelUsage};
use riglm_ports::observer::ModelOutcome;
use tokio::time::Instant;

/// The first back-off.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const BACKOFF: Backoff = Backoff::new(FIRST_BACKOFF, Duration::from_mins(1));
/// After this many unusable answers in a row, the back-off starts.
const MAX_UNUSABLE: u32 = 3;
/// The window of the rate limit.
const MINUTE: Duration = Duration::from_mins(1);

/// Limits of requests to a model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModelLimits {
    /// Timeout of a request.
    pub deadline: Duration,
    /// Maximum number of requests in any minute.
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

/// The reason why a model gave no usable answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::search) enum ModelFailure {
    /// The model is in back-off, and there was no request.
    Resting,
    /// The rate limit was reached, and there was no request.
    OverBudget,
    /// The deadline passed.
    Late,
    /// The model cannot be reached, or it fails.
    Unavailable,
    /// The model, or the user of the client, refused the request.
    Refused,
    /// The answer cannot be used.
    Nonsense(ModelUsage),
}

impl ModelFailure {
    /// Returns the outcome as it is reported to observers.
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

    /// Returns the usage of the failed request, if known.
    pub(in crate::search) fn usage(self) -> ModelUsage {
        match self {
            Self::Nonsense(usage) => usage,
            _ => ModelUsage::default(),
        }
    }
}

/// Guard of a model: rate limit, deadline and circuit breaker. After a failure it blocks requests
/// for a back-off period. It then allows one trial request at a time. Each failed trial doubles the
/// period, up to a minute.
#[derive(Debug)]
pub struct ModelGuard {
    limits: ModelLimits,
    state: Mutex<GuardState>,
}

#[derive(Debug)]
struct GuardState {
    /// Times of the requests in the last minute, oldest first.
    asked: VecDeque<Instant>,
    breaker: CircuitBreaker,
    /// Number of consecutive unusable answers.
    n_nonsense: u32,
    /// Source of the jitter of the back-off, from 0 to 1.
    random: fn() -> f64,
}

impl ModelGuard {
    /// Returns a guard without any requests so far.
    #[must_use]
    pub fn new(limits: ModelLimits) -> Self {
        Self {
            limits,
            state: Mutex::new(GuardState {
                asked: VecDeque::new(),
                breaker: CircuitBreaker::new(BACKOFF, limits.deadline),
                n_nonsense: 0,
                random: fastrand::f64,
            }),
        }
    }

    /// Makes a request, unless the back-off or the rate limit blocks it.
    pub(in crate::search) async fn run<T>(
        &self,
        request: impl Future<Output = Result<T, ModelCallError>>,
    ) -> Result<T, ModelFailure> {
        let permit = self.admit()?;
        match tokio::time::timeout(self.limits.deadline, request).await {
            Ok(Ok(answer)) => {
                let mut state = self.state.lock();
                state.breaker.record_success();
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
                tracing::debug!(error, "language model call failed");
                self.record_failure(permit, failure);
                Err(failure)
            }
            Err(_) => {
                self.record_failure(permit, ModelFailure::Late);
                Err(ModelFailure::Late)
            }
        }
    }

    /// Admits a request.
    fn admit(&self) -> Result<Permit, ModelFailure> {
        let now = Instant::now();
        let mut state = self.state.lock();
        while state.asked.front().is_some_and(|at| now - *at >= MINUTE) {
            state.asked.pop_front();
        }
        if state.breaker.wait(now.into_std()).is_some() {
            return Err(ModelFailure::Resting);
        }
        if state.asked.len() >= self.limits.max_per_minute as usize {
            return Err(ModelFailure::OverBudget);
        }
        let permit = (state.breaker.admit(now.into_std())).map_err(|_| ModelFailure::Resting)?;
        state.asked.push_back(now);
        Ok(permit)
    }

    fn record_failure(&self, permit: Permit, failure: ModelFailure) {
        let now = Instant::now().into_std();
        let mut state = self.state.lock();
        // Requests that ran at the same time as a counted failure have the same cause.
        if !state.breaker.is_current(permit) {
            return;
        }
        if let ModelFailure::Nonsense(_) = failure {
            state.n_nonsense += 1;
            // A model that answers at all is available.
            if state.n_nonsense < MAX_UNUSABLE {
                state.breaker.record_success();
                return;
            }
        }
        let random = (state.random)();
        let is_first = state.breaker.record_failure(permit, now, random);
        let wait = state.breaker.wait(now).unwrap_or_default();
        drop(state);
        if is_first {
            let wait_s = wait.as_secs_f64();
            tracing::warn!("language model call failed, back-off of {wait_s:.1} s: {failure:?}");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    type Answer = Result<(), ModelCallError>;

    fn guard(max_per_minute: u32) -> ModelGuard {
        let guard = ModelGuard::new(ModelLimits {
            max_per_minute,
            ..ModelLimits::default()
        });
        guard.state.lock().random = || 0.0;
        guard
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
    async fn requests_without_an_answer_end_at_the_deadline() {
        let guard = guard(10);
        let start = Instant::now();
        let late = guard.run(pending::<Answer>()).await;
        assert_eq!(late, Err(ModelFailure::Late));
        assert_eq!(start.elapsed().as_secs(), 2);
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::Resting));
        tokio::time::advance(FIRST_BACKOFF).await;
        let gave_up = ask(&guard, Err(ModelCallError::Late)).await;
        assert_eq!(
            gave_up,
            Err(ModelFailure::Late),
            "it has a deadline of its own"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_model_failures_grow_the_back_off() {
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
    async fn a_refusal_or_three_useless_answers_start_the_back_off() {
        let guard = guard(1_000);
        assert_eq!(
            ask(&guard, Err(ModelCallError::Refused)).await,
            Err(ModelFailure::Refused)
        );
        assert_eq!(ask(&guard, Ok(())).await, Err(ModelFailure::Resting));
        tokio::time::advance(FIRST_BACKOFF).await;
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
    async fn requests_per_minute_are_limited() {
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
    async fn only_one_trial_request_is_sent_after_the_back_off() {
        let guard = guard(1_000);
        let _ = ask(&guard, down()).await;
        tokio::time::advance(FIRST_BACKOFF).await;
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
