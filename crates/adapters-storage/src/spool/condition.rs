//! The condition of the journal: failures of appending and of applying records.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use riglm_ports::analytics::JournalCondition;

/// The current failures of the journal, its drainer and the recovery of dead runs.
#[derive(Debug, Default)]
pub(super) struct SpoolCondition {
    /// Saves appends the lock while there is no failure.
    is_refusing: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    /// The reason why the last record was not appended.
    appending: Option<String>,
    /// The reason why waiting records are not applied.
    applying: Option<String>,
}

impl SpoolCondition {
    pub(super) fn current(&self) -> JournalCondition {
        let failures = self.failures.lock();
        // A loss is worse than a delay, so it is reported first.
        match failures.appending.as_ref().or(failures.applying.as_ref()) {
            None => JournalCondition::Sound,
            Some(reason) => JournalCondition::Behind {
                reason: reason.clone(),
            },
        }
    }

    /// Reports that a record was not appended, or may not have the configured durability.
    pub(super) fn set_append_failure(&self, error: &dyn Error) {
        self.failures.lock().appending = Some(one_line(error));
        self.is_refusing.store(true, Ordering::Relaxed);
    }

    /// Reports that a record was appended, or could be.
    pub(super) fn clear_append_failure(&self) {
        if self.is_refusing() {
            self.is_refusing.store(false, Ordering::Relaxed);
            self.failures.lock().appending = None;
        }
    }

    /// Returns whether the last record was not appended.
    pub(super) fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Relaxed)
    }

    /// Reports that waiting records do not become rows now.
    pub(super) fn set_apply_failure(&self, reason: String) {
        self.failures.lock().applying = Some(reason);
    }

    pub(super) fn clear_apply_failure(&self) {
        self.failures.lock().applying = None;
    }
}

/// Returns an error and its sources as one line.
pub(super) fn one_line(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::operation_error;

    fn behind(reason: &str) -> JournalCondition {
        JournalCondition::Behind {
            reason: reason.into(),
        }
    }

    #[test]
    fn the_reason_is_the_error_and_its_sources_in_one_line() {
        let condition = SpoolCondition::default();
        condition.set_append_failure(&operation_error("append to the journal")("no\n  space"));
        assert_eq!(
            condition.current(),
            behind("failed to append to the journal: no space")
        );
    }

    #[test]
    fn journal_is_sound_only_when_appending_and_applying_succeed() {
        let condition = SpoolCondition::default();
        condition.set_apply_failure("locked".into());
        condition.set_append_failure(&operation_error("append")("full"));
        condition.clear_apply_failure();
        assert_eq!(condition.current(), behind("failed to append: full"));
        condition.set_apply_failure("locked".into());
        condition.clear_append_failure();
        assert_eq!(condition.current(), behind("locked"));
        condition.clear_apply_failure();
        assert_eq!(condition.current(), JournalCondition::Sound);
    }
}
