//! A journal that discards all records, for `recording.mode = "off"`.

use async_trait::async_trait;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{Journal, JournalCondition, StoreError};

/// Accepts every record and stores none.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoJournal;

#[async_trait]
impl Journal for NoJournal {
    async fn append(&self, _record: &Record) -> Result<(), StoreError> {
        Ok(())
    }

    fn condition(&self) -> JournalCondition {
        JournalCondition::Sound
    }
}
