//! Adaptive lists, which cover a given share of the calls, by conformal prediction.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::Mutex;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::AdaptiveList;
use riglm_domain::selection::conformal::ConformalThreshold;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::selection::shown::SelectionMode;

use super::config::FilteringConfig;
use super::epochs::{new_epoch, used_tools};
use super::list_predictor::{ListPredictor, expected_coverage, ranking};
use super::list_request::ListRequest;
use super::list_scope::Scope;
use super::operator_settings::OptionsChange;
use super::token_counts::DefinitionSizes;
use super::tool_marks::ToolMark;
use super::tool_selector::{SelectedTools, SelectionInputs, ToolSelector};
use riglm_discovery::search::Catalog;

// Bounds the memory; beyond it all thresholds start again.
const MAX_STEERED: usize = 4_096;

/// The lists of the policy `conformal`, each with a threshold that adapts to the calls.
#[derive(Debug)]
pub(super) struct ConformalLists {
    predictor: ListPredictor,
    selector: Arc<ToolSelector>,
    sizes: Arc<DefinitionSizes>,
    /// By principal and profile.
    thresholds: Mutex<HashMap<(Principal, String), ConformalThreshold>>,
}

impl ConformalLists {
    pub(super) fn new(
        predictor: ListPredictor,
        selector: Arc<ToolSelector>,
        sizes: Arc<DefinitionSizes>,
    ) -> Self {
        Self {
            predictor,
            selector,
            sizes,
            thresholds: Mutex::default(),
        }
    }

    /// Makes thresholds that adapted to another coverage start again.
    pub(super) fn on_options_change(&self, change: &OptionsChange) {
        let mut thresholds = self.thresholds.lock();
        thresholds.retain(|(_, profile), _| change.keeps_coverage(profile));
    }

    /// Returns the list for a request.
    pub(super) async fn list(&self, scope: &Scope, inputs: &SelectionInputs<'_>) -> Arc<ListEpoch> {
        let (request, catalog) = (inputs.request, inputs.catalog);
        if let Some(context) = request.context() {
            scope.state.lock().chosen_for = Some(Arc::clone(context));
        }
        let mut prediction = None;
        if self.predictor.has_learned(request) {
            prediction = self.predictor.predict_for_list(request, catalog).await;
        }
        let Some(prediction) = prediction else {
            let kept = used_tools(scope, request);
            let chosen = self.selector.choose(inputs, &kept, None).await;
            return Arc::new(new_epoch(scope, inputs, 1, &chosen));
        };
        let ranked = ranking(&prediction.ranked);
        let number = self.update(scope, request, inputs.options(), catalog, &ranked);
        let listed: Vec<usize> = {
            let state = scope.state.lock();
            let adaptive = state.steered.as_ref().map(|(_, list)| list.positions());
            // The expected coverage is that of the list with the decisions of the operator.
            let is_listed = |at: &usize| match inputs.marks.get(*at) {
                Some(ToolMark::Include | ToolMark::Pin) => true,
                Some(ToolMark::Exclude) => false,
                _ => adaptive.is_some_and(|listed| listed.contains(at)),
            };
            (0..catalog.tools().len()).filter(is_listed).collect()
        };
        let chosen = SelectedTools {
            expected_coverage: expected_coverage(&ranked, &listed),
            tools: listed,
            mode: SelectionMode::Prediction,
            reason: None,
            search_first: false,
            size_choice: None,
        };
        Arc::new(new_epoch(scope, inputs, number, &chosen))
    }

    /// Updates the adaptive list from a prediction; returns the number of the list.
    pub(super) fn update(
        &self,
        scope: &Scope,
        request: &ListRequest<'_>,
        options: &FilteringConfig,
        catalog: &Catalog,
        ranked: &[(usize, f64)],
    ) -> u64 {
        let n_tools = catalog.tools().len();
        let Some(threshold) = self.threshold(request, options, n_tools, |_| {}) else {
            return 1;
        };
        let bounds = options.bounds();
        let ranked = self.within_budget(bounds.token_budget, catalog, ranked);
        let mut state = scope.state.lock();
        let used: Vec<usize> = (state.used.iter())
            .filter_map(|(tool, _)| catalog.position_of(tool))
            .collect();
        let (_, mut list) = (state.steered.take())
            .filter(|(of, _)| *of == catalog.id())
            .unwrap_or_else(|| (catalog.id(), AdaptiveList::default()));
        if list.update(&threshold, ranked, used, bounds.min_tools, bounds.max_tools) {
            state.n_steered += 1;
        }
        state.steered = Some((catalog.id(), list));
        state.n_steered.max(1)
    }

    /// Returns the longest prefix of the ranking that fits into the token budget.
    fn within_budget<'a>(
        &self,
        budget: Option<u64>,
        catalog: &Catalog,
        ranked: &'a [(usize, f64)],
    ) -> &'a [(usize, f64)] {
        let Some(mut left) = budget else {
            return ranked;
        };
        let fits = ranked.iter().take_while(|(at, _)| {
            let tokens = self.sizes.of(&catalog.tools()[*at].definition);
            let rest = left.checked_sub(tokens);
            left = rest.unwrap_or(0);
            rest.is_some()
        });
        &ranked[..fits.count()]
    }

    /// Learns from a call whether the list missed the tool.
    pub(super) fn learn(
        &self,
        request: &ListRequest<'_>,
        options: &FilteringConfig,
        n_tools: usize,
        missed: bool,
    ) {
        self.threshold(request, options, n_tools, |threshold| {
            threshold.learn(missed);
        });
    }

    /// Applies `change` to the threshold of a principal under a profile and returns it; `None` if
    /// the configured coverage is invalid.
    pub(super) fn threshold(
        &self,
        request: &ListRequest<'_>,
        options: &FilteringConfig,
        n_tools: usize,
        change: impl FnOnce(&mut ConformalThreshold),
    ) -> Option<ConformalThreshold> {
        let mut all = self.thresholds.lock();
        let profile = request.profile.unwrap_or_default().to_owned();
        let key = (request.principal.clone(), profile);
        if !all.contains_key(&key) {
            let fresh = ConformalThreshold::new(options.coverage, n_tools).ok()?;
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
