//! The way in: records are appended to a journal and applied to a database.

use std::fmt;

use async_trait::async_trait;
use riglm_domain::record::Record;

use super::StoreError;

/// Whether records become rows at present.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum JournalCondition {
    /// They do, as far as is known.
    Sound,
    /// The database does not take records; they wait. Or the journal itself cannot take them; they
    /// are lost.
    Behind {
        /// Why, in one line.
        reason: String,
    },
}

/// Takes records in the order of the calls and keeps them until they are rows.
///
/// A record that was appended survives the death of the process by any signal. With durability
/// `power` it also survives the loss of power. A journal does not wait for the database: it takes
/// records while the database is slow, locked or gone, up to its limit of waiting bytes.
#[async_trait]
pub trait Journal: Send + Sync + fmt::Debug {
    /// Appends one record.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError::Full`] at the limit and [`StoreError::Failed`] when the disk refuses;
    /// the record is lost then, and counted.
    async fn append(&self, record: &Record) -> Result<(), StoreError>;

    /// Returns whether records become rows at present. A journal that is behind becomes sound by
    /// itself, without another [`Self::append`], once what kept it is over.
    fn condition(&self) -> JournalCondition;
}

/// Makes rows of records.
///
/// All records of one call become visible together or not at all. Applying a record again
/// changes nothing. The first end of a call stays; later ends are ignored, except that any other
/// outcome replaces `unknown`. A lost run closes every open call of its sessions as `unknown` and
/// ends its open sessions; it leaves other runs alone.
#[async_trait]
pub trait RecordSink: Send + Sync + fmt::Debug {
    /// Applies records in their order.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database cannot take them; none of them was applied then.
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError>;
}
