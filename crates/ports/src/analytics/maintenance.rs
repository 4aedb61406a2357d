//! Maintenance of the store: rebuilding counts, purging old rows, and integrity checks.

use std::fmt;

use async_trait::async_trait;
use jiff::Timestamp;
#[cfg(doc)]
use riglm_domain::selection::epoch::ListEpoch;
use strum::IntoStaticStr;

use super::StoreError;

/// The numbers of rows of a rebuild of the counts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RebuildReport {
    /// Calls that were read.
    pub n_calls: u64,
    /// Rows of counts that were written.
    pub n_counts: u64,
}

/// The numbers of rows that a purge deleted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PurgeReport {
    /// Tool calls.
    pub n_calls: u64,
    /// Sessions.
    pub n_sessions: u64,
    /// Other rows.
    pub n_others: u64,
    /// Whether the purge is complete: no row is old enough any more.
    pub is_done: bool,
}

/// A problem in the store.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IntegrityProblem {
    /// The checked object.
    pub subject: String,
    /// A description of the problem.
    pub problem: String,
}

/// A task that only one process runs at a time, out of all processes that share the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
pub enum MaintenanceTask {
    /// Deletion of old rows.
    Retention,
    /// A full rebuild of the learned state.
    Learning,
    /// Tuning of the weights of rankings.
    WeightTuning,
}

impl MaintenanceTask {
    /// Returns the name of the task.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A lock on a task. It is released when the guard is dropped.
pub trait MaintenanceGuard: Send + Sync + fmt::Debug {}

/// Maintains the rows and the counts.
#[async_trait]
pub trait Maintenance: Send + Sync + fmt::Debug {
    /// Rebuilds the counts from the rows.
    ///
    /// The counts are the same afterwards as before, unless they were damaged. Records that arrive
    /// meanwhile are counted too.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; the counts are unchanged then.
    async fn rebuild(&self) -> Result<RebuildReport, StoreError>;

    /// Deletes rows older than `before`, about `limit` rows at most, oldest first, and their
    /// contributions to the counts.
    ///
    /// At least one row is deleted unless none is old enough. A session is deleted when it ended
    /// before that moment, or never ended and started before it, and none of its calls is left. All
    /// that belongs to it, such as listed tools and used tools, is deleted with it and not before.
    /// The used tools of a session whose beginning is not recorded are deleted with the last of its
    /// calls. A call in flight is deleted like any other. The age of a work session counts from its
    /// last activity. The age of an epoch of a list counts from its beginning if its scope begins
    /// with [`ListEpoch::WORK_SCOPE`]; all other epochs stay. A snapshot is deleted if it was taken
    /// before that moment: what is in use is saved again and again. Tool definitions, memories of
    /// servers, overrides, audit entries, weights and assignments stay.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; nothing was deleted by this call then.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<PurgeReport, StoreError>;

    /// Returns the problems of the database and its counts; none for a sound one. Changes nothing.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn check(&self) -> Result<Vec<IntegrityProblem>, StoreError>;

    /// Locks a task for this process; returns `None` while another process or another holder in
    /// this one has it. The lock is released when the guard is dropped or the process dies.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn try_begin(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError>;
}
