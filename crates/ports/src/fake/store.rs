//! A usage store in memory.

mod agreed;
mod client_data;
mod decided;
mod experiments;
mod learned;
mod list_activity;
mod maintenance;
mod reading;
mod rows;
mod stored;
mod usage;

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use async_trait::async_trait;
use riglm_domain::record::Record;

use self::rows::Rows;
use crate::analytics::{Journal, JournalCondition, MaintenanceTask, RecordSink, StoreError};

/// The whole store in memory. As a journal it applies each record at once. Counts are made anew
/// from all rows at each question.
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: Mutex<Rows>,
    tasks: Arc<Mutex<HashSet<MaintenanceTask>>>,
    is_failing: AtomicBool,
}

impl MemoryStore {
    /// Makes every write fail from now on; reading goes on.
    pub fn start_failing(&self) {
        self.is_failing.store(true, Ordering::SeqCst);
    }

    /// Takes writes again.
    pub fn stop_failing(&self) {
        self.is_failing.store(false, Ordering::SeqCst);
    }

    /// Returns every record that was taken, in order, repetitions included.
    pub fn records(&self) -> Vec<Record> {
        self.rows().records.clone()
    }

    fn rows(&self) -> MutexGuard<'_, Rows> {
        self.rows.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the rows to change them, unless the store was told to fail.
    fn writing(&self) -> Result<MutexGuard<'_, Rows>, StoreError> {
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(StoreError::Failed {
                operation: "write to the failing store",
                source: "it was told to fail".into(),
            });
        }
        Ok(self.rows())
    }
}

#[async_trait]
impl Journal for MemoryStore {
    async fn append(&self, record: &Record) -> Result<(), StoreError> {
        self.writing()?.apply(record);
        Ok(())
    }

    fn condition(&self) -> JournalCondition {
        if self.is_failing.load(Ordering::SeqCst) {
            JournalCondition::Behind {
                reason: "it was told to fail".into(),
            }
        } else {
            JournalCondition::Sound
        }
    }
}

#[async_trait]
impl RecordSink for MemoryStore {
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError> {
        let mut rows = self.writing()?;
        for record in records {
            rows.apply(record);
        }
        Ok(())
    }
}
