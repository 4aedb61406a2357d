//! Settings that can change at run time: the interface for the control port, and the audit trail of
//! changes. The settings themselves and their effect are defined by the composition of the process.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::StoreError;
use serde_json::{Map, Value, json};

use super::audit_log::{AuditLog, AuditedAction};

/// The settings at one time.
#[derive(Clone, Debug, PartialEq)]
pub struct SettingsView {
    /// Counts the changes of [`Self::tuning`].
    pub version: u64,
    /// The tuned settings, in sections.
    pub tuning: Map<String, Value>,
    /// All settings in use, in sections, without secrets.
    pub effective: Value,
    /// The keys that can be tuned, with dots.
    pub tunable: Vec<String>,
    /// Identifies this view: printable ASCII without quotes.
    pub tag: String,
}

/// The view that a change is based on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ExpectedView {
    /// Any view.
    Any,
    /// A view with one of these tags.
    OneOf(Vec<String>),
}

impl ExpectedView {
    /// Returns whether the view with this tag is expected.
    #[must_use]
    pub fn has(&self, tag: &str) -> bool {
        match self {
            Self::Any => true,
            Self::OneOf(tags) => tags.iter().any(|expected| expected == tag),
        }
    }
}

/// The reason why settings were not changed.
#[derive(Debug, thiserror::Error)]
pub enum SettingsError {
    /// Another change was made since.
    #[error("the configuration has changed; read it again")]
    Stale,
    /// A key or a value is not accepted.
    #[error("{key}: {reason}")]
    Refused {
        /// The key, with dots.
        key: String,
        /// The reason.
        reason: String,
    },
    /// The settings outside of the tuning are invalid, so that nothing can be checked.
    #[error("invalid configuration, independent of the tuning: {0}")]
    Unusable(String),
    /// The change cannot be saved.
    #[error("failed to write the tuning")]
    Unwritable(#[source] std::io::Error),
    /// The audit trail failed.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The future of a change of settings.
pub type ReplaceFuture<'a> =
    Pin<Box<dyn Future<Output = Result<Arc<SettingsView>, SettingsError>> + Send + 'a>>;

/// The settings of a process.
pub trait Settings: Send + Sync + fmt::Debug {
    /// Returns the current settings.
    fn view(&self) -> Arc<SettingsView>;

    /// Replaces the whole tuning: keys that are missing in `tuning` get their values without
    /// tuning. Of several changes from the same view exactly one succeeds. A dropped future still
    /// runs to its end.
    ///
    /// # Errors
    ///
    /// Returns [`SettingsError`]; nothing has changed then.
    fn replace<'a>(
        &'a self,
        tuning: Map<String, Value>,
        expected: ExpectedView,
        actor: &'a Principal,
    ) -> ReplaceFuture<'a>;
}

/// The settings of the process, shared by the services that read or change them.
pub type SharedSettings = Arc<dyn Settings>;

/// Records changes of settings with their actor, in the audit trail (if there is one) and in the
/// log.
#[derive(Debug)]
pub struct SettingsTrail(AuditLog);

impl SettingsTrail {
    /// Creates a trail over an audit log.
    #[must_use]
    pub fn new(log: AuditLog) -> Self {
        Self(log)
    }

    /// Records a change of the tuning.
    ///
    /// # Errors
    ///
    /// Returns the error of the store.
    pub async fn note(
        &self,
        actor: &Principal,
        before: &Map<String, Value>,
        after: &Map<String, Value>,
    ) -> Result<(), StoreError> {
        let action = AuditedAction {
            name: "config.change",
            target: "tuning",
        };
        let detail = json!({"before": before, "after": after}).to_string();
        self.0.add(actor, action, Some(detail)).await?;
        tracing::info!(%actor, "{actor} changes the tuning");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;
    use riglm_ports::analytics::AuditTrail as _;
    use riglm_ports::fake::{ManualClock, MemoryStore};

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn tuning_map(text: &str) -> Map<String, Value> {
        serde_json::from_str(text).unwrap()
    }

    #[tokio::test]
    async fn changes_are_audited_with_values_before_and_after() {
        let store = Arc::new(MemoryStore::default());
        let clock = Arc::new(ManualClock::at(NOW));
        let trail = SettingsTrail::new(AuditLog::new(Some(store.clone()), clock.clone()));
        let (before, after) = (tuning_map("{}"), tuning_map(r#"{"limits":{"sessions":1}}"#));
        let alice = Principal::from_name("alice");
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
        let unrecorded = SettingsTrail::new(AuditLog::new(None, clock));
        assert!(unrecorded.note(&alice, &after, &before).await.is_ok());
    }

    #[test]
    fn a_view_is_expected_by_its_tag() {
        let expected = ExpectedView::OneOf(vec!["1-a".into(), "2-b".into()]);
        assert!(expected.has("2-b") && !expected.has("3-c"));
        assert!(ExpectedView::Any.has("3-c"));
    }
}
