//! Circuit breaker for a server.

use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::resilience::{Backoff, CircuitBreaker, Permit};
use tokio::time::Instant;

use super::error::RemoteError;

/// Back-off after failures.
const BACKOFF: Backoff = Backoff::new(Duration::from_secs(10), Duration::from_mins(1));

/// The circuit breaker of one server, shared by its callers.
#[derive(Debug)]
pub(super) struct ServerBreaker {
    breaker: Mutex<CircuitBreaker>,
    /// Source of the jitter, from 0 to 1.
    random: fn() -> f64,
}

impl ServerBreaker {
    /// Returns a breaker for a server whose calls end within `trial`.
    pub(super) fn new(trial: Duration) -> Self {
        Self::with_random(trial, fastrand::f64)
    }

    fn with_random(trial: Duration, random: fn() -> f64) -> Self {
        Self {
            breaker: Mutex::new(CircuitBreaker::new(BACKOFF, trial)),
            random,
        }
    }

    /// Admits a call.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteError::Down`] during the back-off.
    pub(super) fn admit(&self) -> Result<Permit, RemoteError> {
        let admitted = self.breaker.lock().admit(Instant::now().into_std());
        admitted.map_err(|wait| RemoteError::Down { wait })
    }

    /// Records a failed call. Returns whether the server was up before.
    pub(super) fn record_failure(&self, permit: Permit) -> bool {
        let now = Instant::now().into_std();
        self.breaker
            .lock()
            .record_failure(permit, now, (self.random)())
    }

    /// Records an answer. Returns whether the server was down before.
    pub(super) fn record_answer(&self) -> bool {
        self.breaker.lock().record_success()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn the_back_off_follows_the_clock_of_the_runtime() {
        let breaker = ServerBreaker::with_random(SECOND, || 0.0);
        let permit = breaker.admit().unwrap();
        assert!(breaker.record_failure(permit));
        tokio::time::advance(Duration::from_millis(9_999)).await;
        breaker.admit().unwrap_err();
        tokio::time::advance(Duration::from_millis(1)).await;
        let _ = breaker.admit().unwrap();
        assert!(breaker.record_answer());
        assert!(!breaker.record_answer());
    }
}
