//! The progress of the demonstration on standard error.

use crate::output::ProgressLine;

#[derive(Debug)]
pub(super) struct Progress {
    line: ProgressLine,
    begun: std::time::Instant,
}

impl Progress {
    pub(super) fn start() -> Self {
        Self {
            line: ProgressLine::new(),
            begun: std::time::Instant::now(),
        }
    }

    pub(super) fn step(&self, text: &str) {
        self.line.show(text);
    }

    /// Shows the number of played sessions and the newest one. Without a terminal, it shows only
    /// some of them.
    pub(super) fn session(&self, n_played: usize, n_all: usize, intent: &str) {
        if self.line.is_terminal {
            let width = 20 * n_played / n_all.max(1);
            let bar = format!("{}{}", "#".repeat(width), ".".repeat(20 - width.min(20)));
            let intent: String = intent.chars().take(46).collect();
            self.step(&format!("[{bar}] {n_played}/{n_all} {intent}"));
        } else if n_played.is_multiple_of(8) || n_played == n_all {
            self.step(&format!("played {n_played} of {n_all} sessions"));
        }
    }

    /// Removes the changing line. Returns the seconds since the start.
    pub(super) fn end(&self) -> f64 {
        self.line.clear();
        self.begun.elapsed().as_secs_f64()
    }
}
