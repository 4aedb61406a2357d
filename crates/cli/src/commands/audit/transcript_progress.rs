//! Progress of reading transcripts, on standard error.

use std::cell::Cell;
use std::time::{Duration, Instant};

use riglm_adapters_clients::transcripts::ReadProgress;

use crate::output::ProgressLine;

/// The time after which a reading shows its progress.
const QUIET: Duration = Duration::from_secs(1);
/// The time between two lines where standard error is no terminal.
const LINE_EVERY: Duration = Duration::from_secs(10);

/// One changing line on a terminal, and a line now and then elsewhere.
#[derive(Debug)]
pub(super) struct TranscriptProgress {
    n_bytes: u64,
    line: ProgressLine,
    due: Cell<Instant>,
    is_visible: Cell<bool>,
}

impl TranscriptProgress {
    /// Begins to read transcripts of this size.
    pub(super) fn start(n_bytes: u64) -> Self {
        Self {
            n_bytes,
            line: ProgressLine::new(),
            due: Cell::new(Instant::now() + QUIET),
            is_visible: Cell::new(false),
        }
    }

    /// Prints the progress, if it is due.
    pub(super) fn advance(&self, read: &ReadProgress) {
        let now = Instant::now();
        if now < self.due.get() {
            return;
        }
        let every = if self.line.is_terminal {
            Duration::from_millis(200)
        } else {
            LINE_EVERY
        };
        self.due.set(now + every);
        self.is_visible.set(true);
        let percent = 100 * read.n_bytes / self.n_bytes.max(1);
        let (client, n_files) = (read.client.title(), read.n_files);
        let text = format!("reading transcripts: {percent} %, {n_files} files ({client})");
        self.line.show(&text);
    }

    /// Removes the changing line.
    pub(super) fn end(&self) {
        if self.is_visible.get() {
            self.line.clear();
        }
    }
}
