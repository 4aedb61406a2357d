//! What operators and other processes change, and what they are told of.

use std::collections::HashSet;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use riglm_domain::listing::Choice;
use riglm_domain::retrieval::nearest_names;
use riglm_ports::analytics::Topic;
use riglm_ports::observer::Event;
use tokio_util::sync::CancellationToken;

use super::ask::ListAsk;
use super::lists::Lists;
use super::marks::{fits_any, next_end as end_of_first};
use crate::search::Offer;

/// How often it is looked whether operators or other processes changed something.
const LOOK_EVERY: Duration = Duration::from_secs(2);

impl Lists {
    /// Notices what operators and other processes change, until it is told to stop.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        let Some(stores) = self.stores.clone() else {
            return;
        };
        let mut known = None;
        let mut next_end = None;
        loop {
            if let Ok(revisions) = stores.changes.revisions().await {
                let now = self.clock.now();
                let at = |topic: Topic| {
                    let place = Topic::ALL.iter().position(|one| *one == topic);
                    place.map(|place| revisions[place])
                };
                let (overrides, epochs) = (at(Topic::Overrides), at(Topic::ListEpochs));
                let has_ended = next_end.is_some_and(|end| now >= end);
                let (old_overrides, old_epochs) = known.unwrap_or((None, None));
                if (overrides != old_overrides || has_ended)
                    && let Ok(all) = stores.overrides.overrides(now).await
                {
                    next_end = end_of_first(&all, now);
                    let is_same = **self.overrides.load() == all;
                    self.overrides.store(Arc::new(all));
                    if !is_same {
                        self.revision.fetch_add(1, Ordering::AcqRel);
                    }
                }
                if epochs != old_epochs {
                    self.scopes.read_again();
                }
                known = Some((overrides, epochs));
            }
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(LOOK_EVERY) => {}
            }
        }
    }

    pub(super) fn warn_of_budget(&self, ask: &ListAsk<'_>, choice: &Choice) {
        if choice.n_over_budget > 0 {
            self.observer.observe(&Event::BudgetShort);
        }
        let is_short = choice.shown.len() < self.options(ask).bounds.min_tools;
        if is_short && choice.n_over_budget > 0 && is_first(&self.warned_of_budget, ask) {
            let profile = ask.profile.unwrap_or_default();
            tracing::warn!(
                profile,
                "filtering.token_budget is too small for filtering.min_tools tools: a list has \
                 {} of them",
                choice.shown.len()
            );
        }
    }

    /// Says, once for each profile, which pins name no tool, and what they may have meant.
    pub(super) fn warn_of_pins(&self, ask: &ListAsk<'_>, offer: &Offer) {
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
                "filtering.pins: no tool is named {}; the nearest is {nearest}",
                pin.as_str()
            );
        }
    }
}

/// Returns whether this is the first warning of its kind for a profile.
fn is_first(warned: &Mutex<HashSet<String>>, ask: &ListAsk<'_>) -> bool {
    let profile = ask.profile.unwrap_or_default().to_owned();
    let mut warned = warned.lock().unwrap_or_else(PoisonError::into_inner);
    warned.insert(profile)
}
