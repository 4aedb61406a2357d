//! Upkeep: counts made anew, old rows purged, damage found, tasks kept to one process.

mod check;
mod files;
mod lock;
mod purge;
mod removal;

use async_trait::async_trait;
use jiff::Timestamp;
use riglm_ports::analytics::{
    Finding, Maintenance, MaintenanceGuard, MaintenanceTask, Purged, Rebuilt, StoreError,
};

pub(crate) use self::files::{overwrite_from_now_on, scrub};
pub(crate) use self::lock::Releases;
pub(crate) use self::removal::{
    keep_decisions_out, remove_calls_of, remove_sessions, remove_unused_tool_sets,
    remove_unused_tools,
};
use crate::counts;
use crate::database::WriteLock;
use crate::store::Store;

#[async_trait]
impl Maintenance for Store {
    async fn rebuild(&self) -> Result<Rebuilt, StoreError> {
        let mut transaction = self.database().await?.begin(WriteLock::Usage).await?;
        let rebuilt = counts::rebuild(&mut transaction).await?;
        transaction.commit().await?;
        Ok(rebuilt)
    }

    /// Removes old rows in one transaction.
    ///
    /// A SQLite file does not become smaller by it: its pages are used for new rows. Its
    /// write-ahead log is carried into it after each call, and emptied after the last one. Pages
    /// of tools stay, because a page is recorded once and may be listed to a session at any time.
    async fn purge(&self, before: Timestamp, limit: u32) -> Result<Purged, StoreError> {
        let database = self.database().await?;
        let purged = purge::purge(database, before, limit).await?;
        files::checkpoint(database, purged.is_done).await;
        Ok(purged)
    }

    async fn check(&self) -> Result<Vec<Finding>, StoreError> {
        check::check(self).await
    }

    /// Takes a task by an advisory lock of a connection of its own in PostgreSQL, and by a lock on
    /// a file beside the database in SQLite.
    async fn try_begin(
        &self,
        task: MaintenanceTask,
    ) -> Result<Option<Box<dyn MaintenanceGuard>>, StoreError> {
        lock::try_begin(self.database().await?, task).await
    }
}
