//! A pull while it runs: it tells how far it is, and can be stopped.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

/// How often a line tells of the progress where there is no terminal.
const BETWEEN_LINES: Duration = Duration::from_secs(3);

/// A wish that a job ends early; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Stop(Arc<AtomicBool>);

impl Stop {
    /// Has the job end soon, with an error.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// A job was stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interrupted;

/// What a job says of itself, and whether it should stop.
pub struct Job {
    say: Box<dyn Fn(&str) + Send + Sync>,
    bar: Option<ProgressBar>,
    last_line: Mutex<Option<Instant>>,
    stop: Stop,
}

impl fmt::Debug for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Job")
            .field("has_bar", &self.bar.is_some())
            .field("stop", &self.stop)
            .finish_non_exhaustive()
    }
}

impl Job {
    /// Makes a job that says its lines by `say`, and shows a bar on standard error when that is a
    /// terminal.
    pub fn new(stop: Stop, is_terminal: bool, say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            say: Box::new(say),
            bar: is_terminal.then(bar),
            last_line: Mutex::new(None),
            stop,
        }
    }

    /// Makes a job that says nothing and is not stopped.
    pub fn silent() -> Self {
        Self::new(Stop::default(), false, |_| ())
    }

    /// Returns [`Interrupted`] when the job should stop.
    pub(crate) fn check(&self) -> Result<(), Interrupted> {
        if self.stop.is_requested() {
            Err(Interrupted)
        } else {
            Ok(())
        }
    }

    /// Says a line.
    pub(crate) fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| (self.say)(line)),
            None => (self.say)(line),
        }
    }

    /// Tells how many bytes of `what` are there, of how many where that is known.
    pub(crate) fn progress(&self, what: &str, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            bar.set_length(total.unwrap_or(done).max(done));
            bar.set_position(done);
            return;
        }
        let mut last = self
            .last_line
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let is_due = last.is_none_or(|at| at.elapsed() >= BETWEEN_LINES);
        // The first look only starts the clock: what is done at once needs no line.
        if is_due && last.replace(Instant::now()).is_some() {
            let of = total.map_or(String::new(), |total| format!(" of {}", megabytes(total)));
            (self.say)(&format!("{what}: {}{of}", megabytes(done)));
        }
    }

    /// Removes the bar: what is told next is something else.
    pub(crate) fn progress_ended(&self) {
        if let Some(bar) = &self.bar {
            bar.finish_and_clear();
            bar.reset();
        }
    }
}

fn bar() -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(0), ProgressDrawTarget::stderr());
    let template = "{msg} [{bar:30}] {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left";
    match ProgressStyle::with_template(template) {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}

/// Returns a length in words: `91.3 MB`.
pub(crate) fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}
