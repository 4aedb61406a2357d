//! Entries of the audit trail for actions that store nothing else.

use std::sync::Arc;

use riglm_domain::id::AuditId;
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{AuditTrail, StoreError};
use riglm_ports::clock::Clock;

use riglm_discovery::entropy::EntropySource;

/// An action of an operator.
#[derive(Clone, Copy, Debug)]
pub struct AuditedAction<'a> {
    /// The name of the action, such as `config.change`.
    pub name: &'a str,
    /// The object of the action.
    pub target: &'a str,
}

/// Writes actions of operators to the audit trail, with the time and an identifier.
#[derive(Debug)]
pub struct AuditLog {
    /// `None` if nothing is stored.
    trail: Option<Arc<dyn AuditTrail>>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
}

impl AuditLog {
    /// Creates a log; without a trail it writes nothing.
    #[must_use]
    pub fn new(trail: Option<Arc<dyn AuditTrail>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            trail,
            clock,
            entropy: EntropySource::new(),
        }
    }

    /// Writes an action. `detail` is JSON text.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn add(
        &self,
        actor: &Principal,
        action: AuditedAction<'_>,
        detail: Option<String>,
    ) -> Result<(), StoreError> {
        let Some(trail) = &self.trail else {
            return Ok(());
        };
        let at = self.clock.now();
        let entry = AuditEntry {
            id: AuditId::new(at, self.entropy.next()),
            at,
            actor: actor.clone(),
            action: action.name.into(),
            target: action.target.into(),
            detail,
        };
        trail.add(&entry).await
    }
}
