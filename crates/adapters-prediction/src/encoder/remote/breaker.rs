//! When a server that failed is asked again.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;

use super::error::RemoteError;

/// How long a server is left alone after its first failure, and at most.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// Lets calls through while the server answers. After a failure it lets none through for a pause,
/// then one at a time as a trial; each trial that fails doubles the pause.
#[derive(Debug)]
pub(super) struct Breaker {
    /// How long a trial can take, after which it counts as given up.
    trial: Duration,
    outage: Mutex<Outage>,
}

#[derive(Debug, Default)]
struct Outage {
    /// How many failures have counted so far.
    n_failures: u64,
    /// The pause since the last failure; `None` while the server answers.
    pause: Option<Pause>,
}

#[derive(Clone, Copy, Debug)]
struct Pause {
    length: Duration,
    ends: Instant,
}

/// The permission to make one call.
#[derive(Debug)]
pub(super) struct Ticket {
    /// The failures before the call: when there were more meanwhile, its own tells nothing new.
    n_failures: u64,
}

impl Breaker {
    /// Returns a breaker for a server whose calls end within `trial`.
    pub(super) fn new(trial: Duration) -> Self {
        Self {
            trial,
            outage: Mutex::default(),
        }
    }

    /// Lets a call through.
    ///
    /// # Errors
    ///
    /// Returns [`RemoteError::Down`] when the server is to be left alone.
    pub(super) fn admit(&self) -> Result<Ticket, RemoteError> {
        let now = Instant::now();
        let mut outage = self.outage();
        let n_failures = outage.n_failures;
        if let Some(pause) = &mut outage.pause {
            if now < pause.ends {
                let wait = pause.ends - now;
                return Err(RemoteError::Down { wait });
            }
            // The others wait for this trial; a caller who drops it leaves no trace.
            pause.ends = now + self.trial;
        }
        Ok(Ticket { n_failures })
    }

    /// Notes that a call failed; returns whether the server answered until then.
    pub(super) fn failed(&self, ticket: &Ticket) -> bool {
        let now = Instant::now();
        let mut outage = self.outage();
        if ticket.n_failures != outage.n_failures {
            return false;
        }
        outage.n_failures += 1;
        let before = outage.pause;
        let length = before.map_or(FIRST_PAUSE, |pause| (pause.length * 2).min(LONGEST_PAUSE));
        outage.pause = Some(Pause {
            length,
            ends: now + length,
        });
        before.is_none()
    }

    /// Notes that the server answered; returns whether it was down until then.
    pub(super) fn answered(&self) -> bool {
        self.outage().pause.take().is_some()
    }

    /// Ends the pause, as time does.
    #[cfg(test)]
    pub(super) fn end_pause(&self) {
        if let Some(pause) = &mut self.outage().pause {
            pause.ends = Instant::now();
        }
    }

    fn outage(&self) -> MutexGuard<'_, Outage> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn pauses_grow_to_a_minute_and_end_with_an_answer() {
        let breaker = Breaker::new(SECOND);
        let ticket = breaker.admit().unwrap();
        assert!(breaker.failed(&ticket));
        for seconds in [10, 20, 40, 60, 60] {
            tokio::time::advance(Duration::from_millis(seconds * 1_000 - 1)).await;
            breaker.admit().unwrap_err();
            tokio::time::advance(Duration::from_millis(1)).await;
            let ticket = breaker.admit().unwrap();
            assert!(!breaker.failed(&ticket));
        }
        assert!(breaker.answered());
        assert!(!breaker.answered());
        let ticket = breaker.admit().unwrap();
        assert!(breaker.failed(&ticket));
        tokio::time::advance(SECOND * 10).await;
        breaker.admit().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn one_call_tries_and_another_one_when_it_is_given_up() {
        let breaker = Breaker::new(SECOND);
        let ticket = breaker.admit().unwrap();
        breaker.failed(&ticket);
        tokio::time::advance(SECOND * 10).await;
        breaker.admit().unwrap();
        breaker.admit().unwrap_err();
        tokio::time::advance(SECOND).await;
        breaker.admit().unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn calls_that_fail_together_count_once() {
        let breaker = Breaker::new(SECOND);
        let tickets: Vec<Ticket> = (0..5).map(|_| breaker.admit().unwrap()).collect();
        let n_told = tickets
            .into_iter()
            .filter_map(|ticket| breaker.failed(&ticket).then_some(()));
        assert_eq!(n_told.count(), 1);
        tokio::time::advance(SECOND * 10).await;
        breaker.admit().unwrap();
    }
}
