//! All that is stored of clients, handed out and removed.

mod delete;
mod export;
mod rows;
mod selected;

use async_trait::async_trait;
use riglm_ports::analytics::{ClientData, ClientRow, ClientSelector, Deleted, StoreError};

use self::selected::Selected;
use crate::maintenance::{overwrite_from_now_on, scrub};
use crate::store::Store;

#[async_trait]
impl ClientData for Store {
    /// Hands the rows out page by page, so that they never are in memory together.
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError> {
        let database = self.database().await?;
        let selected = Selected::find(database, clients).await?;
        if !selected.is_empty() {
            export::export(database, &selected, take).await?;
        }
        Ok(())
    }

    /// Removes the rows, and then their bytes, whether rows were found or not: who was cut off
    /// after the rows were gone repeats the call.
    ///
    /// The SQLite file is written anew and its write-ahead log emptied, which takes as much room
    /// again for the time being. The copies of the file that were made before migrations are
    /// removed too: they have the rows of then. In PostgreSQL the room of the rows is given free
    /// for new ones; what the server keeps elsewhere, in archives of its own log, in backups and
    /// in replicas, is up to its operator.
    async fn delete(&self, clients: &ClientSelector) -> Result<Deleted, StoreError> {
        let database = self.database().await?;
        overwrite_from_now_on(database).await?;
        let selected = Selected::find(database, clients).await?;
        let deleted = if selected.is_empty() {
            Deleted::default()
        } else {
            delete::delete(database, &selected).await?
        };
        scrub(database).await?;
        Ok(deleted)
    }
}
