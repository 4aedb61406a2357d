//! The journal of a proxy that records nothing.

use async_trait::async_trait;
use riglm_domain::record::Record;
use riglm_ports::analytics::{Journal, JournalCondition, StoreError};

/// Takes every record and keeps none.
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
