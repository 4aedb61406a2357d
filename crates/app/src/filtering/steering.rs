//! Lists that are steered to cover their share of the calls.

use std::sync::{Arc, PoisonError};

use riglm_domain::conformal::ConformalThreshold;
use riglm_domain::list_epoch::ListEpoch;
use riglm_domain::list_shown::SelectionMode;
use riglm_domain::listing::{ListPolicyName, SteeredList};

use super::ask::ListAsk;
use super::choosing::{Chosen, mass, ranking};
use super::epochs::{is_fallback, kept, made};
use super::lists::Lists;
use super::marks::Mark;
use super::scope::Scope;
use crate::search::Offer;

/// The most principals whose coverage is steered.
const MAX_STEERED: usize = 4_096;

impl Lists {
    /// Returns the list that is steered to cover its share of the calls.
    pub(super) async fn steered(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        marks: &[Mark],
    ) -> (Arc<ListEpoch>, bool) {
        let policy = ListPolicyName::Conformal;
        if let Some(context) = ask.context() {
            scope.state().chosen_for = Some(Arc::clone(context));
        }
        let next_tools = self.next_tools.as_ref();
        let has_learned = next_tools.is_some_and(|next| next.has_learned());
        let prediction = has_learned.then(|| self.predict_for_list(ask, offer));
        let Some(prediction) = prediction.flatten() else {
            let kept = kept(scope, ask);
            let chosen = self.choose(policy, ask, offer, &kept, marks).await;
            let epoch = Arc::new(made(scope, ask, offer, policy, (1, chosen)));
            let is_fallback = is_fallback(&epoch);
            return (epoch, is_fallback);
        };
        let ranked = ranking(&prediction);
        let number = self.follow(scope, ask, offer, &ranked);
        let listed: Vec<usize> = {
            let state = scope.state();
            let steered = state.steered.as_ref();
            steered.map_or_else(Vec::new, |(_, list)| {
                list.listed().iter().copied().collect()
            })
        };
        let chosen = Chosen {
            mass: Some(mass(&ranked, &listed)),
            tools: listed,
            mode: SelectionMode::Prediction,
            reason: None,
            search_first: false,
        };
        let epoch = made(scope, ask, offer, policy, (number, chosen));
        (Arc::new(epoch), false)
    }

    /// Has the steered list follow a prediction; returns the number of the list.
    pub(super) fn follow(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Offer,
        ranked: &[(usize, f64)],
    ) -> u64 {
        let n_tools = offer.tools().len();
        let Some(threshold) = self.threshold(ask, n_tools, |_| {}) else {
            return 1;
        };
        let bounds = self.options(ask).bounds;
        let ranked = self.affordable(ask, offer, ranked);
        let mut state = scope.state();
        let used: Vec<usize> = (state.used.iter())
            .filter_map(|(tool, _)| offer.position_of(tool))
            .collect();
        let (_, mut list) = (state.steered.take())
            .filter(|(of, _)| *of == offer.id())
            .unwrap_or_else(|| (offer.id(), SteeredList::default()));
        if list.follow(
            &threshold,
            ranked,
            used,
            (bounds.min_tools, bounds.max_tools),
        ) {
            state.n_steered += 1;
        }
        state.steered = Some((offer.id(), list));
        state.n_steered.max(1)
    }

    /// Returns the first of the tools that fit into the budget together.
    fn affordable<'a>(
        &self,
        ask: &ListAsk<'_>,
        offer: &Offer,
        ranked: &'a [(usize, f64)],
    ) -> &'a [(usize, f64)] {
        let Some(budget) = self.options(ask).bounds.token_budget else {
            return ranked;
        };
        let mut left = budget;
        let fits = ranked.iter().take_while(|(at, _)| {
            let tokens = self.sizes.of(&offer.tools()[*at].definition);
            let rest = left.checked_sub(tokens);
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        &ranked[..fits.count()]
    }

    /// Returns the threshold of a principal under a profile after `change`; `None` where the configured coverage is
    /// none.
    pub(super) fn threshold(
        &self,
        ask: &ListAsk<'_>,
        n_tools: usize,
        change: impl FnOnce(&mut ConformalThreshold),
    ) -> Option<ConformalThreshold> {
        let mut all = self
            .thresholds
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let key = (
            ask.principal.clone(),
            ask.profile.unwrap_or_default().to_owned(),
        );
        if !all.contains_key(&key) {
            let fresh = ConformalThreshold::new(self.options(ask).coverage, n_tools).ok()?;
            if all.len() >= MAX_STEERED {
                all.clear();
            }
            all.insert(key.clone(), fresh);
        }
        let threshold = all.get_mut(&key)?;
        change(threshold);
        Some(threshold.clone())
    }
}
