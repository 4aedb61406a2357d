//! Adaptive lists, which cover a given share of the calls, by conformal prediction.

use std::sync::Arc;

use riglm_domain::selection::conformal::ConformalThreshold;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::SelectionMode;
use riglm_domain::selection::{AdaptiveList, ListPolicyName};

use super::epochs::{is_fallback, new_epoch, used_tools};
use super::list_request::ListRequest;
use super::lists::Lists;
use super::marks::ToolMark;
use super::scope::Scope;
use super::selection::{SelectedTools, ranking, summed_probability};
use riglm_discovery::search::Catalog;

// Bounds the memory; beyond it all thresholds start again.
const MAX_STEERED: usize = 4_096;

impl Lists {
    /// Returns the list for the policy `conformal`, and whether it is a fallback.
    pub(super) async fn conformal_list(
        &self,
        scope: &Scope,
        ask: &ListRequest<'_>,
        offer: &Arc<Catalog>,
        marks: &[ToolMark],
    ) -> (Arc<ListEpoch>, bool) {
        let policy = ListPolicyName::Conformal;
        if let Some(context) = ask.context() {
            scope.state.lock().chosen_for = Some(Arc::clone(context));
        }
        let next_tools = self.next_tools.as_ref();
        let has_learned = next_tools.is_some_and(|next| next.has_learned());
        let prediction = has_learned.then(|| self.predict_for_list(ask, offer));
        let Some(prediction) = prediction.flatten() else {
            let kept = used_tools(scope, ask);
            let chosen = self.choose(policy, ask, offer, &kept, marks).await;
            let epoch = Arc::new(new_epoch(scope, ask, offer, policy, (1, chosen)));
            let is_fallback = is_fallback(&epoch);
            return (epoch, is_fallback);
        };
        let ranked = ranking(&prediction);
        let number = self.update_conformal_list(scope, ask, offer, &ranked);
        let listed: Vec<usize> = {
            let state = scope.state.lock();
            let steered = state.steered.as_ref();
            steered.map_or_else(Vec::new, |(_, list)| {
                list.positions().iter().copied().collect()
            })
        };
        let chosen = SelectedTools {
            mass: Some(summed_probability(&ranked, &listed)),
            tools: listed,
            mode: SelectionMode::Prediction,
            reason: None,
            search_first: false,
        };
        let epoch = new_epoch(scope, ask, offer, policy, (number, chosen));
        (Arc::new(epoch), false)
    }

    /// Updates the adaptive list from a prediction; returns the number of the list.
    pub(super) fn update_conformal_list(
        &self,
        scope: &Scope,
        ask: &ListRequest<'_>,
        offer: &Catalog,
        ranked: &[(usize, f64)],
    ) -> u64 {
        let n_tools = offer.tools().len();
        let Some(threshold) = self.threshold(ask, n_tools, |_| {}) else {
            return 1;
        };
        let bounds = self.options(ask).bounds;
        let ranked = self.within_budget(ask, offer, ranked);
        let mut state = scope.state.lock();
        let used: Vec<usize> = (state.used.iter())
            .filter_map(|(tool, _)| offer.position_of(tool))
            .collect();
        let (_, mut list) = (state.steered.take())
            .filter(|(of, _)| *of == offer.id())
            .unwrap_or_else(|| (offer.id(), AdaptiveList::default()));
        if list.update(
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

    /// Returns the longest prefix of the ranking that fits into the token budget.
    fn within_budget<'a>(
        &self,
        ask: &ListRequest<'_>,
        offer: &Catalog,
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

    /// Applies `change` to the threshold of a principal under a profile and returns it; `None` if
    /// the configured coverage is invalid.
    pub(super) fn threshold(
        &self,
        ask: &ListRequest<'_>,
        n_tools: usize,
        change: impl FnOnce(&mut ConformalThreshold),
    ) -> Option<ConformalThreshold> {
        let mut all = self.thresholds.lock();
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
