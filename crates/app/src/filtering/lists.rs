//! Lists of tools by what is learned: one for each work session or, where revisions do not let
//! lists depend on sessions, for each principal and profile.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use arc_swap::ArcSwap;
use riglm_domain::conformal::ConformalThreshold;
use riglm_domain::experiment::Lever;
use riglm_domain::list_shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::listing::{ListPolicyName, TopicWords};
use riglm_domain::principal::Principal;
use riglm_domain::tool_override::ToolOverride;
use riglm_ports::analytics::{
    ChangeFeed, ListActivityRepository, ListEpochRepository, OverrideRepository, UsageRepository,
};
use riglm_ports::clock::Clock;
use riglm_ports::observer::Observer;
use riglm_ports::token_counter::TokenCounter;

use super::ask::ListAsk;
use super::epochs::{by_names, whole};
use super::marks::narrow;
use super::options::ListOptions;
use super::policy::policy_of;
use super::rendering::{Rendering, ShownList, render};
use super::scope::{Scope, Scopes};
use super::sizes::Sizes;
use super::wanted::{Numbered, Wanted};
use crate::experiments::{Experiments, Participant};
use crate::learning::NextTools;
use crate::search::Offer;

/// The most names of clients that are remembered.
const MAX_CLIENTS: usize = 1_000;
/// The longest of them.
const MAX_NAME_CHARS: usize = 200;

/// Where lists are kept, so that all processes agree on them.
#[derive(Clone, Debug)]
pub struct ListStores {
    /// The epochs.
    pub epochs: Arc<dyn ListEpochRepository>,
    /// What operators decided.
    pub overrides: Arc<dyn OverrideRepository>,
    /// How often tools were called.
    pub usage: Arc<dyn UsageRepository>,
    /// What work sessions called.
    pub activities: Arc<dyn ListActivityRepository>,
    /// What changed.
    pub changes: Arc<dyn ChangeFeed>,
}

/// What [`Lists`] are made of.
#[derive(Debug)]
pub struct ListsParts {
    /// What the operator wants.
    pub options: ListOptions,
    /// The same for clients that are connected under a profile, by its name.
    pub profiles: HashMap<String, ListOptions>,
    /// What predicts; `None` where nothing is learned.
    pub next_tools: Option<Arc<NextTools>>,
    /// Where lists are kept; `None` where nothing is recorded.
    pub stores: Option<ListStores>,
    /// Counts tokens of definitions.
    pub counter: Arc<dyn TokenCounter>,
    /// Tells the time.
    pub clock: Arc<dyn Clock>,
    /// Is told of lists that a budget makes short.
    pub observer: Arc<dyn Observer>,
}

/// Decides what lists show.
#[derive(Debug)]
pub struct Lists {
    wanted: ArcSwap<Wanted>,
    pub(super) next_tools: Option<Arc<NextTools>>,
    pub(super) stores: Option<ListStores>,
    pub(super) sizes: Arc<Sizes>,
    pub(super) scopes: Scopes,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) overrides: ArcSwap<Vec<ToolOverride>>,
    /// Counts what operators decided, in overrides and in options.
    pub(super) revision: AtomicU64,
    relisting: Mutex<HashSet<String>>,
    pub(super) thresholds: Mutex<HashMap<(Principal, String), ConformalThreshold>>,
    /// The profiles whose budget was warned of.
    pub(super) warned_of_budget: Mutex<HashSet<String>>,
    /// The profiles whose pins were looked at.
    pub(super) warned_of_pins: Mutex<HashSet<String>>,
    /// What is tried out on a part of the clients.
    experiments: Option<Arc<Experiments>>,
    /// The words by which it is told what a client says that it does.
    pub(super) words: TopicWords,
}

/// Returns who takes part in experiments with lists.
fn participant<'a>(ask: &ListAsk<'a>) -> Participant<'a> {
    Participant::of(ask.principal, ask.session)
}

impl Lists {
    /// Returns lists made of these parts.
    #[must_use]
    pub fn new(parts: ListsParts) -> Self {
        Self {
            wanted: ArcSwap::from_pointee(Wanted::new(parts.options, parts.profiles)),
            next_tools: parts.next_tools,
            stores: parts.stores,
            sizes: Arc::new(Sizes::new(parts.counter)),
            scopes: Scopes::default(),
            clock: parts.clock,
            observer: parts.observer,
            overrides: ArcSwap::default(),
            revision: AtomicU64::new(0),
            relisting: Mutex::default(),
            thresholds: Mutex::default(),
            warned_of_budget: Mutex::default(),
            warned_of_pins: Mutex::default(),
            experiments: None,
            words: TopicWords::shipped(),
        }
    }

    /// Has texts read by other words than those that come with riglm.
    #[must_use]
    pub fn with_words(self, words: TopicWords) -> Self {
        Self { words, ..self }
    }

    /// Has the policies of some clients be those of their arms.
    #[must_use]
    pub fn with_experiments(self, experiments: Option<Arc<Experiments>>) -> Self {
        Self {
            experiments,
            ..self
        }
    }

    /// Returns what the operator wants of the lists of who asks.
    pub(super) fn options(&self, ask: &ListAsk<'_>) -> Arc<ListOptions> {
        self.options_under(ask.profile)
    }

    /// Returns what the operator wants of the lists under a profile.
    pub(super) fn options_under(&self, profile: Option<&str>) -> Arc<ListOptions> {
        Arc::clone(&self.wanted.load().of(profile).options)
    }

    /// Returns the same, with what tells it from what the operator wanted before.
    pub(super) fn numbered(&self, ask: &ListAsk<'_>) -> Numbered {
        self.wanted.load().of(ask.profile).clone()
    }

    /// Takes over what the operator wants by now, in general and under each profile; returns whether
    /// that is something else. Lists of which it is are chosen anew when they are asked for, as they
    /// are after a decision about a tool; what was used stays in them.
    pub fn set_options(
        &self,
        options: ListOptions,
        profiles: HashMap<String, ListOptions>,
    ) -> bool {
        let known = self.wanted.load_full();
        let Some(wanted) = known.replaced(options, profiles, self.clock.now()) else {
            return false;
        };
        let coverage = |wanted: &Wanted, profile: &str| wanted.of(Some(profile)).options.coverage;
        let wanted = Arc::new(wanted);
        self.wanted.store(Arc::clone(&wanted));
        // Thresholds that were steered to another coverage start again.
        let mut thresholds = (self.thresholds.lock()).unwrap_or_else(PoisonError::into_inner);
        thresholds.retain(|(_, profile), _| {
            coverage(&known, profile)
                .total_cmp(&coverage(&wanted, profile))
                .is_eq()
        });
        drop(thresholds);
        for warned in [&self.warned_of_budget, &self.warned_of_pins] {
            warned
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .clear();
        }
        self.revision.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Has all lists chosen anew when they are asked for, since predictions are judged in another
    /// way.
    pub fn choose_anew(&self) {
        let renewed = self.wanted.load().renewed(self.clock.now());
        self.wanted.store(Arc::new(renewed));
        self.revision.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the policy of who asks.
    pub(super) fn policy(&self, ask: &ListAsk<'_>) -> ListPolicyName {
        let experiments = self.experiments.as_ref();
        let arm = experiments.and_then(|all| all.arm(participant(ask), Lever::Policy));
        policy_of(&self.options(ask), arm.and_then(|arm| arm.policy()), ask)
    }

    /// Returns the list for who asks, of what is offered.
    pub async fn list(&self, ask: &ListAsk<'_>, offer: &Arc<Offer>) -> Arc<ShownList> {
        if let Some(experiments) = &self.experiments {
            // From now on it makes a difference which arm it is.
            let _ = experiments.exposed(participant(ask), Lever::Policy);
        }
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        let revision = self.revision.load(Ordering::Acquire);
        if let Some(shown) = self.still_holds(&scope, ask, offer, policy, revision) {
            return shown;
        }
        let _deciding = scope.deciding.lock().await;
        self.recall(&scope, ask).await;
        let overrides = self.overrides.load_full();
        let marks = self.marks(&overrides, ask, offer.tools());
        self.warn_of_pins(ask, offer);
        let (epoch, is_fallback) = match policy {
            ListPolicyName::All => (whole(ask, policy), false),
            ListPolicyName::Allowlist | ListPolicyName::Denylist => {
                (by_names(&self.options(ask), ask, policy, offer), false)
            }
            ListPolicyName::Conformal => self.steered(&scope, ask, offer, &marks).await,
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints => {
                if offer.lacks_upstreams() {
                    self.provisional(&scope, ask, offer, policy, &marks).await
                } else {
                    self.epoch(&scope, ask, offer, policy, &marks).await
                }
            }
        };
        let pool = self.default_pool(ask, offer.tools());
        let tools = offer.tools();
        let pool = if pool.len() == tools.len() {
            offer.tool_set()
        } else {
            let pool = pool.into_iter().map(|at| tools[at].tool.clone());
            Arc::new(ToolSet::new(pool.collect()))
        };
        let rendering = Rendering {
            policy,
            marks: &marks,
            offer,
            pool,
            is_fallback,
            until: self.until(&scope, ask, &epoch, policy),
            // Where all is shown and some is marked, what is called tells nothing of the marks.
            mass: scope.state().mass.filter(|_| {
                epoch.mode == SelectionMode::Prediction && policy != ListPolicyName::Hints
            }),
            revision,
            narrow: narrow(&overrides, ask),
            available_tokens: self.sizes.total(offer),
        };
        let shown = Arc::new(render(&epoch, rendering, |at| {
            self.sizes.of(&tools[at].definition)
        }));
        tracing::debug!(
            policy = policy.as_str(),
            epoch = shown.epoch,
            mode = shown.mode.as_str(),
            is_fallback,
            reason = shown.reason.map(SelectionReason::as_str),
            n_pool = shown.pool.tools().len(),
            n_shown = shown.positions().len(),
            n_available = tools.len(),
            "a list was chosen"
        );
        scope.state().shown = Some(Arc::clone(&shown));
        shown
    }

    /// Returns the probability that a client looks for a hidden tool that it needs, by what it did so far;
    /// `None` before any session.
    #[must_use]
    pub fn seeks(&self, principal: &Principal, client: &str) -> Option<f64> {
        let next_tools = self.next_tools.as_ref()?;
        next_tools.seeks(principal, client)
    }

    /// Returns how often operators decided something about lists.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Notes that clients of this name ask for their list again when they are told of a change.
    pub fn note_relisting(&self, client: &str) {
        let mut known = self
            .relisting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if known.len() < MAX_CLIENTS {
            known.insert(client.chars().take(MAX_NAME_CHARS).collect());
        }
    }

    /// Returns whether clients of this name do.
    #[must_use]
    pub fn relists(&self, client: &str) -> bool {
        let known = self
            .relisting
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let client: String = client.chars().take(MAX_NAME_CHARS).collect();
        known.contains(&client)
    }

    /// Returns the list that was shown last to those who share it; `None` where none was.
    #[must_use]
    pub fn shown(&self, ask: &ListAsk<'_>) -> Option<Arc<ShownList>> {
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        scope.state().shown.clone()
    }

    /// Returns whether the list for who asks is known already, so that nothing has to be chosen.
    #[must_use]
    pub fn is_decided(&self, ask: &ListAsk<'_>, offer: &Arc<Offer>) -> bool {
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        let revision = self.revision.load(Ordering::Acquire);
        (self.still_holds(&scope, ask, offer, policy, revision)).is_some()
    }

    /// Returns the list that was shown last, if it is what would be shown now.
    fn still_holds(
        &self,
        scope: &Scope,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        policy: ListPolicyName,
        revision: u64,
    ) -> Option<Arc<ShownList>> {
        let state = scope.state();
        let shown = state.shown.as_ref()?;
        let is_same = shown.policy == policy
            && shown.revision == revision
            && shown.offer.id() == offer.id()
            && shown.narrow == narrow(&self.overrides.load(), ask)
            && !self.options(ask).gate_writes;
        let holds = match policy {
            ListPolicyName::Conformal => false,
            // No epoch holds; what was chosen lasts as long as the same upstreams are missing.
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints
                if offer.lacks_upstreams() =>
            {
                state.is_for(ask.context()) && state.added.is_empty()
            }
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints => {
                let epoch = state.epoch.as_ref()?;
                state.is_for(ask.context())
                    && epoch.epoch == shown.epoch
                    && state.is_read
                    && state.added.is_empty()
                    && state.waits_until.is_none_or(|until| ask.now < until)
                    && !self.is_over(scope, ask, epoch)
            }
            _ => true,
        };
        (is_same && holds).then(|| Arc::clone(shown))
    }
}

#[cfg(test)]
mod tests;
