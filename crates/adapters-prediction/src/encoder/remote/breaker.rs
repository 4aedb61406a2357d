//! Circuit breaker for a server.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::error::RemoteError;

/// First and longest back-off after a failure.
const FIRST_BACKOFF: Duration = Duration::from_secs(10);
const MAX_BACKOFF: Duration = Duration::from_mins(1);

/// Admits all calls while the server answers. After a failure it admits none during the back-off,
/// then one trial call at a time. Each failed trial doubles the back-off.
#[derive(Debug)]
pub(super) struct CircuitBreaker {
    /// Maximum duration of a trial. After it, the trial counts as cancelled.
    trial: Duration,
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    /// Number of counted failures.
    n_failures: u64,
    /// Back-off after the last failure, or `None` while the server answers.
    pause: Option<Backoff>,
}

#[derive(Clone, Copy, Debug)]
struct Backoff {
    length: Duration,
    ends: Instant,
}

/// Permit for one call.
#[derive(Debug)]
pub(super) struct Ticket {
    /// Number of failures before the call. If it has changed at the end of the call, the call's own
    /// failure does not count.
    n_failures: u64,
}

impl CircuitBreaker {
    /// Returns a breaker for a server whose calls end within `trial`.
    pub(super) fn new(trial: Duration) -> Self {
        Self {
            trial,
            outage: Mutex::default(),
        }
    }

    /// Admits a call.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteError::Down`] during the back-off.
    pub(super) fn admit(&self) -> Result<Ticket, RemoteError> {
        let now = Instant::now();
        let mut outage = self.outage.lock();
        let n_failures = outage.n_failures;
        if let Some(pause) = &mut outage.pause {
            if now < pause.ends {
                let wait = pause.ends - now;
                return Err(RemoteError::Down { wait });
            }
            // Other calls wait for this trial. A cancelled trial needs no clean-up.
            pause.ends = now + self.trial;
        }
        Ok(Ticket { n_failures })
    }

    /// Records a failed call. Returns whether the server was up before.
    pub(super) fn record_failure(&self, ticket: &Ticket) -> bool {
        let now = Instant::now();
        let mut outage = self.outage.lock();
        if ticket.n_failures != outage.n_failures {
            return false;
        }
        outage.n_failures += 1;
        let before = outage.pause;
        let length = before.map_or(FIRST_BACKOFF, |pause| (pause.length * 2).min(MAX_BACKOFF));
        outage.pause = Some(Backoff {
            length,
            ends: now + length,
        });
        before.is_none()
    }

    /// Records an answer. Returns whether the server was down before.
    pub(super) fn record_answer(&self) -> bool {
        self.outage.lock().pause.take().is_some()
    }

    /// Ends the back-off early.
    #[cfg(test)]
    pub(super) fn end_back_off(&self) {
        if let Some(pause) = &mut self.outage.lock().pause {
            pause.ends = Instant::now();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_minute_and_end_with_an_answer() {
        let breaker = CircuitBreaker::new(SECOND);
        let ticket = breaker.admit().unwrap();
        assert!(breaker.record_failure(&ticket));
        for seconds in [10, 20, 40, 60, 60] {
            tokio::time::advance(Duration::from_millis(seconds * 1_000 - 1)).await;
            breaker.admit().unwrap_err();
            tokio::time::advance(Duration::from_millis(1)).await;
            let ticket = breaker.admit().unwrap();
            assert!(!breaker.record_failure(&ticket));
        }
        assert!(breaker.record_answer());
        assert!(!breaker.record_answer());
        let ticket = breaker.admit().unwrap();
        assert!(breaker.record_failure(&ticket));
        tokio::time::advance(SECOND * 10).await;
        breaker.admit().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_tries_and_another_one_when_it_is_given_up() {
        let breaker = CircuitBreaker::new(SECOND);
        let ticket = breaker.admit().unwrap();
        breaker.record_failure(&ticket);
        tokio::time::advance(SECOND * 10).await;
        breaker.admit().unwrap();
        breaker.admit().unwrap_err();
        tokio::time::advance(SECOND).await;
        breaker.admit().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_together_count_once() {
        let breaker = CircuitBreaker::new(SECOND);
        let tickets: Vec<Ticket> = (0..5).map(|_| breaker.admit().unwrap()).collect();
        let n_told = tickets
            .into_iter()
            .filter_map(|ticket| breaker.record_failure(&ticket).then_some(()));
        assert_eq!(n_told.count(), 1);
        tokio::time::advance(SECOND * 10).await;
        breaker.admit().unwrap();
    }
}
