//! A circuit breaker: after a failure calls stop for a while, then one call at a time is a trial.

use std::time::{Duration, Instant};

use super::{Backoff, FailureStreak};

/// Decides whether a service that may be failing is called.
///
/// Closed, it admits every call. The failure of a call opens it for the wait of its [`Backoff`]; then
/// it is half open and admits one call as a trial. A trial that fails opens it for longer; any success
/// closes it. A trial without an outcome counts as given up after `trial`. Calls that were admitted
/// together and fail together count as one failure.
///
/// # Examples
///
/// ```
/// use std::time::{Duration, Instant};
/// use riglm_domain::resilience::{Backoff, CircuitBreaker};
///
/// let second = Duration::from_secs(1);
/// let mut breaker = CircuitBreaker::new(Backoff::new(10 * second, 60 * second), second);
/// let now = Instant::now();
/// let permit = breaker.admit(now).unwrap();
/// breaker.record_failure(permit, now, 0.0);
/// assert_eq!(breaker.admit(now), Err(10 * second));
/// let permit = breaker.admit(now + 10 * second).unwrap();
/// breaker.record_success();
/// assert!(breaker.admit(now + 10 * second).is_ok());
/// ```
#[derive(Clone, Debug)]
pub struct CircuitBreaker {
    /// The failures since the last success.
    streak: FailureStreak,
    /// The longest that a trial takes.
    trial: Duration,
    /// All failures that counted. A call that began before another failure was counted tells nothing
    /// new when it fails too.
    n_failures: u64,
    /// The time of the next trial, while the breaker is open.
    next_trial: Option<Instant>,
}

/// The permission to make one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Permit {
    n_failures: u64,
}

impl CircuitBreaker {
    /// Returns a closed breaker. `trial` is the longest that one call takes.
    #[must_use]
    pub const fn new(backoff: Backoff, trial: Duration) -> Self {
        Self {
            streak: FailureStreak::new(backoff),
            trial,
            n_failures: 0,
            next_trial: None,
        }
    }

    /// Returns the time until the next trial while the breaker is open; `None` when a call would be
    /// admitted.
    #[must_use]
    pub fn wait(&self, now: Instant) -> Option<Duration> {
        self.next_trial
            .and_then(|next| next.checked_duration_since(now))
            .filter(|wait| !wait.is_zero())
    }

    /// Admits a call.
    ///
    /// # Errors
    ///
    /// Returns the time until the next trial while the breaker is open.
    pub fn admit(&mut self, now: Instant) -> Result<Permit, Duration> {
        if let Some(wait) = self.wait(now) {
            return Err(wait);
        }
        if self.is_open() {
            // Others wait for this trial. A caller that drops its call leaves no trace.
            self.next_trial = Some(now + self.trial);
        }
        Ok(Permit {
            n_failures: self.n_failures,
        })
    }

    /// Returns whether no failure was counted since the permit was given.
    #[must_use]
    pub const fn is_current(&self, permit: Permit) -> bool {
        permit.n_failures == self.n_failures
    }

    /// Notes that an admitted call failed. Returns whether this opened a breaker that was closed.
    ///
    /// `random` is the random number of [`Backoff::delay`].
    pub fn record_failure(&mut self, permit: Permit, now: Instant, random: f64) -> bool {
        if !self.is_current(permit) {
            return false;
        }
        let was_closed = self.next_trial.is_none();
        self.n_failures += 1;
        self.next_trial = Some(now + self.streak.record_failure(random));
        was_closed
    }

    /// Notes that a call succeeded. Returns whether this closed a breaker that was open.
    pub fn record_success(&mut self) -> bool {
        self.streak.reset();
        self.next_trial.take().is_some()
    }

    /// Returns whether the breaker is open, or waits for the outcome of a trial.
    #[must_use]
    pub const fn is_open(&self) -> bool {
        self.next_trial.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn breaker() -> CircuitBreaker {
        let backoff = Backoff::new(10 * SECOND, 60 * SECOND);
        CircuitBreaker::new(backoff, SECOND)
    }

    #[test]
    fn waits_grow_to_the_maximum_and_end_with_a_success() {
        let mut breaker = breaker();
        let mut now = Instant::now();
        let permit = breaker.admit(now).unwrap();
        assert!(breaker.record_failure(permit, now, 0.0));
        for seconds in [10, 20, 40, 60, 60] {
            let wait = Duration::from_secs(seconds);
            assert_eq!(breaker.admit(now), Err(wait));
            now += wait;
            let permit = breaker.admit(now).unwrap();
            assert!(!breaker.record_failure(permit, now, 0.0));
        }
        assert!(breaker.record_success());
        assert!(!breaker.record_success());
        assert!(!breaker.is_open());
        let permit = breaker.admit(now).unwrap();
        assert!(breaker.record_failure(permit, now, 0.0));
        assert_eq!(breaker.admit(now), Err(10 * SECOND));
    }

    #[test]
    fn an_open_breaker_admits_one_trial_at_a_time() {
        let mut breaker = breaker();
        let now = Instant::now();
        let permit = breaker.admit(now).unwrap();
        let _ = breaker.record_failure(permit, now, 0.0);
        let trial = now + 10 * SECOND;
        assert!(breaker.admit(trial).is_ok());
        assert_eq!(breaker.admit(trial), Err(SECOND));
        assert!(breaker.admit(trial + SECOND).is_ok());
    }

    #[test]
    fn concurrent_failures_count_once() {
        let mut breaker = breaker();
        let now = Instant::now();
        let permits: Vec<Permit> = (0..5).map(|_| breaker.admit(now).unwrap()).collect();
        let n_opened = permits
            .into_iter()
            .filter(|permit| breaker.record_failure(*permit, now, 0.0))
            .count();
        assert_eq!(n_opened, 1);
        assert_eq!(breaker.admit(now), Err(10 * SECOND));
    }
}
