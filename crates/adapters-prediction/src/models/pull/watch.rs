//! Work on a thread of its own, which is given up when it stands still.
//!
//! The client of the hub has no deadlines, and may fail an assertion on an answer that it does not
//! expect. Neither may hold up or end the command.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::thread;
use std::time::{Duration, Instant};

use crate::models::job::{Interrupted, Job};

/// How often the work is looked at.
pub(super) const LOOK: Duration = Duration::from_millis(100);

/// A number that changes while work goes on.
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

/// Why work has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Halted {
    /// It was stopped.
    #[error(transparent)]
    Interrupted(#[from] Interrupted),
    /// Nothing happened for this long.
    #[error("nothing came for {} seconds", .0.as_secs())]
    Stalled(Duration),
    /// It failed in a way that it does not tell.
    #[error("the answer was not understood")]
    Crashed,
}

/// Sees how long something stands still.
#[derive(Debug)]
pub(super) struct Stillness {
    limit: Duration,
    seen: u64,
    since: Instant,
}

impl Stillness {
    pub(super) fn new(limit: Duration) -> Self {
        Self {
            limit,
            seen: 0,
            since: Instant::now(),
        }
    }

    /// Returns [`Halted::Stalled`] when `value` has been the same for too long.
    pub(super) fn look(&mut self, value: u64) -> Result<(), Halted> {
        if value != self.seen {
            self.seen = value;
            self.since = Instant::now();
        }
        if self.since.elapsed() >= self.limit {
            return Err(Halted::Stalled(self.limit));
        }
        Ok(())
    }
}

/// Does `work` on a thread of its own and waits for it as long as `pulse` changes at least once in
/// `limit`; `look` is called with the pulse meanwhile.
///
/// # Errors
///
/// Returns [`Halted`] when it is stopped, stands still or panics. The thread may live on then; it
/// must do no harm.
pub(super) fn watched<T: Send + 'static>(
    job: &Job,
    limit: Duration,
    pulse: &Pulse,
    work: impl FnOnce() -> T + Send + 'static,
    look: impl Fn(u64),
) -> Result<T, Halted> {
    let (sender, receiver) = sync_channel(1);
    thread::spawn(move || {
        // Nobody waits for the result of work that was given up.
        let _ = sender.send(work());
    });
    let mut stillness = Stillness::new(limit);
    loop {
        match receiver.recv_timeout(LOOK) {
            Ok(result) => return Ok(result),
            Err(RecvTimeoutError::Disconnected) => return Err(Halted::Crashed),
            Err(RecvTimeoutError::Timeout) => {}
        }
        job.check()?;
        stillness.look(pulse.get())?;
        look(pulse.get());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::models::job::Stop;

    const SHORT: Duration = Duration::from_millis(300);

    fn sleep(time: Duration) -> impl FnOnce() {
        move || thread::sleep(time)
    }

    #[test]
    fn work_that_stands_still_panics_or_is_stopped_is_given_up() {
        let job = Job::silent();
        let long = Duration::from_secs(20);
        let start = Instant::now();
        let stalled = watched(&job, SHORT, &Pulse::default(), sleep(long), |_| ());
        assert_eq!(stalled, Err(Halted::Stalled(SHORT)));
        let crashed = watched(&job, long, &Pulse::default(), || panic!("odd"), |_| ());
        assert_eq!(crashed, Err::<(), _>(Halted::Crashed));
        let stop = Stop::default();
        stop.request();
        let stopped = Job::new(stop, false, |_| ());
        let interrupted = watched(&stopped, long, &Pulse::default(), sleep(long), |_| ());
        assert_eq!(interrupted, Err(Halted::Interrupted(Interrupted)));
        assert!(start.elapsed() < long);
    }

    #[test]
    fn slow_work_that_goes_on_is_waited_for() {
        let pulse = Pulse::default();
        let beat = pulse.clone();
        let work = move || {
            for _ in 0..8 {
                thread::sleep(Duration::from_millis(100));
                beat.add(1);
            }
            7
        };
        assert_eq!(watched(&Job::silent(), SHORT, &pulse, work, |_| ()), Ok(7));
    }
}
