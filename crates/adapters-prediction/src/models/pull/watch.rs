//! Watchdog: runs a task on a thread of its own, and abandons it when it makes no progress.
//!
//! The client of the hub has no timeouts, and may panic on an unexpected response. Neither may
//! block or end the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::models::job::{Interruption, Job};

/// Interval of the checks.
pub(super) const CHECK_INTERVAL: Duration = Duration::from_millis(100);

/// A number that changes with the progress of a task.
#[derive(Clone, Debug, Default)]
pub(super) struct Pulse(Arc<AtomicU64>);

impl Pulse {
    pub(super) fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    pub(super) fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    pub(super) fn add(&self, value: u64) {
        self.0.fetch_add(value, Ordering::Relaxed);
    }
}

/// The reason why a task has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HaltReason {
    /// The job was cancelled.
    #[error(transparent)]
    Interrupted(#[from] Interruption),
    /// There was no progress for this long.
    #[error("no data for {} seconds", .0.as_secs())]
    Stalled(Duration),
    /// The task panicked.
    #[error("failed to process the answer")]
    Crashed,
}

/// Measures how long a value has not changed.
#[derive(Debug)]
pub(super) struct StallDetector {
    limit: Duration,
    seen: u64,
    since: Instant,
}

impl StallDetector {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            seen: 0,
            since: Instant::now(),
        }
    }

    /// Returns [`HaltReason::Stalled`] if `value` has been the same for too long.
    pub(super) fn check(&mut self, value: u64) -> Result<(), HaltReason> {
        if value != self.seen {
            self.seen = value;
            self.since = Instant::now();
        }
        if self.since.elapsed() >= self.limit {
            return Err(HaltReason::Stalled(self.limit));
        }
        Ok(())
    }
}

/// Runs `work` on a thread of its own. Waits for it as long as `pulse` changes at least once in
/// `limit`. `look` is called with the pulse at intervals.
///
/// # Errors
///
/// Returns [`HaltReason`] when the job is cancelled, or when the work stalls or panics. The thread may
/// continue then, so it must be harmless.
pub(super) fn run_watched<T: Send + 'static>(
    job: &Job,
    limit: Duration,
    pulse: &Pulse,
    work: impl FnOnce() -> T + Send + 'static,
    look: impl Fn(u64),
) -> Result<T, HaltReason> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        // The receiver is gone if the work was abandoned.
        let _ = sender.send(work());
    });
    let mut stillness = StallDetector::new(limit);
    loop {
        match receiver.recv_timeout(CHECK_INTERVAL) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(HaltReason::Crashed),
            Err(RecvTimeoutError::Timeout) => {}
        }
        job.check()?;
        stillness.check(pulse.get())?;
        look(pulse.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::job::StopSignal;

    const SHORT: Duration = Duration::from_millis(300);

    fn sleep(time: Duration) -> impl FnOnce() {
        move || thread::sleep(time)
    }

    #[test]
    fn stalled_panicking_and_stopped_work_is_given_up() {
        let job = Job::silent();
        let long = Duration::from_secs(20);
        let start = Instant::now();
        let stalled = run_watched(&job, SHORT, &Pulse::default(), sleep(long), |_| ());
        assert_eq!(stalled, Err(HaltReason::Stalled(SHORT)));
        let crashed = run_watched(&job, long, &Pulse::default(), || panic!("odd"), |_| ());
        assert_eq!(crashed, Err::<(), _>(HaltReason::Crashed));
        let stop = StopSignal::default();
        stop.request();
        let stopped = Job::new(stop, false, |_| ());
        let interrupted = run_watched(&stopped, long, &Pulse::default(), sleep(long), |_| ());
        assert_eq!(interrupted, Err(HaltReason::Interrupted(Interruption)));
        assert!(start.elapsed() < long);
    }

    #[test]
    fn slow_work_with_progress_runs_to_its_end() {
        let pulse = Pulse::default();
        let beat = pulse.clone();
        let work = move || {
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(100));
                beat.add(1);
            }
            7
        };
        assert_eq!(
            run_watched(&Job::silent(), SHORT, &pulse, work, |_| ()),
            Ok(7)
        );
    }
}
