//! What calls and searches do to a list: a tool that was hidden and needed makes it wider, by the
//! rule of its policy.

use std::sync::Arc;

use riglm_domain::listing::{Addition, ListPolicyName, pays_to_append};
use riglm_domain::tool::ToolRef;

use super::ask::ListAsk;
use super::choosing::ranking;
use super::lists::Lists;
use super::rendering::ShownList;

/// A tool that is less likely to be called next is not thought of.
const LEAST: f64 = 0.01;
/// How many tools are thought of at once.
const MAX_ADDED: usize = 10;

/// A call, and the list that its caller sees.
#[derive(Clone, Debug)]
pub struct ListedCall {
    /// The list.
    pub shown: Arc<ShownList>,
    /// Whether it is the first call of its tool by those who share the list, as far as calls are
    /// remembered.
    pub is_first_use: bool,
}

impl Lists {
    /// Notes that a tool is called; returns the list that its caller sees, as far as one was shown.
    pub fn called(&self, ask: &ListAsk<'_>, tool: &ToolRef) -> Option<ListedCall> {
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        let (shown, was_sought, is_first_use) = {
            let mut state = scope.state();
            let is_first_use = !state.used.iter().any(|(used, _)| used == tool);
            state.note_use(tool, ask.now);
            let sought = std::mem::take(&mut state.sought);
            (state.shown.clone(), sought.contains(tool), is_first_use)
        };
        if policy == ListPolicyName::Conformal
            && let Some(shown) = &shown
        {
            // A tool that had to be searched for was missed, although the search put it in the list.
            let missed = was_sought || !shown.shows(tool);
            let n_tools = shown.offer().tools().len();
            self.threshold(ask, n_tools, |threshold| threshold.learn(missed));
        }
        shown.map(|shown| ListedCall {
            shown,
            is_first_use,
        })
    }

    /// Notes what a search found: the call that follows tells what it was for.
    pub fn searched<'a>(&self, ask: &ListAsk<'_>, found: impl IntoIterator<Item = &'a ToolRef>) {
        if self.policy(ask) != ListPolicyName::Conformal {
            return;
        }
        let scope = self.scopes.get(ask.scope(ListPolicyName::Conformal));
        let mut state = scope.state();
        let Some(shown) = state.shown.clone() else {
            return;
        };
        let hidden = found.into_iter().filter(|tool| shown.hides(tool));
        state.sought = hidden.cloned().collect();
    }

    /// Returns whether the list for who asks may change within an epoch.
    #[must_use]
    pub fn may_change(&self, ask: &ListAsk<'_>) -> bool {
        let policy = self.policy(ask);
        matches!(policy, ListPolicyName::Append | ListPolicyName::Conformal)
    }

    /// Returns whether the client should be told that its list is another one, after a call or a
    /// search. `is_known` says which tools it was told of in answers. Only clients that then ask
    /// for the list are; a list never changes for others within an epoch.
    pub fn has_changed(&self, ask: &ListAsk<'_>, is_known: impl Fn(&ToolRef) -> bool) -> bool {
        let policy = self.policy(ask);
        if !matches!(policy, ListPolicyName::Append | ListPolicyName::Conformal) {
            return false;
        }
        let scope = self.scopes.get(ask.scope(policy));
        let Some(shown) = scope.state().shown.clone() else {
            return false;
        };
        // Without a prompt cache another list costs nothing more; with one, only who asks pays.
        if policy == ListPolicyName::Conformal && !scope.state().is_for(ask.context()) {
            return true;
        }
        if policy == ListPolicyName::Append && shown.is_whole() {
            return false;
        }
        let offer = Arc::clone(shown.offer());
        let Some(prediction) = self.predict_for_list(ask, &offer) else {
            return false;
        };
        let ranked = ranking(&prediction);
        if policy == ListPolicyName::Conformal {
            let before = scope.state().n_steered;
            return self.follow(&scope, ask, &offer, &ranked) != before.max(1);
        }
        let tools = offer.tools();
        let likely = ranked
            .iter()
            .filter(|(at, probability)| *probability >= LEAST && !shown.shows(&tools[*at].tool));
        let likely: Vec<&(usize, f64)> = likely.take(MAX_ADDED).collect();
        let additions: Vec<Addition> = (likely.iter())
            .map(|(at, probability)| Addition {
                probability: *probability,
                tokens: self.sizes.of(&tools[*at].definition),
                is_known: is_known(&tools[*at].tool),
            })
            .collect();
        let n_calls = scope.state().n_calls;
        let options = self.options(ask);
        if !pays_to_append(&options.prices, shown.shown_tokens, n_calls, &additions) {
            return false;
        }
        let added = likely.iter().map(|(at, _)| tools[*at].tool.clone());
        scope.state().added = added.collect();
        true
    }
}
