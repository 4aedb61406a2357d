//! Export and deletion of all stored data of one client.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::StoreError;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use riglm_ports::analytics::{ClientRow, ClientSelector, DeletedRows, ErasureReport};

use super::audit_log::{AuditLog, AuditedAction};

/// The number of exports and deletions at the same time. Each occupies a connection of the database.
const MAX_CONCURRENT: usize = 2;

/// Reads and deletes all stored data of clients. A deletion includes the records that no process has
/// written to the database yet.
#[async_trait]
pub trait ClientDataAccess: Send + Sync + fmt::Debug {
    /// Passes all rows of the clients to `take`, until it returns `false`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    async fn export(
        &self,
        clients: &ClientSelector,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError>;

    /// Deletes all data of the clients.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails or records cannot be read; a part may be
    /// deleted then.
    async fn erase(&self, clients: &ClientSelector) -> Result<ErasureReport, StoreError>;
}

/// A permit for one export or deletion, returned on drop.
#[derive(Debug)]
pub struct ClientDataPermit {
    _permit: OwnedSemaphorePermit,
}

/// Exports and deletes the data of clients for operators. Each use is in the audit trail, without
/// the client: after a deletion, nothing may name it.
#[derive(Debug)]
pub struct ClientDataService {
    access: Box<dyn ClientDataAccess>,
    log: AuditLog,
    permits: Arc<Semaphore>,
}

impl ClientDataService {
    /// Creates the service, which writes its uses to `log`.
    #[must_use]
    pub fn new(access: impl ClientDataAccess + 'static, log: AuditLog) -> Self {
        Self {
            access: Box::new(access),
            log,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT)),
        }
    }

    /// Returns a permit for an export or a deletion; `None` while too many run.
    #[must_use]
    pub fn permit(&self) -> Option<ClientDataPermit> {
        let permit = Arc::clone(&self.permits).try_acquire_owned().ok()?;
        Some(ClientDataPermit { _permit: permit })
    }

    /// Passes all rows of the clients to `take`, until it returns `false`.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database does not answer.
    pub async fn export(
        &self,
        clients: &ClientSelector,
        actor: &Principal,
        take: &mut (dyn FnMut(ClientRow) -> bool + Send),
    ) -> Result<(), StoreError> {
        let action = AuditedAction {
            name: "data.export",
            target: "client",
        };
        self.log.add(actor, action, None).await?;
        self.access.export(clients, take).await
    }

    /// Deletes all data of the clients.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails; a part may be deleted then.
    pub async fn delete(
        &self,
        clients: &ClientSelector,
        actor: &Principal,
    ) -> Result<ErasureReport, StoreError> {
        let erased = self.access.erase(clients).await?;
        let DeletedRows {
            n_sessions,
            n_calls,
            n_others,
        } = erased.deleted;
        let detail =
            format!(r#"{{"sessions":{n_sessions},"calls":{n_calls},"others":{n_others}}}"#);
        let action = AuditedAction {
            name: "data.delete",
            target: "client",
        };
        self.log.add(actor, action, Some(detail)).await?;
        Ok(erased)
    }
}
