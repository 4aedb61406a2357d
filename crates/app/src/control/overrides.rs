//! Service for overrides: decisions of operators about tools are created, removed and written to
//! the audit trail.

use std::sync::Arc;

use jiff::Timestamp;
use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
use riglm_domain::id::{AuditId, OverrideId};
use riglm_domain::privacy::audit::AuditEntry;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{AuditTrail, OverrideRepository, StoreError};
use riglm_ports::clock::Clock;
use riglm_ports::observer::{Event, Observer};

use crate::control::name_lookup::{NameLookup, UnknownName};
use crate::selection::{ListFilter, OperatorOverrides};
use riglm_discovery::entropy::EntropySource;

/// A decision of an operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The tool, by its name in lists.
    pub tool: String,
    /// The action for the tool.
    pub action: OverrideAction,
    /// The scope, with the names that the operator used.
    pub scope: OverrideScope,
    /// The end of the decision; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// The reason that the operator gave.
    pub reason: Option<String>,
    /// Whether the tool may be one that no upstream has listed so far.
    pub allows_unknown: bool,
}

/// The reason why a decision is refused.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// The decision would already be over.
    #[error("expires_at is in the past: {0}")]
    Over(Timestamp),
    /// A name has no match.
    #[error(transparent)]
    Name(UnknownName),
    /// The tool is unknown, and the decision does not permit that.
    #[error("{0}; set allow_unknown for a tool that no upstream has listed yet")]
    Tool(UnknownName),
    /// Lists of a modern client cannot depend on the session.
    #[error(
        "session {0} uses revision 2026-07-28, which has no tool lists per session; use its client \
         or its profile instead, or forbid the tool"
    )]
    SharedList(String),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

impl From<UnknownName> for DecisionError {
    fn from(error: UnknownName) -> Self {
        match error {
            UnknownName::Store(error) => Self::Store(error),
            UnknownName::Tool { .. } => Self::Tool(error),
            _ => Self::Name(error),
        }
    }
}

/// The parts of [`Overrides`].
#[derive(Debug)]
pub struct OverridesParts {
    /// The repository of overrides.
    pub store: Arc<dyn OverrideRepository>,
    /// The audit trail.
    pub trail: Arc<dyn AuditTrail>,
    /// Looks up the names that operators use.
    pub names: NameLookup,
    /// Receives an event for each change.
    pub observer: Arc<dyn Observer>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The overrides that lists and calls of this process follow, read again after each change;
    /// `None` in a process without clients.
    pub followed: Option<Arc<OperatorOverrides>>,
    /// The lists that overrides are for.
    pub lists: OverriddenLists,
}

/// The lists that overrides are for. They follow include, exclude and pin only with the strategy
/// `prediction`.
#[derive(Clone, Debug)]
pub enum OverriddenLists {
    /// The lists of this process.
    Own(ListFilter),
    /// The lists of other processes; true if they follow overrides.
    OfOthers(bool),
}

impl OverriddenLists {
    fn follow_overrides(&self) -> bool {
        match self {
            Self::Own(filter) => filter.configured_lists().is_some(),
            Self::OfOthers(follow) => *follow,
        }
    }
}

/// Writes the decisions of operators to the store, where every process finds them.
#[derive(Debug)]
pub struct Overrides {
    parts: OverridesParts,
    entropy: EntropySource,
}

impl Overrides {
    /// Creates the service from its parts.
    #[must_use]
    pub fn new(parts: OverridesParts) -> Self {
        Self {
            parts,
            entropy: EntropySource::new(),
        }
    }

    /// Stores a decision. It replaces the earlier one for the same tool and scope. The returned
    /// scope has identifiers instead of names.
    ///
    /// # Errors
    ///
    /// Returns [`DecisionError`] with the wrong part; nothing is stored then.
    pub async fn decide(
        &self,
        decision: Decision,
        actor: &Principal,
    ) -> Result<ToolOverride, DecisionError> {
        let now = self.parts.clock.now();
        if let Some(end) = decision.expires_at.filter(|end| *end <= now) {
            return Err(DecisionError::Over(end));
        }
        let (scope, session) = self.parts.names.scope(decision.scope).await?;
        // Forbidding acts on calls instead of lists, so it works for modern clients too.
        if decision.action != OverrideAction::Forbid
            && let Some(session) = session.filter(|session| session.is_modern)
        {
            return Err(DecisionError::SharedList(session.id));
        }
        if !decision.allows_unknown {
            self.parts.names.tool(&decision.tool).await?;
        }
        let decided = ToolOverride {
            id: OverrideId::new(now, self.entropy.next()),
            tool: decision.tool,
            action: decision.action,
            scope,
            expires_at: decision.expires_at,
            reason: decision.reason,
            created_by: actor.clone(),
            created_at: now,
        };
        let detail = serde_json::to_string(&decided).ok();
        let audit = self.entry("override.create", decided.id, detail, actor, now);
        self.parts.store.set_override(&decided, &audit).await?;
        self.follow().await;
        self.parts.observer.observe(&Event::OverrideChanged);
        Ok(decided)
    }

    /// Returns a note for the operator if no list follows the decision, with the reason.
    #[must_use]
    pub fn note(&self, action: OverrideAction) -> Option<&'static str> {
        let is_followed = self.parts.lists.follow_overrides() || action == OverrideAction::Forbid;
        (!is_followed).then_some(
            "no effect on lists: include, exclude and pin need filtering.strategy = \"prediction\"",
        )
    }

    /// Removes an override; returns whether it existed.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn remove(&self, id: OverrideId, actor: &Principal) -> Result<bool, StoreError> {
        let now = self.parts.clock.now();
        let audit = self.entry("override.remove", id, None, actor, now);
        let was_there = self.parts.store.remove_override(id, &audit).await?;
        self.follow().await;
        if was_there {
            self.parts.observer.observe(&Event::OverrideChanged);
        }
        Ok(was_there)
    }

    /// Returns the active overrides, the oldest first.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn active_overrides(&self) -> Result<Vec<ToolOverride>, StoreError> {
        self.parts.store.overrides(self.parts.clock.now()).await
    }

    /// Returns the newest `limit` entries of the audit trail before `before`, the oldest first.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn audit_entries(
        &self,
        before: Option<AuditId>,
        limit: u32,
    ) -> Result<Vec<AuditEntry>, StoreError> {
        self.parts.trail.entries_before(before, limit).await
    }

    /// Makes this process follow a change at once: whoever made it, or receives its event, may look at
    /// lists next. After a failed read, the polling retries.
    async fn follow(&self) {
        let Some(followed) = &self.parts.followed else {
            return;
        };
        if let Err(error) = followed.read_again().await {
            tracing::warn!("failed to read the overrides, will retry soon: {error}");
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
    use std::collections::BTreeSet;

    use jiff::SignedDuration;
    use riglm_domain::catalog::naming::NamespacePolicy;
    use riglm_ports::fake::{ManualClock, MemoryStore};
    use riglm_ports::observer::NoObserver;

    use super::*;
    use crate::control::queries::Queries;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn overrides(store: Arc<MemoryStore>) -> Overrides {
        let clock = Arc::new(ManualClock::at(NOW));
        let queries = Arc::new(Queries::new(store.clone(), clock.clone()));
        Overrides::new(OverridesParts {
            store: store.clone(),
            trail: store,
            names: NameLookup::new(queries, BTreeSet::new(), NamespacePolicy::Prefix),
            observer: Arc::new(NoObserver),
            clock,
            followed: None,
            lists: OverriddenLists::OfOthers(true),
        })
    }

    fn decision(expires_at: Option<Timestamp>) -> Decision {
        Decision {
            tool: "echo".into(),
            action: OverrideAction::Pin,
            scope: OverrideScope::Global,
            expires_at,
            reason: Some("asked for".into()),
            allows_unknown: true,
        }
    }

    #[tokio::test]
    async fn overrides_hold_until_removal_and_are_audited() {
        let store = Arc::new(MemoryStore::default());
        let overrides = overrides(store);
        let alice = Principal::from_name("alice");
        let decided = overrides.decide(decision(None), &alice).await.unwrap();
        assert_eq!(
            overrides.active_overrides().await.unwrap(),
            std::slice::from_ref(&decided)
        );
        let again = overrides.decide(decision(None), &alice).await.unwrap();
        assert_eq!(
            overrides.active_overrides().await.unwrap(),
            std::slice::from_ref(&again)
        );
        assert!(overrides.remove(again.id, &alice).await.unwrap());
        assert!(!overrides.remove(again.id, &alice).await.unwrap());
        assert!(overrides.active_overrides().await.unwrap().is_empty());
        let trail = overrides.audit_entries(None, 99).await.unwrap();
        let actions: Vec<&str> = trail.iter().map(|entry| &*entry.action).collect();
        assert_eq!(
            actions,
            ["override.create", "override.create", "override.remove"]
        );
        assert!(trail.iter().all(|entry| entry.actor == alice));
        assert_eq!(trail[0].target, decided.id.to_string());
    }

    #[tokio::test]
    async fn already_expired_decisions_are_refused() {
        let store = Arc::new(MemoryStore::default());
        let overrides = overrides(store);
        for end in [NOW, NOW - SignedDuration::from_secs(1)] {
            let refused = overrides
                .decide(decision(Some(end)), &Principal::local())
                .await;
            assert!(
                matches!(refused, Err(DecisionError::Over(at)) if at == end),
                "{refused:?}"
            );
        }
        assert!(overrides.active_overrides().await.unwrap().is_empty());
    }
}
