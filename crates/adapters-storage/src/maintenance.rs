//! Maintenance of the database: rebuilding counts, purging old rows, integrity checks, and locks on
//! tasks.

mod check;
mod files;
mod lock;
mod purge;
mod removal;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_ports::analytics::{
    IntegrityProblem, Maintenance, MaintenanceGuard, MaintenanceTask, PurgeReport, RebuildReport,
    StoreError,
};

pub(crate) use self::files::{enable_secure_delete, scrub};
pub(crate) use self::removal::{
    lock_decisions, remove_calls_of, remove_sessions, remove_unused_tool_sets, remove_unused_tools,
};
use crate::counts;
use crate::database::WriteLock;
use crate::store::Store;

#[async_trait]
impl Maintenance for Store {
    async fn rebuild(&self) -> Result<RebuildReport, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Usage).await?;
        let rebuilt = counts::rebuild(&mut transaction).await?;
        transaction.commit().await?;
        Ok(rebuilt)
    }

    /// Purges old rows in one transaction.
    ///
    /// A SQLite file does not become smaller: its pages are reused for new rows. Its write-ahead
    /// log is checkpointed after each call, and truncated after the last one. Pages of tools stay,
    /// because a page is recorded once and may be listed to a session at any time.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<PurgeReport, StoreError> {
        let database = self.database().await?;
        let purged = purge::purge(database, before, limit).await?;
        files::checkpoint(database, purged.is_done).await;
        Ok(purged)
    }

    async fn check(&self) -> Result<Vec<IntegrityProblem>, StoreError> {
        check::check(self).await
    }

    /// Locks a task: in PostgreSQL with an advisory lock on a separate connection, and in SQLite
    /// with a lock on a file in the directory of the database.
    async fn try_begin(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError> {
        lock::try_begin(self.database().await?, task).await
    }
}
