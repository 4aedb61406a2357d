//! What operators decide about the tools that lists show: made, removed and written down.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::audit::AuditEntry;
use riglm_domain::id::{AuditId, OverrideId};
use riglm_domain::principal::Principal;
use riglm_domain::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_ports::analytics::{AuditTrail, OverrideRepository, StoreError};
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, Observer};

use crate::filtering::Forbidden;
use crate::tracking::EntropySource;

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The tool, by the name that clients see.
    pub tool: String,
    /// What becomes of it.
    pub action: OverrideAction,
    /// For whom.
    pub scope: OverrideScope,
    /// When it ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// Why.
    pub reason: Option<String>,
}

/// Why a decision is not taken.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// It would be over already.
    #[error("expires_at is in the past")]
    Over,
    /// The store does not take it.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// Takes what operators decide to the store, where every process finds it.
#[derive(Debug)]
pub struct Overrides {
    store: Arc<dyn OverrideRepository>,
    trail: Arc<dyn AuditTrail>,
    observer: Arc<dyn Observer>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
    forbidden: Option<Arc<Forbidden>>,
}

impl Overrides {
    /// Returns a service over a store.
    #[must_use]
    pub fn new(
        store: Arc<dyn OverrideRepository>,
        trail: Arc<dyn AuditTrail>,
        observer: Arc<dyn Observer>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self {
            store,
            trail,
            observer,
            clock,
            entropy: EntropySource::new(),
            forbidden: None,
        }
    }

    /// Has tools forbidden, or permitted again, as soon as that is decided.
    #[must_use]
    pub fn with_forbidden(self, forbidden: Arc<Forbidden>) -> Self {
        Self {
            forbidden: Some(forbidden),
            ..self
        }
    }

    /// Takes a decision: what was decided for the same tool and scope before is replaced.
    ///
    /// # Errors
    ///
    /// Returns [`DecisionError::Over`] for one that ends before now, and what the store says.
    pub async fn decide(
        &self,
        decision: Decision,
        actor: &Principal,
    ) -> Result<ToolOverride, DecisionError> {
        let now = self.clock.now();
        if decision.expires_at.is_some_and(|end| end <= now) {
            return Err(DecisionError::Over);
        }
        let decided = ToolOverride {
            id: OverrideId::new(now, self.entropy.next()),
            tool: decision.tool,
            action: decision.action,
            scope: decision.scope,
            expires_at: decision.expires_at,
            reason: decision.reason,
            created_by: actor.clone(),
            created_at: now,
        };
        let detail = serde_json::to_string(&decided).ok();
        let audit = self.entry("override.create", decided.id, detail, actor, now);
        self.store.set_override(&decided, &audit).await?;
        self.follow().await;
        self.observer.observe(&Event::OverrideChanged);
        Ok(decided)
    }

    /// Removes what was decided; returns whether it was there.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn remove(&self, id: OverrideId, actor: &Principal) -> Result<bool, StoreError> {
        let now = self.clock.now();
        let audit = self.entry("override.remove", id, None, actor, now);
        let was_there = self.store.remove_override(id, &audit).await?;
        self.follow().await;
        if was_there {
            self.observer.observe(&Event::OverrideChanged);
        }
        Ok(was_there)
    }

    /// Returns what holds now, the oldest first.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn holding(&self) -> Result<Vec<ToolOverride>, StoreError> {
        self.store.overrides(self.clock.now()).await
    }

    /// Returns the newest `limit` entries of the audit trail before that one, the oldest first.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn trail(
        &self,
        before: Option<AuditId>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        self.trail.entries_before(before, limit).await
    }

    /// Has what forbids tools know what was decided. If it cannot be read now, that is tried again.
    async fn follow(&self) {
        let Some(forbidden) = &self.forbidden else {
            return;
        };
        if let Err(error) = forbidden.read_again().await {
            tracing::warn!("what is forbidden cannot be read now, and is soon: {error}");
        }
    }

    fn entry(
        &self,
        action: &str,
        target: OverrideId,
        detail: Option<String>,
        actor: &Principal,
        at: Timestamp,
    ) -> AuditEntry {
        AuditEntry {
            id: AuditId::new(at, self.entropy.next()),
            at,
            actor: actor.clone(),
            action: action.into(),
            target: target.to_string(),
            detail,
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use riglm_ports::fake::{ManualClock, MemoryStore};
    use riglm_ports::observer::Unobserved;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn overrides(store: Arc<MemoryStore>) -> Overrides {
        let clock = Arc::new(ManualClock::at(NOW));
        Overrides::new(store.clone(), store, Arc::new(Unobserved), clock)
    }

    fn decision(expires_at: Option<Timestamp>) -> Decision {
        Decision {
            tool: "echo".into(),
            action: OverrideAction::Pin,
            scope: OverrideScope::Global,
            expires_at,
            reason: Some("asked for".into()),
        }
    }

    #[tokio::test]
    async fn a_decision_holds_until_it_is_removed_and_is_written_down() {
        let store = Arc::new(MemoryStore::default());
        let overrides = overrides(store);
        let alice = Principal::named("alice");
        let decided = overrides.decide(decision(None), &alice).await.unwrap();
        assert_eq!(
            overrides.holding().await.unwrap(),
            std::slice::from_ref(&decided)
        );
        let again = overrides.decide(decision(None), &alice).await.unwrap();
        assert_eq!(
            overrides.holding().await.unwrap(),
            std::slice::from_ref(&again)
        );
        assert!(overrides.remove(again.id, &alice).await.unwrap());
        assert!(!overrides.remove(again.id, &alice).await.unwrap());
        assert!(overrides.holding().await.unwrap().is_empty());
        let trail = overrides.trail(None, 99).await.unwrap();
        let actions: Vec<&str> = trail.iter().map(|entry| &*entry.action).collect();
        assert_eq!(
            actions,
            ["override.create", "override.create", "override.remove"]
        );
        assert!(trail.iter().all(|entry| entry.actor == alice));
        assert_eq!(trail[0].target, decided.id.to_string());
    }

    #[tokio::test]
    async fn a_decision_that_would_be_over_is_refused() {
        let store = Arc::new(MemoryStore::default());
        let overrides = overrides(store);
        for end in [NOW, NOW - SignedDuration::from_secs(1)] {
            let refused = overrides
                .decide(decision(Some(end)), &Principal::local())
                .await;
            assert!(matches!(refused, Err(DecisionError::Over)), "{refused:?}");
        }
        assert!(overrides.holding().await.unwrap().is_empty());
    }
}
