//! Selection of lists from learned data: one list for each work session. A protocol revision may
//! forbid lists that depend on sessions; then there is one for each principal and profile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::experiment::Treatment;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::conformal::ConformalThreshold;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason, ToolSet};
use riglm_domain::selection::{ListPolicyName, TopicWords};
use riglm_ports::analytics::{
    ChangeFeed, ListActivityRepository, ListEpochRepository, OverrideRepository, UsageRepository,
};
use riglm_ports::clock::Clock;
use riglm_ports::observer::Observer;
use riglm_ports::token_counter::TokenCounter;

use super::epochs::{epoch_by_names, whole_epoch};
use super::list_request::ListRequest;
use super::marks::narrow_overrides;
use super::options::ListOptions;
use super::policy::policy_of;
use super::rendering::{Rendering, ShownList, render};
use super::scope::{Scope, Scopes};
use super::sizes::DefinitionSizes;
use super::versioned_options::{OptionsByProfile, VersionedOptions};
use riglm_discovery::experiments::{Experiments, Participant};
use riglm_discovery::learning::NextTools;
use riglm_discovery::search::Catalog;

// Client names come from clients, so the memory for them is bounded.
const MAX_CLIENT_NAMES: usize = 1_000;
/// Longer client names are cut.
const MAX_NAME_CHARS: usize = 200;

/// Repositories of lists, so that all processes show the same ones.
#[derive(Clone, Debug)]
pub struct ListStores {
    /// The epochs of lists.
    pub epochs: Arc<dyn ListEpochRepository>,
    /// The overrides of operators.
    pub overrides: Arc<dyn OverrideRepository>,
    /// The call counts of tools.
    pub usage: Arc<dyn UsageRepository>,
    /// The calls of work sessions.
    pub activities: Arc<dyn ListActivityRepository>,
    /// The revisions of the stored topics.
    pub changes: Arc<dyn ChangeFeed>,
}

/// The parts that [`Lists`] is built from.
#[derive(Debug)]
pub struct ListsParts {
    /// The options of the operator.
    pub options: ListOptions,
    /// The options of clients under a profile, by the name of the profile.
    pub profiles: HashMap<String, ListOptions>,
    /// The prediction of next tools; `None` if nothing is learned.
    pub next_tools: Option<Arc<NextTools>>,
    /// The repositories of lists; `None` if nothing is recorded.
    pub stores: Option<ListStores>,
    /// Counts the tokens of definitions.
    pub counter: Arc<dyn TokenCounter>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Receives an event when a token budget shortens a list.
    pub observer: Arc<dyn Observer>,
}

/// Selects the tools of lists.
#[derive(Debug)]
pub struct Lists {
    wanted: ArcSwap<OptionsByProfile>,
    pub(super) next_tools: Option<Arc<NextTools>>,
    pub(super) stores: Option<ListStores>,
    pub(super) sizes: Arc<DefinitionSizes>,
    pub(super) scopes: Scopes,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) observer: Arc<dyn Observer>,
    pub(super) overrides: ArcSwap<Vec<ToolOverride>>,
    /// Counts the changes of operators, to overrides and to options.
    pub(super) revision: AtomicU64,
    relisting: Mutex<HashSet<String>>,
    pub(super) thresholds: Mutex<HashMap<(Principal, String), ConformalThreshold>>,
    /// The profiles for which the budget warning was logged.
    pub(super) warned_of_budget: Mutex<HashSet<String>>,
    /// The profiles whose pins were checked.
    pub(super) warned_of_pins: Mutex<HashSet<String>>,
    experiments: Option<Arc<Experiments>>,
    /// The lexicon that finds the topic and access of a declared context.
    pub(super) words: TopicWords,
}

// Experiments with lists assign arms by principal and session.
fn participant<'a>(ask: &ListRequest<'a>) -> Participant<'a> {
    Participant::of(ask.principal, ask.session)
}

impl Lists {
    /// Creates the lists from their parts.
    #[must_use]
    pub fn new(parts: ListsParts) -> Self {
        Self {
            wanted: ArcSwap::from_pointee(OptionsByProfile::new(parts.options, parts.profiles)),
            next_tools: parts.next_tools,
            stores: parts.stores,
            sizes: Arc::new(DefinitionSizes::new(parts.counter)),
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
            words: TopicWords::built_in(),
        }
    }

    /// Replaces the built-in lexicon for texts.
    #[must_use]
    pub fn with_words(self, words: TopicWords) -> Self {
        Self { words, ..self }
    }

    /// Adds experiments, whose arms may set the policy of a client.
    #[must_use]
    pub fn with_experiments(self, experiments: Option<Arc<Experiments>>) -> Self {
        Self {
            experiments,
            ..self
        }
    }

    pub(super) fn options(&self, ask: &ListRequest<'_>) -> Arc<ListOptions> {
        self.options_under(ask.profile)
    }

    pub(super) fn options_under(&self, profile: Option<&str>) -> Arc<ListOptions> {
        Arc::clone(&self.wanted.load().of(profile).options)
    }

    /// Returns the options for a request, with the number of their version.
    pub(super) fn versioned_options(&self, ask: &ListRequest<'_>) -> VersionedOptions {
        self.wanted.load().of(ask.profile).clone()
    }

    /// Replaces the options, in general and under each profile; returns whether any of them
    /// changed. Lists with changed options are selected again at the next request, as after an
    /// override; tools that the session has used stay.
    pub fn set_options(
        &self,
        options: ListOptions,
        profiles: HashMap<String, ListOptions>,
    ) -> bool {
        let known = self.wanted.load_full();
        let Some(wanted) = known.with_all_options(options, profiles, self.clock.now()) else {
            return false;
        };
        let coverage =
            |wanted: &OptionsByProfile, profile: &str| wanted.of(Some(profile)).options.coverage;
        let wanted = Arc::new(wanted);
        self.wanted.store(Arc::clone(&wanted));
        // Thresholds that adapted to another coverage start again.
        let mut thresholds = self.thresholds.lock();
        thresholds.retain(|(_, profile), _| {
            coverage(&known, profile)
                .total_cmp(&coverage(&wanted, profile))
                .is_eq()
        });
        drop(thresholds);
        // New options may have new mistakes, so warnings may be logged again.
        for warned in [&self.warned_of_budget, &self.warned_of_pins] {
            warned.lock().clear();
        }
        self.revision.fetch_add(1, Ordering::AcqRel);
        true
    }

    /// Makes every list be selected again at the next request, because predictions are evaluated
    /// differently now.
    pub fn reselect_all(&self) {
        let renewed = self.wanted.load().with_new_versions(self.clock.now());
        self.wanted.store(Arc::new(renewed));
        self.revision.fetch_add(1, Ordering::AcqRel);
    }

    /// Returns the list policy for a request.
    pub(super) fn policy(&self, ask: &ListRequest<'_>) -> ListPolicyName {
        let experiments = self.experiments.as_ref();
        let arm = experiments.and_then(|all| all.arm(participant(ask), Treatment::Policy));
        policy_of(&self.options(ask), arm.and_then(|arm| arm.policy()), ask)
    }

    /// Returns the list for a request, selected from the catalog `offer`.
    pub async fn list(&self, ask: &ListRequest<'_>, offer: &Arc<Catalog>) -> Arc<ShownList> {
        if let Some(experiments) = &self.experiments {
            // From here on the arm affects the client.
            let _ = experiments.expose(participant(ask), Treatment::Policy);
        }
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        let revision = self.revision.load(Ordering::Acquire);
        if let Some(shown) = self.valid_list(&scope, ask, offer, policy, revision) {
            return shown;
        }
        // One task at a time selects the list of a scope; the others wait for it.
        let _deciding = scope.deciding.lock().await;
        self.recall(&scope, ask).await;
        let overrides = self.overrides.load_full();
        let marks = self.marks(&overrides, ask, offer.tools());
        self.warn_of_pins(ask, offer);
        let (epoch, is_fallback) = match policy {
            ListPolicyName::All => (whole_epoch(ask, policy), false),
            ListPolicyName::Allowlist | ListPolicyName::Denylist => (
                epoch_by_names(&self.options(ask), ask, policy, offer),
                false,
            ),
            ListPolicyName::Conformal => self.conformal_list(&scope, ask, offer, &marks).await,
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
        // Many lists start from the whole catalog, so they share its tool set.
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
            // With the policy `hints` all tools are shown, so a call is no evidence about the
            // selected ones.
            mass: scope.state.lock().mass.filter(|_| {
                epoch.mode == SelectionMode::Prediction && policy != ListPolicyName::Hints
            }),
            revision,
            narrow: narrow_overrides(&overrides, ask),
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
            "selected a tool list"
        );
        scope.state.lock().shown = Some(Arc::clone(&shown));
        shown
    }

    /// Returns the probability that a client searches for a hidden tool that it needs, estimated
    /// from its earlier sessions; `None` before the first session.
    #[must_use]
    pub fn search_probability(&self, principal: &Principal, client: &str) -> Option<f64> {
        let next_tools = self.next_tools.as_ref()?;
        next_tools.search_probability(principal, client)
    }

    /// Returns the revision of overrides and options; it grows with each change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.revision.load(Ordering::Acquire)
    }

    /// Marks clients of this name as ones that request their list again after a `list_changed`
    /// notification.
    pub fn note_relisting(&self, client: &str) {
        let mut known = self.relisting.lock();
        if known.len() < MAX_CLIENT_NAMES {
            known.insert(client.chars().take(MAX_NAME_CHARS).collect());
        }
    }

    /// Returns whether clients of this name request their list again after a notification.
    #[must_use]
    pub fn relists(&self, client: &str) -> bool {
        let known = self.relisting.lock();
        let client: String = client.chars().take(MAX_NAME_CHARS).collect();
        known.contains(&client)
    }

    /// Returns the last list that was shown in the scope of a request, if any.
    #[must_use]
    pub fn shown_list(&self, ask: &ListRequest<'_>) -> Option<Arc<ShownList>> {
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        scope.state.lock().shown.clone()
    }

    /// Returns whether the list for a request is already selected, so that no work is left.
    #[must_use]
    pub fn is_decided(&self, ask: &ListRequest<'_>, offer: &Arc<Catalog>) -> bool {
        let policy = self.policy(ask);
        let scope = self.scopes.get(ask.scope(policy));
        let revision = self.revision.load(Ordering::Acquire);
        (self.valid_list(&scope, ask, offer, policy, revision)).is_some()
    }

    /// Returns the last list that was shown, if it is still valid.
    fn valid_list(
        &self,
        scope: &Scope,
        ask: &ListRequest<'_>,
        offer: &Arc<Catalog>,
        policy: ListPolicyName,
        revision: u64,
    ) -> Option<Arc<ShownList>> {
        let state = scope.state.lock();
        let shown = state.shown.as_ref()?;
        let is_same = shown.policy == policy
            && shown.revision == revision
            && shown.offer.id() == offer.id()
            && shown.narrow == narrow_overrides(&self.overrides.load(), ask)
            && !self.options(ask).gate_writes;
        let holds = match policy {
            ListPolicyName::Conformal => false,
            // No epoch holds here. The selection stays valid while the same upstreams are missing.
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
