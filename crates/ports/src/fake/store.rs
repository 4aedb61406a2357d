//! An in-memory usage store.

mod client_data;
mod decisions;
mod experiments;
mod learned_state;
mod list_activity;
mod maintenance;
mod queries;
mod rows;
mod shared_state;
mod stored_form;
mod usage;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use async_trait::async_trait;
use parking_lot::{Mutex, MutexGuard};
use riglm_domain::usage::record::Record;

use self::rows::Rows;
use crate::analytics::{Journal, JournalCondition, MaintenanceTask, RecordSink, StoreError};

/// The whole store in memory.
///
/// As a journal it applies each record at once. Counts are computed from all rows at each query.
#[derive(Debug, Default)]
pub struct MemoryStore {
    rows: Mutex<Rows>,
    tasks: Arc<Mutex<HashSet<MaintenanceTask>>>,
    is_failing: AtomicBool,
}

impl MemoryStore {
    /// Makes every write fail from now on. Reading still works.
    pub fn start_failing(&self) {
        self.is_failing.store(true, Ordering::SeqCst);
    }

    /// Accepts writes again.
    pub fn stop_failing(&self) {
        self.is_failing.store(false, Ordering::SeqCst);
    }

    /// Returns every accepted record, in order, repetitions included.
    pub fn records(&self) -> Vec<Record> {
        self.rows.lock().records.clone()
    }

    /// Returns the rows for writing, unless the store is set to fail.
    fn rows_for_writing(&self) -> Result<MutexGuard<'_, Rows>, StoreError> {
        if self.is_failing.load(Ordering::SeqCst) {
            return Err(StoreError::Failed {
                operation: "write to the failing store",
                source: "it was told to fail".into(),
            });
        }
        Ok(self.rows.lock())
    }
}

#[async_trait]
impl Journal for MemoryStore {
    async fn append(&self, record: &Record) -> Result<(), StoreError> {
        self.rows_for_writing()?.apply(record);
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
        let mut rows = self.rows_for_writing()?;
        for record in records {
            rows.apply(record);
        }
        Ok(())
    }
}
