//! Whether records get into the journal, and from there into the database.

use std::error::Error;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use riglm_ports::analytics::JournalCondition;

/// What the journal, its drainer and the recovery of dead runs know of each other's failures.
#[derive(Debug, Default)]
pub(super) struct Condition {
    /// Spares appends the lock while all is well.
    is_refusing: AtomicBool,
    failures: Mutex<Failures>,
}

#[derive(Debug, Default)]
struct Failures {
    /// Why the last record was not appended.
    appending: Option<String>,
    /// Why the records that wait are not applied.
    applying: Option<String>,
}

impl Condition {
    pub(super) fn current(&self) -> JournalCondition {
        let failures = self.failures();
        // What is lost is worse than what waits.
        match failures.appending.as_ref().or(failures.applying.as_ref()) {
            None => JournalCondition::Sound,
            Some(reason) => JournalCondition::Behind {
                reason: reason.clone(),
            },
        }
    }

    /// A record was not appended, or may not survive what it has to.
    pub(super) fn refused(&self, error: &dyn Error) {
        self.failures().appending = Some(one_line(error));
        self.is_refusing.store(true, Ordering::Relaxed);
    }

    /// A record was appended, or could have been.
    pub(super) fn accepted(&self) {
        if self.is_refusing() {
            self.is_refusing.store(false, Ordering::Relaxed);
            self.failures().appending = None;
        }
    }

    /// Returns whether the last record was not appended.
    pub(super) fn is_refusing(&self) -> bool {
        self.is_refusing.load(Ordering::Relaxed)
    }

    /// The records that wait do not become rows now.
    pub(super) fn stuck(&self, reason: String) {
        self.failures().applying = Some(reason);
    }

    /// Records became rows.
    pub(super) fn applied(&self) {
        self.failures().applying = None;
    }

    fn failures(&self) -> MutexGuard<'_, Failures> {
        self.failures.lock().unwrap_or_else(PoisonError::into_inner)
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
    use crate::error::failing;

    fn behind(reason: &str) -> JournalCondition {
        JournalCondition::Behind {
            reason: reason.into(),
        }
    }

    #[test]
    fn the_reason_is_the_error_and_its_sources_in_one_line() {
        let condition = Condition::default();
        condition.refused(&failing("append to the journal")("no\n  space"));
        assert_eq!(
            condition.current(),
            behind("failed to append to the journal: no space")
        );
    }

    #[test]
    fn it_is_sound_when_records_are_both_accepted_and_applied() {
        let condition = Condition::default();
        condition.stuck("locked".into());
        condition.refused(&failing("append")("full"));
        condition.applied();
        assert_eq!(condition.current(), behind("failed to append: full"));
        condition.stuck("locked".into());
        condition.accepted();
        assert_eq!(condition.current(), behind("locked"));
        condition.applied();
        assert_eq!(condition.current(), JournalCondition::Sound);
    }
}
