//! Changes of operators and of other processes to lists.

use std::time::Duration;

use riglm_ports::analytics::Topic;
use riglm_ports::clock::Clock;
use tokio_util::sync::CancellationToken;

use super::list_scope::Scopes;
use super::lists::ListStores;
use super::operator_settings::OperatorSettings;
use super::tool_marks::next_end as end_of_first;

/// Interval for polling changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

/// Polls for changes of overrides and epochs until `stop` is cancelled.
pub(super) async fn keep_watch(
    stores: &ListStores,
    clock: &dyn Clock,
    settings: &OperatorSettings,
    scopes: &Scopes,
    stop: &CancellationToken,
) {
    let (mut known_overrides, mut known_epochs) = (None, None);
    let mut next_end = None;
    loop {
        // After an error the next poll reads again.
        if let Ok(revisions) = stores.changes.revisions().await {
            let now = clock.now();
            let overrides = Some(Topic::Overrides.revision(&revisions));
            let has_ended = next_end.is_some_and(|end| now >= end);
            // A change counts as seen only after it was read, so that a failed read is retried.
            if (overrides != known_overrides || has_ended)
                && let Ok(all) = stores.overrides.overrides(now).await
            {
                known_overrides = overrides;
                next_end = end_of_first(&all, now);
                settings.set_overrides(all);
            }
            let epochs = Some(Topic::ListEpochs.revision(&revisions));
            if epochs != known_epochs {
                scopes.read_again();
                known_epochs = epochs;
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    use jiff::Timestamp;
    use riglm_discovery::learning::LivePredictions;
    use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
    use riglm_domain::id::{AuditId, OverrideId};
    use riglm_domain::privacy::audit::AuditEntry;
    use riglm_domain::privacy::principal::Principal;
    use riglm_ports::analytics::OverrideRepository;
    use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};
    use riglm_ports::observer::NoObserver;

    use super::*;
    use crate::selection::failing_overrides::FailingOverrides;
    use crate::selection::{FilteringConfig, Lists, ListsParts, SearchTerms};

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    async fn exclude(store: &MemoryStore) {
        let decided = ToolOverride {
            id: OverrideId::new(NOW, [1; 10]),
            tool: "rare".into(),
            action: OverrideAction::Exclude,
            scope: OverrideScope::Global,
            expires_at: None,
            reason: None,
            created_by: Principal::local(),
            created_at: NOW,
        };
        let audit = AuditEntry {
            id: AuditId::new(NOW, [1; 10]),
            at: NOW,
            actor: Principal::local(),
            action: "override.create".into(),
            target: "rare".into(),
            detail: None,
        };
        store.set_override(&decided, &audit).await.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn unread_changes_are_retried_at_the_next_poll() {
        let store = Arc::new(FailingOverrides::default());
        let rows = Arc::clone(&store.store);
        let lists = Arc::new(Lists::new(ListsParts {
            experiments: None,
            search: SearchTerms::default(),
            observer: Arc::new(NoObserver),
            options: FilteringConfig::default(),
            profiles: HashMap::new(),
            predictions: LivePredictions::default(),
            stores: Some(ListStores {
                epochs: rows.clone(),
                overrides: store.clone(),
                usage: rows.clone(),
                activities: rows.clone(),
                changes: rows.clone(),
            }),
            counter: Arc::new(WordCounter),
            clock: Arc::new(ManualClock::at(NOW)),
        }));
        let watch = tokio::spawn(Arc::clone(&lists).keep_watch(CancellationToken::new()));
        let looks = |n: u32| tokio::time::sleep(POLL_INTERVAL * n + POLL_INTERVAL / 2);
        looks(1).await;
        store.is_failing.store(true, Ordering::SeqCst);
        exclude(&store.store).await;
        let n_before = store.n_tried.load(Ordering::SeqCst);
        looks(3).await;
        assert!(store.n_tried.load(Ordering::SeqCst) > n_before);
        assert!(lists.settings.overrides().is_empty());
        store.is_failing.store(false, Ordering::SeqCst);
        looks(1).await;
        assert_eq!(lists.settings.overrides().len(), 1);
        // An override that was read is not read again.
        let n_read = store.n_tried.load(Ordering::SeqCst);
        looks(3).await;
        assert_eq!(store.n_tried.load(Ordering::SeqCst), n_read);
        watch.abort();
    }
}
