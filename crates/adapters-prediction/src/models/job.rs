//! Progress and cancellation of a running pull.

#[cfg(feature = "model")]
mod output;

use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

#[cfg(feature = "model")]
use self::output::JobOutput;

/// The output of a build without the feature `model`: only pulls have any.
#[cfg(not(feature = "model"))]
#[derive(Debug)]
struct JobOutput;

#[cfg(not(feature = "model"))]
impl JobOutput {
    fn new(_: impl Fn(&str) + Send + Sync + 'static) -> Self {
        Self
    }

    fn with_bar(self) -> Self {
        self
    }
}

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
    output: JobOutput,
    stop: StopSignal,
}

impl fmt::Debug for Job {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Job")
            .field("output", &self.output)
            .field("stop", &self.stop)
            .finish()
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
        let output = JobOutput::new(say);
        let output = if is_terminal {
            output.with_bar()
        } else {
            output
        };
        Self { output, stop }
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
}
