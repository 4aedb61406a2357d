//! Upkeep of the store: counts made anew, old rows purged, damage found.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
#[cfg(doc)]
use riglm_domain::list_epoch::ListEpoch;

use super::StoreError;

/// How many rows counts were made of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rebuilt {
    /// Calls that were read.
    pub n_calls: u64,
    /// Rows of counts that were written.
    pub n_counts: u64,
}

/// How many rows a purge removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Purged {
    /// Tool calls.
    pub n_calls: u64,
    /// Sessions.
    pub n_sessions: u64,
    /// Other rows.
    pub n_others: u64,
    /// Nothing is left that is old enough.
    pub is_done: bool,
}

/// Something that is wrong with the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What was looked at.
    pub subject: String,
    /// What is wrong with it.
    pub problem: String,
}

/// A task that one process does at a time, of all that share the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MaintenanceTask {
    /// Old rows are purged.
    Retention,
    /// What was learned is made anew.
    Learning,
    /// Weights of rankings are tuned.
    WeightTuning,
}

impl MaintenanceTask {
    /// Returns the name of the task.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Retention => "retention",
            Self::Learning => "learning",
            Self::WeightTuning => "weight_tuning",
        }
    }
}

/// Keeps a task to this process until it is dropped.
pub trait MaintenanceGuard: Send + Sync + fmt::Debug {}

/// Looks after the rows.
#[async_trait]
pub trait Maintenance: Send + Sync + fmt::Debug {
    /// Makes the counts anew from the rows. The counts are the same afterwards as they were
    /// before, unless they were damaged. Records that arrive meanwhile are counted too.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; the counts are as before then.
    async fn rebuild(&self) -> Result<Rebuilt, StoreError>;

    /// Removes what is older than `before`, about `limit` rows at most, oldest first; what they
    /// contributed to the counts goes with them. At least one row goes unless none is old enough.
    ///
    /// Sessions go when they ended before that moment, or were never ended and started before it,
    /// and none of their calls is left, with all that belongs to them: what was listed to them,
    /// and what they used, goes with them and not before. What a session used whose beginning is
    /// not recorded goes with the last of its calls. A call in flight goes like any other. Work
    /// sessions are as old as their last activity. Epochs of lists are as old as their beginning
    /// where their scope begins with [`ListEpoch::WORK_SCOPE`], and all others stay. Tool definitions, overrides, audit entries,
    /// weights and assignments stay.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; nothing was removed by this call then.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<Purged, StoreError>;

    /// Returns what is wrong with the database and its counts, which is nothing for a sound one.
    /// Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn check(&self) -> Result<Vec<Finding>, StoreError>;

    /// Takes a task for this process; `None` while another process or another holder in this one
    /// has it. The task is free again when the guard is dropped or the process dies.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn try_begin(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError>;
}
