//! An observer that records the names of events.

use parking_lot::Mutex;

use crate::observer::{Event, Observer};

/// The most events that are recorded.
const MAX_RECORDED: usize = 100_000;

/// Records the name of every event, in order, up to 100,000. It ignores origins.
#[derive(Debug, Default)]
pub struct RecordingObserver(Mutex<Vec<&'static str>>);

impl RecordingObserver {
    /// Returns the names of the events so far.
    #[must_use]
    pub fn names(&self) -> Vec<&'static str> {
        self.0.lock().clone()
    }
}

impl Observer for RecordingObserver {
    fn observe(&self, event: &Event<'_>) {
        let mut names = self.0.lock();
        if names.len() < MAX_RECORDED {
            names.push(event.as_str());
        }
    }
}
