//! Progress and cancellation of a running pull.

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

/// Interval of progress lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(3);

/// Cancellation token of a job. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct StopSignal(Arc<AtomicBool>);

impl StopSignal {
    /// Requests that the job ends soon, with an error.
    pub fn request(&self) {
        self.0.store(true, Ordering::Relaxed);
    }

    fn is_requested(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}

/// The job was cancelled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("interrupted")]
pub struct Interruption;

/// Output of a job, and its cancellation token.
pub struct Job {
    say: Box<dyn Fn(&str) + Send + Sync>,
    bar: Option<ProgressBar>,
    last_line: Mutex<Option<Instant>>,
    stop: StopSignal,
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
    /// Returns a job that prints lines by `say`, and shows a progress bar on standard error if that
    /// is a terminal.
    pub fn new(
        stop: StopSignal,
        is_terminal: bool,
        say: impl Fn(&str) + Send + Sync + 'static,
    ) -> Self {
        Self {
            say: Box::new(say),
            bar: is_terminal.then(bar),
            last_line: Mutex::new(None),
            stop,
        }
    }

    /// Returns a job without output and cancellation.
    pub fn silent() -> Self {
        Self::new(StopSignal::default(), false, |_| ())
    }

    /// Returns [`Interruption`] if the job was cancelled.
    pub(crate) fn check(&self) -> Result<(), Interruption> {
        if self.stop.is_requested() {
            Err(Interruption)
        } else {
            Ok(())
        }
    }

    pub(crate) fn print_line(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| (self.say)(line)),
            None => (self.say)(line),
        }
    }

    /// Reports the number of bytes of `what` that are done, and the total if known.
    pub(crate) fn progress(&self, what: &str, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.bar {
            bar.set_message(what.to_owned());
            bar.set_length(total.unwrap_or(done).max(done));
            bar.set_position(done);
            return;
        }
        let mut last = self.last_line.lock();
        let is_due = last.is_none_or(|at| at.elapsed() >= LINE_INTERVAL);
        // The first call only starts the clock, so that a quick job prints no line.
        if is_due && last.replace(Instant::now()).is_some() {
            let of = total.map_or(String::new(), |total| format!(" of {}", megabytes(total)));
            (self.say)(&format!("{what}: {}{of}", megabytes(done)));
        }
    }

    /// Removes the progress bar before other output.
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

/// Formats a size: `91.3 MB`.
pub(crate) fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}
