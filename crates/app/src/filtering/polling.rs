//! Changes of operators and of other processes to lists, and warnings for operators.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use parking_lot::Mutex;
use riglm_domain::retrieval::nearest_names;
use riglm_domain::selection::ListChoice;
use riglm_ports::analytics::Topic;
use riglm_ports::observer::{Event, EventOrigin};
use tokio_util::sync::CancellationToken;

use super::list_request::ListRequest;
use super::lists::Lists;
use super::marks::{fits_any, next_end as end_of_first};
use riglm_discovery::search::Catalog;

/// Interval for polling changes.
const POLL_INTERVAL: Duration = Duration::from_secs(2);

impl Lists {
    /// Polls for changes of overrides and epochs until `stop` is cancelled.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let Some(stores) = self.stores.clone() else {
            return;
        };
        let (mut known_overrides, mut known_epochs) = (None, None);
        let mut next_end = None;
        loop {
            // After an error the next poll reads again.
            if let Ok(revisions) = stores.changes.revisions().await {
                let now = self.clock.now();
                let overrides = Some(Topic::Overrides.revision(&revisions));
                let has_ended = next_end.is_some_and(|end| now >= end);
                // A change counts as seen only after it was read, so that a failed read is retried.
                if (overrides != known_overrides || has_ended)
                    && let Ok(all) = stores.overrides.overrides(now).await
                {
                    known_overrides = overrides;
                    next_end = end_of_first(&all, now);
                    // Equal overrides must not make lists be selected again.
                    let is_same = **self.overrides.load() == all;
                    self.overrides.store(Arc::new(all));
                    if !is_same {
                        self.revision.fetch_add(1, Ordering::AcqRel);
                    }
                }
                let epochs = Some(Topic::ListEpochs.revision(&revisions));
                if epochs != known_epochs {
                    self.scopes.read_again();
                    known_epochs = epochs;
                }
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(POLL_INTERVAL) => {}
            }
        }
    }

    pub(super) fn warn_of_budget(&self, ask: &ListRequest<'_>, choice: &ListChoice) {
        if choice.n_over_budget > 0 {
            self.observer.observe_from(
                &Event::BudgetShort,
                &EventOrigin::of_session(ask.principal, ask.session),
            );
        }
        let is_short = choice.shown.len() < self.options(ask).bounds.min_tools;
        if is_short && choice.n_over_budget > 0 && is_first(&self.warned_of_budget, ask) {
            let profile = ask.profile.unwrap_or_default();
            tracing::warn!(
                profile,
                "filtering.token_budget is too small for filtering.min_tools: a list has only {} \
                 tools",
                choice.shown.len()
            );
        }
    }

    /// Logs once for each profile the pins that match no tool, with the nearest tool name.
    pub(super) fn warn_of_pins(&self, ask: &ListRequest<'_>, offer: &Catalog) {
        let options = self.options(ask);
        let pins = &options.pins;
        if pins.is_empty() {
            return;
        }
        if !is_first(&self.warned_of_pins, ask) {
            return;
        }
        let profile = ask.profile.unwrap_or_default();
        let tools = offer.tools();
        for pin in pins {
            if tools
                .iter()
                .any(|tool| fits_any(std::slice::from_ref(pin), tool))
            {
                continue;
            }
            let names: Vec<&str> = tools.iter().map(|tool| tool.name.as_str()).collect();
            let nearest = nearest_names(pin.as_str(), &names, 1);
            let nearest = nearest.first().map_or("none", |at| names[*at]);
            tracing::warn!(
                profile,
                "filtering.pins: no tool matches {}; the nearest name is {nearest}",
                pin.as_str()
            );
        }
    }
}

/// Returns whether this is the first warning of its kind for a profile.
fn is_first(warned: &Mutex<HashSet<String>>, ask: &ListRequest<'_>) -> bool {
    let profile = ask.profile.unwrap_or_default().to_owned();
    let mut warned = warned.lock();
    warned.insert(profile)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use jiff::Timestamp;
    use riglm_domain::catalog::tool_override::{OverrideAction, OverrideScope, ToolOverride};
    use riglm_domain::id::{AuditId, OverrideId};
    use riglm_domain::privacy::audit::AuditEntry;
    use riglm_domain::privacy::principal::Principal;
    use riglm_ports::analytics::OverrideRepository;
    use riglm_ports::fake::{ManualClock, MemoryStore, WordCounter};
    use riglm_ports::observer::NoObserver;

    use super::*;
    use crate::filtering::failing_overrides::FailingOverrides;
    use crate::filtering::{ListOptions, ListStores, ListsParts};

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
    async fn a_change_that_could_not_be_read_is_read_at_the_next_look() {
        let store = Arc::new(FailingOverrides::default());
        let rows = Arc::clone(&store.store);
        let lists = Arc::new(Lists::new(ListsParts {
            observer: Arc::new(NoObserver),
            options: ListOptions::default(),
            profiles: HashMap::new(),
            next_tools: None,
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
        assert!(lists.overrides.load().is_empty());
        store.is_failing.store(false, Ordering::SeqCst);
        looks(1).await;
        assert_eq!(lists.overrides.load().len(), 1);
        // An override that was read is not read again.
        let n_read = store.n_tried.load(Ordering::SeqCst);
        looks(3).await;
        assert_eq!(store.n_tried.load(Ordering::SeqCst), n_read);
        watch.abort();
    }
}
