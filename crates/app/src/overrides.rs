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
use crate::names::{Names, UnknownName};
use crate::tracking::EntropySource;

/// What an operator wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The tool, by the name that clients see.
    pub tool: String,
    /// What becomes of it.
    pub action: OverrideAction,
    /// For whom, as the operator names them.
    pub scope: OverrideScope,
    /// When it ends; `None` for never.
    pub expires_at: Option<Timestamp>,
    /// Why.
    pub reason: Option<String>,
    /// Whether the tool may be one that no upstream listed so far.
    pub allows_unknown: bool,
}

/// Why a decision is not taken.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    /// It would be over already.
    #[error("expires_at is in the past: {0}")]
    Over(Timestamp),
    /// It names something that is not there.
    #[error(transparent)]
    Name(UnknownName),
    /// The tool is not known, and may only be if that is said.
    #[error("{0}; allow_unknown decides about a tool that is not listed yet")]
    Tool(UnknownName),
    /// Lists of the session depend on no session.
    #[error(
        "session {0} speaks revision 2026-07-28, whose lists of tools depend on no session: name its \
         client or its profile instead, or forbid the tool"
    )]
    SharedList(String),
    /// The store does not take it.
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

/// What [`Overrides`] are made of.
#[derive(Debug)]
pub struct OverridesParts {
    /// Where they are kept.
    pub store: Arc<dyn OverrideRepository>,
    /// Where it is written down who decided what.
    pub trail: Arc<dyn AuditTrail>,
    /// Finds what operators name.
    pub names: Names,
    /// Is told of changes.
    pub observer: Arc<dyn Observer>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Learns at once what is forbidden; `None` where nobody is served.
    pub forbidden: Option<Arc<Forbidden>>,
    /// Whether lists follow what is included, excluded and pinned: with strategy `prediction` alone.
    pub has_lists: bool,
}

/// Takes what operators decide to the store, where every process finds it.
#[derive(Debug)]
pub struct Overrides {
    parts: OverridesParts,
    entropy: EntropySource,
}

impl Overrides {
    /// Returns a service made of these parts.
    #[must_use]
    pub fn new(parts: OverridesParts) -> Self {
        Self {
            parts,
            entropy: EntropySource::new(),
        }
    }

    /// Takes a decision: what was decided for the same tool and scope before is replaced. The scope of
    /// what is decided has identifiers in the place of the names that the operator may have said.
    ///
    /// # Errors
    ///
    /// Returns [`DecisionError`], which names what does not fit; nothing is decided then.
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

    /// Returns what an operator is to know of what was decided: why no list follows it. `None` where
    /// lists do.
    #[must_use]
    pub fn note(&self, action: OverrideAction) -> Option<&'static str> {
        let is_followed = self.parts.has_lists || action == OverrideAction::Forbid;
        (!is_followed).then_some(
            "lists follow include, exclude and pin with filtering.strategy = \"prediction\" alone, which \
             this configuration does not have",
        )
    }

    /// Removes what was decided; returns whether it was there.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
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

    /// Returns what holds now, the oldest first.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn holding(&self) -> Result<Vec<ToolOverride>, StoreError> {
        self.parts.store.overrides(self.parts.clock.now()).await
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
        self.parts.trail.entries_before(before, limit).await
    }

    /// Has what forbids tools know what was decided. If it cannot be read now, that is tried again.
    async fn follow(&self) {
        let Some(forbidden) = &self.parts.forbidden else {
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
    use std::collections::BTreeSet;

    use jiff::SignedDuration;
    use riglm_domain::naming::Naming;
    use riglm_ports::fake::{ManualClock, MemoryStore};
    use riglm_ports::observer::Unobserved;

    use super::*;
    use crate::insight::Insight;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn overrides(store: Arc<MemoryStore>) -> Overrides {
        let clock = Arc::new(ManualClock::at(NOW));
        let insight = Arc::new(Insight::new(store.clone(), clock.clone()));
        Overrides::new(OverridesParts {
            store: store.clone(),
            trail: store,
            names: Names::new(insight, BTreeSet::new(), Naming::Prefix),
            observer: Arc::new(Unobserved),
            clock,
            forbidden: None,
            has_lists: true,
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
            assert!(
                matches!(refused, Err(DecisionError::Over(at)) if at == end),
                "{refused:?}"
            );
        }
        assert!(overrides.holding().await.unwrap().is_empty());
    }
}
