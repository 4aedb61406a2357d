//! Selection of lists from learned data: one list for each work session. A protocol revision may
//! forbid lists that depend on sessions; then there is one for each principal and profile.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use arc_swap::ArcSwap;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::catalog::tool_override::ToolOverride;
use riglm_domain::experiment::Treatment;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::protocol::Era;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::selection::shown::{SelectionReason, ToolSet};
use riglm_domain::selection::{ListPolicyName, TopicWords};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::analytics::{ChangeFeed, ListEpochRepository, ListRepository, UsageRepository};
use riglm_ports::clock::Clock;
use riglm_ports::observer::Observer;
use riglm_ports::token_counter::TokenCounter;
use tokio_util::sync::CancellationToken;

use super::config::{FilteringConfig, SearchAnswerSize};
use super::conformal::ConformalLists;
use super::epochs::{ListEpochs, epoch_by_names, is_fallback, is_over, next_planned, whole_epoch};
use super::list_predictor::ListPredictor;
use super::list_request::ListRequest;
use super::list_scope::{Scope, Scopes};
use super::operator_overrides::OperatorOverrides;
use super::operator_settings::OperatorSettings;
use super::policy::{RefetchingClients, policy_of};
use super::rendering::{Rendering, ShownList, render};
use super::token_counts::DefinitionSizes;
use super::tool_marks::{ToolMark, hidden_positions, marks, narrow_overrides};
use super::tool_selector::{SelectionInputs, ToolSelector, default_pool};
use super::warnings::ListWarnings;
use super::write_gating::{self, is_gated};
use riglm_discovery::experiments::{Experiments, Participant};
use riglm_discovery::learning::{LearningIsolation, LivePredictions};
use riglm_discovery::search::{Catalog, CatalogTool};

/// Repositories of lists, so that all processes show the same ones.
#[derive(Clone, Debug)]
pub struct ListStores {
    /// The epochs of lists.
    pub epochs: Arc<dyn ListEpochRepository>,
    /// The call counts of tools.
    pub usage: Arc<dyn UsageRepository>,
    /// The calls of work sessions.
    pub activities: Arc<dyn ListRepository>,
    /// The revisions of the stored topics.
    pub changes: Arc<dyn ChangeFeed>,
}

/// The parts that [`Lists`] is built from.
#[derive(Debug)]
pub struct ListsParts {
    /// The options of the operator.
    pub options: FilteringConfig,
    /// The options of clients under a profile, by the name of the profile.
    pub profiles: HashMap<String, FilteringConfig>,
    /// The prediction of next tools.
    pub predictions: LivePredictions,
    /// The repositories of lists; `None` if nothing is recorded.
    pub stores: Option<ListStores>,
    /// The overrides of operators.
    pub overrides: Arc<OperatorOverrides>,
    /// A/B experiments, whose arms may set the policy of a client.
    pub experiments: Option<Arc<Experiments>>,
    /// The configuration of searches.
    pub search: SearchTerms,
    /// Counts the tokens of definitions.
    pub counter: Arc<dyn TokenCounter>,
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// Receives an event when a token budget shortens a list.
    pub observer: Arc<dyn Observer>,
}

/// The parts of the search configuration that lists depend on.
#[derive(Clone, Debug)]
pub struct SearchTerms {
    /// The size of the answers of searches, for the price of a hidden tool.
    pub answer: SearchAnswerSize,
    /// The vocabulary that finds the topic and access of a declared context.
    pub words: TopicWords,
}

impl Default for SearchTerms {
    /// Returns the default size of answers and the built-in vocabulary.
    fn default() -> Self {
        Self {
            answer: SearchAnswerSize::default(),
            words: TopicWords::built_in(),
        }
    }
}

/// Selects the tools of lists.
#[derive(Debug)]
pub struct Lists {
    pub(super) settings: OperatorSettings,
    pub(super) predictor: ListPredictor,
    epochs: ListEpochs,
    pub(super) conformal: ConformalLists,
    pub(super) scopes: Scopes,
    pub(super) sizes: Arc<DefinitionSizes>,
    warnings: Arc<ListWarnings>,
    stores: Option<ListStores>,
    clock: Arc<dyn Clock>,
    refetching: RefetchingClients,
    isolation: LearningIsolation,
    experiments: Option<Arc<Experiments>>,
    /// Shared with the selector. A change of the configuration replaces it.
    pub(super) search: Arc<ArcSwap<SearchTerms>>,
}

// Experiments with lists assign arms by principal and session.
fn participant<'a>(request: &ListRequest<'a>) -> Participant<'a> {
    Participant::of(request.principal, request.session)
}

impl Lists {
    /// Creates the lists from their parts.
    #[must_use]
    pub fn new(parts: ListsParts) -> Self {
        let warnings = Arc::new(ListWarnings::new(&parts));
        let predictor = ListPredictor::new(parts.predictions);
        let search = Arc::new(ArcSwap::from_pointee(parts.search));
        let sizes = Arc::new(DefinitionSizes::new(parts.counter));
        let selector = Arc::new(ToolSelector::new(
            predictor.clone(),
            parts.stores.clone(),
            Arc::clone(&sizes),
            Arc::clone(&warnings),
            Arc::clone(&search),
        ));
        Self {
            settings: OperatorSettings::new(parts.options, parts.profiles, parts.overrides),
            epochs: ListEpochs::new(parts.stores.clone(), Arc::clone(&selector)),
            conformal: ConformalLists::new(predictor.clone(), selector, Arc::clone(&sizes)),
            predictor,
            scopes: Scopes::default(),
            sizes,
            warnings,
            stores: parts.stores,
            clock: parts.clock,
            refetching: RefetchingClients::default(),
            isolation: LearningIsolation::Shared,
            experiments: parts.experiments,
            search,
        }
    }

    /// Sets whether the behaviour of the clients of one principal may affect the lists of another.
    #[must_use]
    pub fn with_isolation(self, isolation: LearningIsolation) -> Self {
        Self { isolation, ..self }
    }

    /// Replaces the options, in general and under each profile; returns whether any of them
    /// changed. Lists with changed options are selected again at the next request, as after an
    /// override; tools that the session has used stay.
    pub fn set_options(
        &self,
        options: FilteringConfig,
        profiles: HashMap<String, FilteringConfig>,
    ) -> bool {
        let now = self.clock.now();
        let Some(change) = self.settings.set_options(options, profiles, now) else {
            return false;
        };
        self.conformal.on_options_change(&change);
        self.warnings.reset();
        true
    }

    /// Replaces the configuration of searches. Lists are selected again at the next request.
    pub fn set_search(&self, search: SearchTerms) {
        self.search.store(Arc::new(search));
        self.reselect_all();
    }

    /// Makes every list be selected again at the next request, because predictions are evaluated
    /// differently now.
    pub fn reselect_all(&self) {
        self.settings.renew_options(self.clock.now());
    }

    /// Polls for epochs of other processes until `stop` is cancelled.
    pub async fn keep_watch(self: Arc<Self>, stop: CancellationToken) {
        if let Some(stores) = &self.stores {
            self.scopes.keep_watch(&*stores.changes, &stop).await;
        }
    }

    pub(super) fn policy(&self, request: &ListRequest<'_>) -> ListPolicyName {
        let experiments = self.experiments.as_ref();
        let arm = experiments.and_then(|all| all.arm(participant(request), Treatment::Policy));
        let options = self.settings.options(request.profile);
        policy_of(&options, arm.and_then(|arm| arm.policy()), request)
    }

    /// Returns the decision of the operator about each tool for this client.
    pub(super) fn marks(&self, request: &ListRequest<'_>, tools: &[CatalogTool]) -> Vec<ToolMark> {
        let options = self.settings.options(request.profile);
        self.marks_by(&options, &self.settings.overrides(), request, tools)
    }

    /// Returns the decision of the operator about each tool for this client. Write gating is skipped
    /// for lists that must not depend on sessions.
    fn marks_by(
        &self,
        options: &FilteringConfig,
        overrides: &[ToolOverride],
        request: &ListRequest<'_>,
        tools: &[CatalogTool],
    ) -> Vec<ToolMark> {
        let is_gated = request.era == Era::Legacy
            && is_gated(options, request, &self.search.load().words.lexicon);
        marks(options, is_gated, overrides, request, tools)
    }

    /// Returns the list for a request, selected from `catalog`.
    pub async fn list(&self, request: &ListRequest<'_>, catalog: &Arc<Catalog>) -> Arc<ShownList> {
        if let Some(experiments) = &self.experiments {
            // From here on the arm affects the client.
            let _ = experiments.expose(participant(request), Treatment::Policy);
        }
        let policy = self.policy(request);
        let scope = self.scopes.get(request.scope(policy));
        let revision = self.settings.revision();
        if let Some(shown) = self.valid_list(&scope, request, catalog, policy, revision) {
            return shown;
        }
        // One task at a time selects the list of a scope; the others wait for it.
        let _deciding = scope.deciding.lock().await;
        if let (Some(stores), SessionKey::Work(work_session)) = (&self.stores, request.session) {
            scope.recall(&*stores.activities, work_session).await;
        }
        let versioned_options = self.settings.versioned_options(request.profile);
        let options = &versioned_options.options;
        let overrides = self.settings.overrides();
        let tools = catalog.tools();
        let marks = self.marks_by(options, &overrides, request, tools);
        self.warnings.check_pins(request, options, catalog);
        let search = self.search.load_full();
        let inputs = SelectionInputs {
            policy,
            request,
            catalog,
            versioned_options: &versioned_options,
            marks: &marks,
            words: &search.words,
        };
        let epoch = match policy {
            ListPolicyName::All => whole_epoch(request, policy),
            ListPolicyName::Allowlist | ListPolicyName::Denylist => {
                epoch_by_names(options, request, policy, catalog)
            }
            ListPolicyName::Conformal => self.conformal.list(&scope, &inputs).await,
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints => {
                if catalog.lacks_upstreams() {
                    self.epochs.provisional(&scope, &inputs).await
                } else {
                    self.epochs.current(&scope, &inputs).await
                }
            }
        };
        let pool = default_pool(options, request, tools);
        // Many lists start from the whole catalog, so they share its tool set.
        let pool = if pool.len() == tools.len() {
            catalog.tool_set()
        } else {
            let pool = pool.into_iter().map(|at| tools[at].tool.clone());
            Arc::new(ToolSet::new(pool.collect()))
        };
        let held = {
            let state = scope.state.lock();
            let is_held = |held: &Arc<_>| Arc::ptr_eq(held, &epoch);
            (state.epoch.as_ref().filter(|held| is_held(held))).and(state.known.clone())
        };
        let rendering = Rendering {
            policy,
            marks: &marks,
            catalog,
            pool,
            known: held.as_deref().unwrap_or(&epoch.known),
            is_fallback: is_fallback(&epoch),
            until: next_planned(&scope, &inputs, &epoch),
            revision,
            narrow: narrow_overrides(&overrides, request),
            available_tokens: self.sizes.total(catalog),
        };
        let shown = Arc::new(render(&epoch, rendering, |at| {
            self.sizes.of(&tools[at].definition)
        }));
        tracing::debug!(
            policy = policy.as_str(),
            epoch = shown.epoch,
            mode = shown.mode.as_str(),
            is_fallback = shown.is_fallback,
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
        self.predictor.search_probability(principal, client)
    }

    /// Returns the revision of overrides and options; it grows with each change.
    #[must_use]
    pub fn revision(&self) -> u64 {
        self.settings.revision()
    }

    /// Marks clients of this name as ones that request their list again after a `list_changed`
    /// notification.
    pub fn record_refetch(&self, principal: &Principal, client: &str) {
        (self.refetching).add(&self.refetching_name(principal, client));
    }

    /// Returns whether clients of this name request their list again after a notification.
    #[must_use]
    pub fn refetches_lists(&self, principal: &Principal, client: &str) -> bool {
        (self.refetching).has(&self.refetching_name(principal, client))
    }

    /// Returns the name under which the behaviour of a client is noted.
    fn refetching_name(&self, principal: &Principal, client: &str) -> String {
        match self.isolation {
            LearningIsolation::Shared => client.to_owned(),
            // The separator is a character that cannot occur in the parts.
            LearningIsolation::PerPrincipal => format!("{principal}\u{1f}{client}"),
        }
    }

    /// Returns the last list that was shown in the scope of a request, if any.
    #[must_use]
    pub fn shown_list(&self, request: &ListRequest<'_>) -> Option<Arc<ShownList>> {
        let policy = self.policy(request);
        let scope = self.scopes.get(request.scope(policy));
        scope.state.lock().shown.clone()
    }

    /// Returns whether the list for a request is already selected, so that no work is left.
    #[must_use]
    pub fn is_decided(&self, request: &ListRequest<'_>, catalog: &Arc<Catalog>) -> bool {
        let policy = self.policy(request);
        let scope = self.scopes.get(request.scope(policy));
        let revision = self.settings.revision();
        (self.valid_list(&scope, request, catalog, policy, revision)).is_some()
    }

    /// Returns the positions of the tools that are hidden from this client in any case. Only the
    /// names of the tools are known.
    #[must_use]
    pub fn excluded_positions(
        &self,
        request: &ListRequest<'_>,
        upstream: &UpstreamName,
        names: &[ToolName],
    ) -> Vec<usize> {
        let tools: Vec<CatalogTool> = names
            .iter()
            .map(|name| CatalogTool {
                name: name.as_str().to_owned(),
                tool: ToolRef {
                    upstream: upstream.clone(),
                    tool: name.clone(),
                },
                definition: Arc::default(),
                is_hidden: false,
            })
            .collect();
        self.hidden_positions(request, &tools)
    }

    /// Returns the positions of the tools that are hidden from this client in any case.
    #[must_use]
    pub fn hidden_positions(&self, request: &ListRequest<'_>, tools: &[CatalogTool]) -> Vec<usize> {
        let options = self.settings.options(request.profile);
        let marks = self.marks(request, tools);
        hidden_positions(&options, self.policy(request), &marks, tools)
    }

    /// Returns the tools of a catalog that the operator hides from this client.
    #[must_use]
    pub fn excluded_tools(&self, request: &ListRequest<'_>, catalog: &Catalog) -> HashSet<ToolRef> {
        let marks = self.marks(request, catalog.tools());
        let all = marks.iter().zip(catalog.tools());
        let excluded = all.filter(|(mark, _)| **mark == ToolMark::Exclude);
        excluded.map(|(_, tool)| tool.tool.clone()).collect()
    }

    /// Returns the positions of the tools of a catalog that the operator pinned for this client.
    #[must_use]
    pub fn pinned_positions(&self, request: &ListRequest<'_>, catalog: &Catalog) -> Vec<usize> {
        let marks = self.marks(request, catalog.tools());
        let all = marks.iter().enumerate();
        let pinned = all.filter(|(_, mark)| **mark == ToolMark::Pin);
        pinned.map(|(position, _)| position).collect()
    }

    /// Returns whether calls of clients under a profile may be refused at all. Only then the intent
    /// and the identity of a client are needed.
    #[must_use]
    pub fn enforces(&self, profile: Option<&str>) -> bool {
        let options = self.settings.options(profile);
        options.enforce && options.gate_writes
    }

    /// Returns whether some calls of this client are refused: the client only reads, and the
    /// operator enforces it.
    #[must_use]
    pub fn may_refuse(&self, request: &ListRequest<'_>) -> bool {
        let options = self.settings.options(request.profile);
        options.enforce && is_gated(&options, request, &self.search.load().words.lexicon)
    }

    /// Returns whether a call is refused, because the tool may change data and the client only
    /// reads. A tool without a definition counts as one that may. A pin or an override that shows a
    /// tool permits the call.
    #[must_use]
    pub fn refuses(
        &self,
        request: &ListRequest<'_>,
        tool: &ToolRef,
        offered: Option<&CatalogTool>,
    ) -> bool {
        let options = self.settings.options(request.profile);
        self.may_refuse(request)
            && write_gating::refuses(&options, &self.settings.overrides(), request, tool, offered)
    }

    /// Returns the least similarity of recent calls to the declared context at which the context
    /// still counts: from 0 to 1, 0 for always.
    #[must_use]
    pub fn context_shift(&self, request: &ListRequest<'_>) -> f64 {
        self.settings.options(request.profile).context_shift
    }

    /// Returns the last list that was shown, if it is still valid.
    fn valid_list(
        &self,
        scope: &Scope,
        request: &ListRequest<'_>,
        catalog: &Arc<Catalog>,
        policy: ListPolicyName,
        revision: u64,
    ) -> Option<Arc<ShownList>> {
        let state = scope.state.lock();
        let shown = state.shown.as_ref()?;
        let options = self.settings.options(request.profile);
        let is_same = shown.policy == policy
            && shown.revision == revision
            && shown.catalog.id() == catalog.id()
            && shown.narrow == narrow_overrides(&self.settings.overrides(), request)
            && !options.gate_writes;
        let holds = match policy {
            ListPolicyName::Conformal => false,
            // No epoch holds here. The selection stays valid while the same upstreams are missing.
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints
                if catalog.lacks_upstreams() =>
            {
                state.is_for(request.context()) && state.added.is_empty()
            }
            ListPolicyName::Epoch | ListPolicyName::Append | ListPolicyName::Hints => {
                let epoch = state.epoch.as_ref()?;
                state.is_for(request.context())
                    && epoch.epoch == shown.epoch
                    && state.is_read
                    && state.added.is_empty()
                    && state.waits_until.is_none_or(|until| request.now < until)
                    && !is_over(scope, request, &options, epoch)
            }
            _ => true,
        };
        (is_same && holds).then(|| Arc::clone(shown))
    }
}

#[cfg(test)]
mod tests;
