//! The write path: records are appended to a journal and applied to a database.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::usage::record::Record;

use super::StoreError;

/// The state of the journal: whether records currently become rows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalCondition {
    /// Records become rows, as far as is known.
    Sound,
    /// The database does not accept records, and they wait. Or the journal itself cannot store
    /// them, and they are lost.
    Behind {
        /// The cause, in one line.
        reason: String,
    },
}

/// Stores records in the order of the calls until they are rows.
///
/// # Promises
///
/// - Records become rows in the order of the calls, each once, without another call. Records of
///   several callers at a time all become rows.
/// - A journal on disk accepts records while the database is slow, locked or unreachable, up to its
///   limit of waiting bytes, and they become rows afterwards. A journal in memory refuses them.
/// - The condition is sound while records become rows, behind while the database refuses them, and
///   sound again afterwards, without another call.
/// - A record in a journal on disk survives the death of the process by any signal. With durability
///   `power` it also survives a loss of power. The suite of the adapter kills processes for this.
///
/// `contract::journal` has a clause for each of the others. A journal for `recording.mode = "off"`
/// accepts every record and drops it.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug {
    /// Appends one record.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Full`] at the limit and [`StoreError::Failed`] when the disk refuses;
    /// the record is lost then, and counted.
    async fn append(&self, record: &Record) -> Result<(), StoreError>;

    /// Appends several records in their order, if possible in one step.
    ///
    /// # Errors
    ///
    /// As [`Journal::append`] does. Some of the records may be stored then.
    async fn append_all(&self, records: &[Record]) -> Result<(), StoreError> {
        for record in records {
            self.append(record).await?;
        }
        Ok(())
    }

    /// Returns whether records currently become rows. A journal that is behind recovers by itself,
    /// without another [`Self::append`], when the cause is gone.
    fn condition(&self) -> JournalCondition;
}

/// Applies records to the database.
///
/// All records of one call become visible together or not at all. Applying a record again changes
/// nothing. The first end of a call stays; later ends are ignored, except that any other outcome
/// replaces `unknown`. A lost run closes every open call of its sessions as `unknown` and ends its
/// open sessions; it leaves other runs alone.
#[async_trait]
pub trait RecordSink: Send + Sync + fmt::Debug {
    /// Applies records in their order.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database rejects them; none of them was applied then.
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError>;
}
