//! The output of a pull: lines, and a progress bar.

use std::fmt;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use parking_lot::Mutex;

use super::Job;

/// Interval of progress lines without a terminal.
const LINE_INTERVAL: Duration = Duration::from_secs(3);

/// The output of a job.
pub(super) struct JobOutput {
    say: Box<dyn Fn(&str) + Send + Sync>,
    bar: Option<ProgressBar>,
    last_line: Mutex<Option<Instant>>,
}

impl JobOutput {
    /// Returns an output that prints lines by `say`.
    pub(super) fn new(say: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self {
            say: Box::new(say),
            bar: None,
            last_line: Mutex::new(None),
        }
    }

    /// Adds a progress bar on standard error.
    pub(super) fn with_bar(self) -> Self {
        Self {
            bar: Some(bar()),
            ..self
        }
    }
}

impl fmt::Debug for JobOutput {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("JobOutput")
            .field("has_bar", &self.bar.is_some())
            .finish_non_exhaustive()
    }
}

impl Job {
    pub(crate) fn print_line(&self, line: &str) {
        match &self.output.bar {
            Some(bar) => bar.suspend(|| (self.output.say)(line)),
            None => (self.output.say)(line),
        }
    }

    /// Reports the number of bytes of `what` that are done, and the total if known.
    pub(crate) fn progress(&self, what: &str, done: u64, total: Option<u64>) {
        if let Some(bar) = &self.output.bar {
            bar.set_message(what.to_owned());
            bar.set_length(total.unwrap_or(done).max(done));
            bar.set_position(done);
            return;
        }
        let mut last = self.output.last_line.lock();
        let is_due = last.is_none_or(|at| at.elapsed() >= LINE_INTERVAL);
        // The first call only starts the clock, so that a quick job prints no line.
        if is_due && last.replace(Instant::now()).is_some() {
            let of = total.map_or(String::new(), |total| format!(" of {}", megabytes(total)));
            (self.output.say)(&format!("{what}: {}{of}", megabytes(done)));
        }
    }

    /// Removes the progress bar before other output.
    pub(crate) fn progress_ended(&self) {
        if let Some(bar) = &self.output.bar {
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
fn megabytes(bytes: u64) -> String {
    let tenths = bytes / 100_000;
    format!("{}.{} MB", tenths / 10, tenths % 10)
}
