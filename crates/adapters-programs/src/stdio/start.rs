//! The starts of programs: how many start at once, and the time of each for its first answer.

use std::num::NonZero;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// The time after which a program that has written nothing no longer counts as starting.
const COUNTS_FOR: Duration = Duration::from_secs(10);
/// The number of starts at once for each core.
const STARTS_PER_CORE: usize = 2;
/// The default time of a program for its first answer.
const DEFAULT_TIME: Duration = Duration::from_mins(2);
/// The time to which repeated timeouts may extend it.
const MAX_TIME: Duration = Duration::from_mins(16);

/// A bound on the programs that start at the same time. Copies have the same bound.
#[derive(Clone, Debug)]
pub struct StartGate(Arc<Semaphore>);

impl StartGate {
    /// Returns a gate for `n` starts at once.
    #[must_use]
    pub fn new(n: usize) -> Self {
        Self(Arc::new(Semaphore::new(n)))
    }

    /// Waits until another program may start. The gate is never closed.
    pub(super) async fn enter(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0).acquire_owned().await.ok()
    }
}

impl Default for StartGate {
    /// Returns a gate for two starts at once for each core.
    fn default() -> Self {
        let n_cores = std::thread::available_parallelism().map_or(1, NonZero::get);
        Self::new(STARTS_PER_CORE * n_cores)
    }
}

/// The time that the processes of one upstream have for their first answer. A process that was
/// ended because it needed longer doubles it for the next one.
#[derive(Debug)]
pub struct StartTime(Mutex<Duration>);

impl StartTime {
    /// Returns this time, until a process needs longer.
    #[must_use]
    pub fn new(time: Duration) -> Self {
        Self(Mutex::new(time))
    }

    /// Returns the time of the next process.
    #[must_use]
    pub fn current(&self) -> Duration {
        *self.0.lock()
    }

    /// Doubles the time, unless another process with this `limit` has done so.
    fn double(&self, limit: Duration) {
        let mut time = self.0.lock();
        if *time == limit {
            *time = limit.max(MAX_TIME.min(2 * limit));
        }
    }
}

impl Default for StartTime {
    fn default() -> Self {
        Self::new(DEFAULT_TIME)
    }
}

/// The start of one process, from the wait for the gate to the first answer.
#[derive(Clone, Debug)]
pub(super) struct Start {
    begun: Instant,
    limit: Duration,
    time: Arc<StartTime>,
    answered: CancellationToken,
}

impl Start {
    /// Begins a start with the present time of the upstream.
    pub(super) fn begin(time: &Arc<StartTime>) -> Self {
        Self {
            begun: Instant::now(),
            limit: time.current(),
            time: Arc::clone(time),
            answered: CancellationToken::new(),
        }
    }

    /// Registers a message of the process.
    pub(super) fn note_answer(&self) {
        // Most messages are not the first one, and a token takes a lock for each cancellation.
        if !self.answered.is_cancelled() {
            self.answered.cancel();
        }
    }

    /// Returns the time that is left; `None` after the first answer.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let is_starting = !self.answered.is_cancelled();
        is_starting.then(|| self.limit.saturating_sub(self.begun.elapsed()))
    }

    /// Registers that the connection was closed. Its user may have measured from a moment before
    /// the start, so the last tenth of the time counts as its end.
    pub(super) fn note_close(&self) {
        if self.time_left().is_some_and(|left| left < self.limit / 10) {
            self.time.double(self.limit);
        }
    }

    /// Keeps the permit while the process counts as starting.
    pub(super) async fn hold(self, permit: Option<OwnedSemaphorePermit>, ended: CancellationToken) {
        tokio::select! {
            () = self.answered.cancelled() => {}
            () = ended.cancelled() => {}
            () = tokio::time::sleep(COUNTS_FOR) => {}
        }
        drop(permit);
    }
}
