//! A journal that may lose records: it counts the refused ones and logs the first.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{Journal, JournalCondition};

/// A journal that counts its losses.
#[derive(Debug)]
pub(super) struct LossyJournal {
    journal: Arc<dyn Journal>,
    n_lost: AtomicU64,
    is_failing: AtomicBool,
}

impl LossyJournal {
    pub(super) fn new(journal: Arc<dyn Journal>) -> Self {
        Self {
            journal,
            n_lost: AtomicU64::new(0),
            is_failing: AtomicBool::new(false),
        }
    }

    pub(super) fn n_lost(&self) -> u64 {
        self.n_lost.load(Ordering::Relaxed)
    }

    /// Returns whether records become rows at present.
    pub(super) fn is_sound(&self) -> bool {
        self.journal.condition() == JournalCondition::Sound
    }

    /// Appends a record and returns whether the journal took it. Logs only the first of several
    /// refusals.
    pub(super) async fn append(&self, record: &Record) -> bool {
        self.append_all(std::slice::from_ref(record)).await
    }

    /// Appends records and returns whether the journal took all of them.
    pub(super) async fn append_all(&self, records: &[Record]) -> bool {
        match self.journal.append_all(records).await {
            Ok(()) => {
                if self.is_failing.swap(false, Ordering::Relaxed) {
                    tracing::info!(
                        records.lost = self.n_lost(),
                        "recording works again; lost {} records since the start",
                        self.n_lost()
                    );
                }
                true
            }
            Err(error) => {
                (self.n_lost).fetch_add(records.len() as u64, Ordering::Relaxed);
                if !self.is_failing.swap(true, Ordering::Relaxed) {
                    tracing::error!(
                        error = &error as &dyn std::error::Error,
                        "recording failed, records are lost: {error}"
                    );
                }
                false
            }
        }
    }
}
