//! The overrides of operators that this process follows: those of the store, read once for lists and
//! for calls, so that a list never has a tool whose calls are refused already.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use arc_swap::{ArcSwap, Guard};
use jiff::Timestamp;
use riglm_domain::catalog::tool_override::{OverrideAction, ToolOverride};
use riglm_ports::analytics::{ChangeFeed, OverrideRepository, StoreError, Topic};
use riglm_ports::clock::Clock;
use tokio_util::sync::CancellationToken;

/// Interval for polling the changes of other processes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// The repositories of overrides.
#[derive(Clone, Debug)]
pub struct OverrideStores {
    /// The overrides.
    pub overrides: Arc<dyn OverrideRepository>,
    /// The revisions of the stored topics.
    pub changes: Arc<dyn ChangeFeed>,
}

/// The overrides that this process follows. By default there are none.
#[derive(Debug, Default)]
pub struct OperatorOverrides {
    all: ArcSwap<Vec<ToolOverride>>,
    /// Those that forbid a tool: each call asks for them.
    forbidding: ArcSwap<Vec<ToolOverride>>,
    source: Option<(OverrideStores, Arc<dyn Clock>)>,
    /// Counts the changes.
    revision: AtomicU64,
    /// Counts the changes of those that forbid.
    forbid_revision: AtomicU64,
    /// Whether the overrides of the store were read once.
    was_read: AtomicBool,
    /// Held while overrides are read, so that an older answer never replaces a newer one.
    reading: tokio::sync::Mutex<()>,
}

impl OperatorOverrides {
    /// Creates the overrides of a store. They apply after the first [read](Self::read_again).
    #[must_use]
    pub fn of_store(stores: OverrideStores, clock: Arc<dyn Clock>) -> Self {
        Self {
            source: Some((stores, clock)),
            ..Self::default()
        }
    }

    /// Returns whether the overrides are known: they were read since the start, or there is no store.
    #[must_use]
    pub fn is_known(&self) -> bool {
        self.source.is_none() || self.was_read.load(Ordering::Acquire)
    }

    /// Returns the overrides. Some may have ended since they were read.
    pub(super) fn all(&self) -> Arc<Vec<ToolOverride>> {
        self.all.load_full()
    }

    /// Returns the overrides that forbid a tool. Some may have ended since they were read.
    pub(super) fn forbidding(&self) -> Guard<Arc<Vec<ToolOverride>>> {
        self.forbidding.load()
    }

    /// Returns the revision; it grows with each change. Overrides that are requested afterwards are at
    /// least that new.
    pub(super) fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Returns the revision of the overrides that forbid a tool; it grows with each change.
    pub(super) fn forbid_revision(&self) -> u64 {
        self.forbid_revision.load(Ordering::Acquire)
    }

    /// Replaces the overrides. Equal ones make no other revision, so that no list is selected again
    /// because of them.
    pub(super) fn set(&self, overrides: Vec<ToolOverride>) {
        if **self.all.load() == overrides {
            return;
        }
        let forbidding: Vec<ToolOverride> = forbidding(&overrides).cloned().collect();
        self.all.store(Arc::new(overrides));
        self.revision.fetch_add(1, Ordering::AcqRel);
        if **self.forbidding.load() != forbidding {
            self.forbidding.store(Arc::new(forbidding));
            self.forbid_revision.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Reads the overrides of the store.
    ///
    /// # Errors
    ///
    /// Returns the error of the store; the earlier overrides stay in effect then.
    pub async fn read_again(&self) -> Result<(), StoreError> {
        let Some((stores, clock)) = &self.source else {
            return Ok(());
        };
        let _reading = self.reading.lock().await;
        self.set(stores.overrides.overrides(clock.now()).await?);
        self.was_read.store(true, Ordering::Release);
        Ok(())
    }

    /// Polls for the end of overrides and for changes of other processes until `stop` is cancelled.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let Some((stores, clock)) = &self.source else {
            return;
        };
        let mut known = None;
        loop {
            // After an error the next poll reads again.
            if let Ok(revisions) = stores.changes.revisions().await {
                let revision = Some(Topic::Overrides.revision(&revisions));
                let is_due = revision != known || self.has_ended(clock.now());
                // A change counts as seen only after it was read, so that a failed read is retried.
                if is_due && self.read_again().await.is_ok() {
                    known = revision;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    /// Returns whether an override has ended since they were read.
    fn has_ended(&self, now: Timestamp) -> bool {
        self.all.load().iter().any(|one| !one.is_active(now))
    }
}

pub(super) fn forbidding(overrides: &[ToolOverride]) -> impl Iterator<Item = &ToolOverride> {
    let forbids = |one: &&ToolOverride| one.action == OverrideAction::Forbid;
    overrides.iter().filter(forbids)
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use riglm_domain::id::AuditId;
    use riglm_domain::privacy::audit::AuditEntry;
    use riglm_domain::privacy::principal::Principal;
    use riglm_ports::fake::{ManualClock, MemoryStore};

    use super::*;
    use crate::selection::test_overrides::{FailingOverrides, override_for_all};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    async fn store_override(store: &MemoryStore, decided: &ToolOverride) {
        let audit = AuditEntry {
            id: AuditId::new(NOW, [1; 10]),
            at: NOW,
            actor: Principal::local(),
            action: "override.create".into(),
            target: decided.tool.clone(),
            detail: None,
        };
        store.set_override(decided, &audit).await.unwrap();
    }

    fn overrides_of(store: &Arc<FailingOverrides>, clock: &Arc<ManualClock>) -> OperatorOverrides {
        let stores = OverrideStores {
            overrides: Arc::<FailingOverrides>::clone(store),
            changes: Arc::<MemoryStore>::clone(&store.store),
        };
        OperatorOverrides::of_store(stores, Arc::<ManualClock>::clone(clock))
    }

    #[tokio::test]
    async fn overrides_are_known_after_they_were_read() {
        let clock = Arc::new(ManualClock::at(NOW));
        let none = OperatorOverrides::default();
        assert!(none.is_known(), "there are no overrides");
        let store = Arc::new(FailingOverrides::default());
        store.is_failing.store(true, Ordering::SeqCst);
        let overrides = overrides_of(&store, &clock);
        assert!(overrides.read_again().await.is_err() && !overrides.is_known());
        store.is_failing.store(false, Ordering::SeqCst);
        overrides.read_again().await.unwrap();
        store.is_failing.store(true, Ordering::SeqCst);
        assert!(overrides.read_again().await.is_err());
        assert!(overrides.is_known(), "what was read holds");
    }

    #[tokio::test(start_paused = true)]
    async fn unread_changes_are_retried_at_the_next_poll() {
        let store = Arc::new(FailingOverrides::default());
        let overrides = Arc::new(overrides_of(&store, &Arc::new(ManualClock::at(NOW))));
        let watch = tokio::spawn(Arc::clone(&overrides).keep_watch(CancellationToken::new()));
        let polls = |n: u32| tokio::time::sleep(POLL_INTERVAL * n + POLL_INTERVAL / 2);
        polls(1).await;
        store.is_failing.store(true, Ordering::SeqCst);
        store_override(
            &store.store,
            &override_for_all("rare", OverrideAction::Exclude),
        )
        .await;
        let n_before = store.n_tried.load(Ordering::SeqCst);
        polls(3).await;
        assert!(store.n_tried.load(Ordering::SeqCst) > n_before);
        assert!(overrides.all().is_empty());
        store.is_failing.store(false, Ordering::SeqCst);
        polls(1).await;
        assert_eq!(overrides.all().len(), 1);
        // An override that was read is not read again.
        let n_read = store.n_tried.load(Ordering::SeqCst);
        polls(3).await;
        assert_eq!(store.n_tried.load(Ordering::SeqCst), n_read);
        watch.abort();
    }

    #[tokio::test(start_paused = true)]
    async fn an_override_is_read_again_after_its_end() {
        let store = Arc::new(FailingOverrides::default());
        let clock = Arc::new(ManualClock::at(NOW));
        let overrides = Arc::new(overrides_of(&store, &clock));
        let ending = ToolOverride {
            expires_at: Some(NOW + SignedDuration::from_secs(90)),
            ..override_for_all("rare", OverrideAction::Pin)
        };
        store_override(&store.store, &ending).await;
        let watch = tokio::spawn(Arc::clone(&overrides).keep_watch(CancellationToken::new()));
        tokio::time::sleep(POLL_INTERVAL / 2).await;
        assert_eq!((overrides.all().len(), overrides.revision()), (1, 1));
        clock.advance(Duration::from_secs(90));
        tokio::time::sleep(POLL_INTERVAL).await;
        assert_eq!((overrides.all().len(), overrides.revision()), (0, 2));
        watch.abort();
    }

    #[test]
    fn revisions_grow_only_with_changes() {
        let overrides = OperatorOverrides::default();
        let revisions = || (overrides.revision(), overrides.forbid_revision());
        let pin = override_for_all("a", OverrideAction::Pin);
        let forbid = override_for_all("b", OverrideAction::Forbid);
        for (all, expected) in [
            (vec![], (0, 0)),
            (vec![pin.clone()], (1, 0)),
            (vec![pin.clone()], (1, 0)),
            (vec![pin, forbid.clone()], (2, 1)),
            (vec![forbid.clone()], (3, 1)),
            (vec![forbid], (3, 1)),
            (vec![], (4, 2)),
        ] {
            overrides.set(all);
            assert_eq!(revisions(), expected);
        }
    }
}
