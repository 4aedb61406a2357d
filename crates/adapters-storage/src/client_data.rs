//! Export and deletion of all stored data of clients.

mod delete;
mod export;
mod rows;
mod selection;

use async_trait::async_trait;
use riglm_ports::analytics::{ClientData, ClientRow, ClientSelector, DeletedRows, StoreError};

use self::selection::ClientSelection;
use crate::maintenance::{enable_secure_delete, scrub};
use crate::store::Store;

#[async_trait]
impl ClientData for Store {
    /// Exports the rows page by page, so that they are never all in memory.
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError> {
        let database = self.database().await?;
        let selected = ClientSelection::find(database, clients).await?;
        if !selected.is_empty() {
            export::export(database, &selected, take).await?;
        }
        Ok(())
    }

    /// Deletes the rows and overwrites their bytes, even if no rows are found: a caller that was
    /// interrupted after the rows were gone repeats the call.
    ///
    /// The SQLite file is rewritten (`VACUUM`) and its write-ahead log emptied, which temporarily
    /// needs as much disk space again. Backups of the file from before migrations are deleted too,
    /// because they contain old rows. In PostgreSQL the space of the rows becomes free for new
    /// ones. Other copies on the server (archived logs, backups and replicas) are the
    /// responsibility of its operator.
    async fn delete(&self, clients: &ClientSelector) -> Result<DeletedRows, StoreError> {
        let database = self.database().await?;
        enable_secure_delete(database).await?;
        let selected = ClientSelection::find(database, clients).await?;
        let deleted = if selected.is_empty() {
            DeletedRows::default()
        } else {
            delete::delete(database, &selected).await?
        };
        scrub(database).await?;
        Ok(deleted)
    }
}
