//! Settings that change while the process runs: what the control server asks for, and what is
//! written down of a change. Which settings there are, and how they take effect, is up to who puts
//! the process together.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use riglm_domain::audit::AuditEntry;
use riglm_domain::id::AuditId;
use riglm_domain::principal::Principal;
use riglm_ports::analytics::{AuditTrail, StoreError};
use riglm_ports::clock::Clock;
use serde_json::{Map, Value, json};

use crate::tracking::EntropySource;

/// The settings at a time.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsView {
    /// Counts the changes of [`Self::tuning`].
    pub version: u64,
    /// What was tuned, in sections.
    pub tuning: Map<String, Value>,
    /// All settings that are in use, in sections, without secrets.
    pub effective: Value,
    /// The keys that can be tuned, with dots.
    pub tunable: Vec<String>,
    /// Tells this view from all others: printable ASCII without quotes.
    pub tag: String,
}

/// Which view a change was made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Any.
    Any,
    /// One with one of these tags.
    OneOf(Vec<String>),
}

impl Expected {
    /// Returns whether the view with this tag is expected.
    #[must_use]
    pub fn has(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => tags.iter().any(|expected| expected == tag),
        }
    }
}

/// Why settings are not changed. They are as they were then.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Somebody else changed them since.
    #[error("the configuration is another one by now; read it again")]
    Stale,
    /// A key or a value is not accepted.
    #[error("{key}: {reason}")]
    Refused {
        /// The key, with dots.
        key: String,
        /// Why.
        reason: String,
    },
    /// What does not come from the control server cannot be used, so that nothing can be checked.
    #[error("the configuration cannot be used, whatever is tuned: {0}")]
    Unusable(String),
    /// The change cannot be kept.
    #[error("what is tuned cannot be written")]
    Unwritable(#[source] std::io::Error),
    /// The change cannot be written down.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// A change of settings under way.
pub type Replacing<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<SettingsView>, SettingsError>> + Send + 'a>>;

/// The settings of a process.
pub trait Settings: Send + Sync + fmt::Debug {
    /// Returns the settings as they are now.
    fn view(&self) -> Arc<SettingsView>;

    /// Replaces what was tuned, as a whole: what is not in `tuning` is as it is without. Of several
    /// that are made from the same view exactly one comes about. Goes on to its end when it is
    /// dropped.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`]; nothing has changed then.
    fn replace<'a>(
        &'a self,
        tuning: Map<String, Value>,
        expected: Expected,
        actor: &'a Principal,
    ) -> Replacing<'a>;
}

/// Writes down who changed settings: in the audit trail where there is one, and in the log.
#[derive(Debug)]
pub struct SettingsTrail {
    trail: Option<Arc<dyn AuditTrail>>,
    clock: Arc<dyn Clock>,
    entropy: EntropySource,
}

impl SettingsTrail {
    /// Returns a trail over a store; `None` where nothing is stored.
    #[must_use]
    pub fn new(trail: Option<Arc<dyn AuditTrail>>, clock: Arc<dyn Clock>) -> Self {
        Self {
            trail,
            clock,
            entropy: EntropySource::new(),
        }
    }

    /// Writes down a change of what is tuned.
    ///
    /// # Errors
    ///
    /// Returns what the store says.
    pub async fn note(
        &self,
        actor: &Principal,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        if let Some(trail) = &self.trail {
            let at = self.clock.now();
            let entry = AuditEntry {
                id: AuditId::new(at, self.entropy.next()),
                at,
                actor: actor.clone(),
                action: "config.change".into(),
                target: "tuning".into(),
                detail: Some(json!({"before": before, "after": after}).to_string()),
            };
            trail.add(&entry).await?;
        }
        tracing::info!(%actor, "{actor} changes what is tuned");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_ports::fake::{ManualClock, MemoryStore};

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn tuned(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[tokio::test]
    async fn a_change_is_written_down_with_what_was_before() {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::at(NOW));
        let trail = SettingsTrail::new(Some(store.clone()), clock.clone());
        let (before, after) = (tuned("{}"), tuned(r#"{"limits":{"sessions":1}}"#));
        let alice = Principal::named("alice");
        trail.note(&alice, &before, &after).await.unwrap();
        let entries = store.entries(9).await.unwrap();
        let [entry] = entries.as_slice() else {
            panic!("{entries:?}");
        };
        assert_eq!((&entry.actor, entry.at), (&alice, NOW));
        assert_eq!(
            (&*entry.action, &*entry.target),
            ("config.change", "tuning")
        );
        assert_eq!(
            entry.detail.as_deref(),
            Some(r#"{"before":{},"after":{"limits":{"sessions":1}}}"#)
        );
        store.start_failing();
        assert!(trail.note(&alice, &after, &before).await.is_err());
        let unrecorded = SettingsTrail::new(None, clock);
        assert!(unrecorded.note(&alice, &after, &before).await.is_ok());
    }

    #[test]
    fn a_view_is_expected_by_its_tag() {
        let expected = Expected::OneOf(vec!["1-a".into(), "2-b".into()]);
        assert!(expected.has("2-b") && !expected.has("3-c"));
        assert!(Expected::Any.has("3-c"));
    }
}
