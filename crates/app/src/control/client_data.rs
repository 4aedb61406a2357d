//! Export and deletion of all stored data of one client.

use std::fmt;
use std::sync::Arc;

use async_trait::async_trait;
use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{AuditTrail, ClientData, StoreError};
use riglm_ports::clock::Clock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

pub use riglm_ports::analytics::{ClientRow, ClientSelector, DeletedRows};

use riglm_discovery::entropy::EntropySource;

/// The result of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Erasure {
    /// The numbers of deleted rows.
    pub deleted: DeletedRows,
    /// Whether nothing of the client is left. If false, a process still holds records of it, and the
    /// deletion must be repeated.
    pub is_complete: bool,
    /// Whether a session of the client was open. Its new records are not deleted.
    pub has_open_session: bool,
}

/// Deletes all stored data of clients, together with the records that no process has written to the
/// database yet.
#[async_trait]
pub trait ClientEraser: Send + Sync + fmt::Debug {
    /// Deletes all data of these clients.
    ///
    /// # Errors
    ///
    /// Returns [`StoreError`] when the database fails or records cannot be read; a part may be
    /// deleted then.
    async fn erase(&self, clients: &ClientSelector) -> Result<Erasure, StoreError>;
}

/// The number of exports and deletions at the same time. Each occupies a connection of the database.
const MAX_CONCURRENT: usize = 2;

/// A permit for one export or deletion, returned on drop.
#[derive(Debug)]
pub struct ClientDataPermit {
    _permit: OwnedSemaphorePermit,
}

/// Exports and deletes the data of clients for operators. Each use is in the audit trail, without
/// the client: after a deletion, nothing may name it.
#[derive(Debug)]
pub struct ClientDataService {
    data: Arc<dyn ClientData>,
    eraser: Arc<dyn ClientEraser>,
    trail: Arc<dyn AuditTrail>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
    permits: Arc<Semaphore>,
}

impl ClientDataService {
    /// Creates the service over a store.
    #[must_use]
    pub fn new(
        data: Arc<dyn ClientData>,
        eraser: Arc<dyn ClientEraser>,
        trail: Arc<dyn AuditTrail>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            data,
            eraser,
            trail,
            clock,
            entropy: EntropySource::default(),
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
        self.note("data.export", actor, None).await?;
        self.data.export(clients, take).await
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
    ) -> Result<Erasure, StoreError> {
        let erased = self.eraser.erase(clients).await?;
        let DeletedRows {
            n_sessions,
            n_calls,
            n_others,
        } = erased.deleted;
        let detail =
            format!(r#"{{"sessions":{n_sessions},"calls":{n_calls},"others":{n_others}}}"#);
        self.note("data.delete", actor, Some(detail)).await?;
        Ok(erased)
    }

    async fn note(
        &self,
        action: &str,
        actor: &Principal,
        detail: Option<String>,
    ) -> Result<(), StoreError> {
        let at = self.clock.now();
        let entry = AuditEntry {
            id: AuditId::new(at, self.entropy.next()),
            at,
            actor: actor.clone(),
            action: action.into(),
            target: "client".into(),
            detail,
        };
        self.trail.add(&entry).await
    }
}
