//! Effects of calls and searches on a list: a hidden tool that was needed makes the list wider, by
//! the rule of its policy.

use std::sync::Arc;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::selection::{AppendCandidate, ListPolicyName, pays_to_append};

use super::list_predictor::ranking;
use super::list_request::ListRequest;
use super::lists::Lists;
use super::rendering::ShownList;

/// The least probability of a next call at which a tool is considered.
const MIN_PROBABILITY: f64 = 0.01;
/// The most tools that are considered at once.
const MAX_ADDED: usize = 10;

/// A call with the list that its client sees.
#[derive(Clone, Debug)]
pub struct ListedCall {
    /// The list.
    pub shown: Arc<ShownList>,
    /// Whether this is the first known call of the tool in the scope of the list.
    pub is_first_use: bool,
}

impl Lists {
    /// Records the call of a tool; returns the current list of the client, if one was shown.
    pub fn record_call(&self, request: &ListRequest<'_>, tool: &ToolRef) -> Option<ListedCall> {
        let policy = self.policy(request);
        let scope = self.scopes.get(request.scope(policy));
        let (shown, was_sought, is_first_use) = {
            let mut state = scope.state.lock();
            let is_first_use = !state.used.iter().any(|(used, _)| used == tool);
            state.note_use(tool, request.now);
            // Only the first call after a search is evidence of its purpose.
            let sought = std::mem::take(&mut state.sought);
            (state.shown.clone(), sought.contains(tool), is_first_use)
        };
        if policy == ListPolicyName::Conformal
            && let Some(shown) = &shown
        {
            // A tool that was searched for counts as missed, even if the search has put it into the
            // list meanwhile.
            let missed = was_sought || !shown.shows(tool);
            let n_tools = shown.catalog().tools().len();
            let options = self.settings.options(request.profile);
            self.conformal.learn(request, &options, n_tools, missed);
        }
        shown.map(|shown| ListedCall {
            shown,
            is_first_use,
        })
    }

    /// Records the tools that a search found. The next call shows whether the search was for a
    /// hidden one.
    pub fn record_search<'a>(
        &self,
        request: &ListRequest<'_>,
        found: impl IntoIterator<Item = &'a ToolRef>,
    ) {
        if self.policy(request) != ListPolicyName::Conformal {
            return;
        }
        let scope = self.scopes.get(request.scope(ListPolicyName::Conformal));
        let mut state = scope.state.lock();
        let Some(shown) = state.shown.clone() else {
            return;
        };
        let hidden = found.into_iter().filter(|tool| shown.hides(tool));
        state.sought = hidden.cloned().collect();
    }

    /// Returns whether the list of this client may change within an epoch.
    #[must_use]
    pub fn may_change(&self, request: &ListRequest<'_>) -> bool {
        let policy = self.policy(request);
        matches!(policy, ListPolicyName::Append | ListPolicyName::Conformal)
    }

    /// Returns whether the client needs a `list_changed` notification after a call or a search.
    /// `is_known` returns whether an earlier answer already named the tool to the client. Only
    /// clients that then request the list get another one; for others a list never changes within
    /// an epoch.
    pub async fn has_changed(
        &self,
        request: &ListRequest<'_>,
        is_known: impl Fn(&ToolRef) -> bool,
    ) -> bool {
        let policy = self.policy(request);
        if !matches!(policy, ListPolicyName::Append | ListPolicyName::Conformal) {
            return false;
        }
        let scope = self.scopes.get(request.scope(policy));
        let Some(shown) = scope.state.lock().shown.clone() else {
            return false;
        };
        // Without a prompt cache another list costs nothing extra. With one, only a client that
        // requests its list pays.
        if policy == ListPolicyName::Conformal && !scope.state.lock().is_for(request.context()) {
            return true;
        }
        if policy == ListPolicyName::Append && shown.is_whole() {
            return false;
        }
        let catalog = Arc::clone(shown.catalog());
        let Some(prediction) = self.predictor.predict_for_list(request, &catalog).await else {
            return false;
        };
        let ranked = ranking(&prediction.ranked);
        let options = self.settings.options(request.profile);
        if policy == ListPolicyName::Conformal {
            let before = scope.state.lock().n_steered;
            let number = (self.conformal).update(&scope, request, &options, &catalog, &ranked);
            return number != before.max(1);
        }
        let tools = catalog.tools();
        let likely = ranked.iter().filter(|(at, probability)| {
            *probability >= MIN_PROBABILITY && !shown.shows(&tools[*at].tool)
        });
        let likely: Vec<&(usize, f64)> = likely.take(MAX_ADDED).collect();
        let additions: Vec<AppendCandidate> = (likely.iter())
            .map(|(at, probability)| AppendCandidate {
                probability: *probability,
                tokens: self.sizes.of(&tools[*at].definition),
                is_known: is_known(&tools[*at].tool),
            })
            .collect();
        let n_calls = scope.state.lock().n_calls;
        // With `append`, an addition must pay for the tokens that the prompt cache loses.
        let prices = options.prices(self.search.load().answer);
        if !pays_to_append(&prices, shown.shown_tokens, n_calls, &additions) {
            return false;
        }
        let added = likely.iter().map(|(at, _)| tools[*at].tool.clone());
        scope.state.lock().added = added.collect();
        true
    }
}
