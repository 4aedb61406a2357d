//! Selection of the tools of a list. The order is: the declared context, then the prediction; if
//! prediction fails, the call frequency. Before anything is learned, it is the default pool, or
//! tools in their typical order.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::ProfileName;
use riglm_domain::num::ratio;
use riglm_domain::prediction::ConfidenceBand;
use riglm_domain::retrieval::words;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason};
use riglm_domain::selection::{
    Candidates, ExpectedCoverage, ExploredCatalog, HiddenToolSearch, ListBounds, ListChoice,
    ListPolicyName, ListSize, NamedTool, ReadOnlyHint, ShowAllReason, SizeChoice, SizeDraw,
    SizeEvidence, ToolDecision, TopicWords, UnknownTool, choose_tools, initial_order, list_size,
    rank_for_session, tools_named_in,
};

use super::config::{FilteringConfig, Pool};
use super::list_predictor::{ListPredictor, expected_coverage, ranking};
use super::list_request::ListRequest;
use super::lists::{ListStores, SearchTerms};
use super::token_counts::DefinitionSizes;
use super::tool_marks::{ToolMark, fits_any};
use super::topic_selection::choose_by_topic;
use super::versioned_options::VersionedOptions;
use super::warnings::ListWarnings;
use riglm_discovery::search::{Catalog, CatalogTool};

/// Timeout of the frequency query; the list is selected without it afterwards.
const FREQUENCY_DEADLINE: Duration = Duration::from_millis(200);
const FREQUENCY_DAYS: i64 = 30;

/// A selection of tools, with its reason.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct SelectedTools {
    /// The positions of the tools, ascending.
    pub(super) tools: Vec<usize>,
    pub(super) mode: SelectionMode,
    pub(super) reason: Option<SelectionReason>,
    pub(super) search_first: bool,
    /// The expected coverage; `None` if a prediction did not select the tools.
    pub(super) expected_coverage: Option<ExpectedCoverage>,
    /// The decision about the size, if sizes are explored.
    pub(super) size_choice: Option<SizeChoice>,
}

impl SelectedTools {
    /// Returns tools that were selected without a prediction.
    fn of(tools: Vec<usize>, mode: SelectionMode, reason: Option<SelectionReason>) -> Self {
        Self {
            tools,
            mode,
            reason,
            search_first: true,
            expected_coverage: None,
            size_choice: None,
        }
    }
}

/// The tools of a catalog as candidates of a list.
pub(super) struct OfferCandidates<'a> {
    pub(super) tools: &'a [CatalogTool],
    marks: &'a [ToolMark],
    kept: &'a HashSet<ToolRef>,
    /// The positions of tools that only apps call. Hosts need them in the list, and no model reads
    /// them.
    app_only: &'a HashSet<usize>,
    sizes: &'a Arc<DefinitionSizes>,
}

impl Candidates for OfferCandidates<'_> {
    fn len(&self) -> usize {
        self.tools.len()
    }

    fn decision(&self, position: usize) -> ToolDecision {
        match self.marks.get(position) {
            Some(ToolMark::Exclude) => ToolDecision::Banned,
            Some(ToolMark::Include | ToolMark::Pin) => ToolDecision::Kept,
            _ if self.app_only.contains(&position) => ToolDecision::Kept,
            _ if self.kept.contains(&self.tools[position].tool) => ToolDecision::Kept,
            _ => ToolDecision::Free,
        }
    }

    fn tokens(&self, position: usize) -> u64 {
        if self.app_only.contains(&position) {
            return 0;
        }
        self.sizes.of(&self.tools[position].definition)
    }
}

/// The inputs of one selection of a list.
#[derive(Clone, Copy, Debug)]
pub(super) struct SelectionInputs<'a> {
    pub(super) policy: ListPolicyName,
    pub(super) request: &'a ListRequest<'a>,
    pub(super) catalog: &'a Arc<Catalog>,
    /// The options of the operator at the begin of the selection.
    pub(super) versioned_options: &'a VersionedOptions,
    /// The decision of the operator about each tool of the catalog.
    pub(super) marks: &'a [ToolMark],
    /// The vocabulary that finds the topic of a declared context.
    pub(super) words: &'a TopicWords,
}

impl<'a> SelectionInputs<'a> {
    pub(super) fn options(&self) -> &'a FilteringConfig {
        &self.versioned_options.options
    }
}

/// The source of the size of a list whose size may be explored.
#[derive(Clone, Copy, Debug)]
pub(super) struct SizeSource<'a> {
    pub(super) draw: SizeDraw,
    /// The earlier decision about the list. It stays while its size is possible.
    pub(super) earlier: Option<&'a SizeChoice>,
}

/// The tools of a prediction, and its confidence.
struct LikelyTools<'a> {
    /// Positions with shares in the tools that the session will use, the largest share first.
    ranked: &'a [(usize, f64)],
    /// Positions with probabilities to be called next.
    next: &'a [(usize, f64)],
    band: ConfidenceBand,
    /// The reason if no session was learned from.
    cold: Option<SelectionReason>,
}

/// Selects the tools of lists.
#[derive(Debug)]
pub(super) struct ToolSelector {
    predictor: ListPredictor,
    stores: Option<ListStores>,
    sizes: Arc<DefinitionSizes>,
    warnings: Arc<ListWarnings>,
    search: Arc<ArcSwap<SearchTerms>>,
}

impl ToolSelector {
    pub(super) fn new(
        predictor: ListPredictor,
        stores: Option<ListStores>,
        sizes: Arc<DefinitionSizes>,
        warnings: Arc<ListWarnings>,
        search: Arc<ArcSwap<SearchTerms>>,
    ) -> Self {
        Self {
            predictor,
            stores,
            sizes,
            warnings,
            search,
        }
    }

    /// Selects the tools of a list. Tools in `kept` are always selected. With a source, the size may
    /// be explored.
    pub(super) async fn choose(
        &self,
        inputs: &SelectionInputs<'_>,
        kept: &HashSet<ToolRef>,
        source: Option<SizeSource<'_>>,
    ) -> SelectedTools {
        let (policy, request, catalog) = (inputs.policy, inputs.request, inputs.catalog);
        let options = inputs.options();
        let tools = catalog.tools();
        let bounds = options.bounds();
        let candidates = OfferCandidates {
            tools,
            marks: inputs.marks,
            kept,
            app_only: catalog.app_only(),
            sizes: &self.sizes,
        };
        let all_tokens = self.sizes.total(catalog);
        let budget = bounds.token_budget;
        let is_over_budget = budget.is_some_and(|budget| all_tokens > budget);
        // A list has at least `min_tools` tools, so none could be hidden.
        if tools.len() <= bounds.min_tools && !is_over_budget {
            return all_tools(SelectionReason::SmallCatalog);
        }
        let prices = options.prices(self.search.load().answer);
        let outlook = self.predictor.outlook(request, &prices.shape);
        let finding = match policy {
            ListPolicyName::Hints => HiddenToolSearch::OwnSearch,
            _ => HiddenToolSearch::ProxySearch,
        };
        let evidence = SizeEvidence {
            outlook: &outlook,
            finding,
            all_tokens,
        };
        let size = list_size(&candidates, &evidence, &bounds, &prices);
        if !self.predictor.has_learned(request) {
            let reason = SelectionReason::NothingLearned;
            if let Some(chosen) = self.choose_topic(inputs, &candidates, None, Some(reason)) {
                return chosen;
            }
            if let Some(chosen) = choose_pool(inputs, &candidates, reason) {
                return chosen;
            }
            let (ranked, mode) = self.cold_start_order(request, catalog).await;
            return match size {
                Err(why) => whole_list(why, reason),
                Ok(n) => {
                    let chosen = self.choose_tools(inputs, &candidates, &ranked, n);
                    SelectedTools::of(chosen.shown, mode, Some(reason))
                }
            };
        }
        let Some(prediction) = self.predictor.predict_for_list(request, catalog).await else {
            return self.frequent_or_pool(inputs, &candidates, size).await;
        };
        let next = ranking(&prediction.ranked);
        let ranked = match policy {
            ListPolicyName::Hints if request.own_intent().is_none() => {
                // The marks of this policy last for the whole session, and without an intent no
                // query says which tool comes next.
                let shares = self.predictor.session_use(request, catalog);
                rank_for_session(&next, |at| shares.get(at).copied().unwrap_or(0.0))
            }
            ListPolicyName::Hints => next.clone(),
            _ => ranking(&prediction.later),
        };
        let cold = (!outlook.is_learned()).then_some(SelectionReason::ColdStart);
        let knows_texts = cold.is_none() && self.predictor.knows_texts(request);
        let forecast = knows_texts.then_some((ranked.as_slice(), size.unwrap_or(bounds.max_tools)));
        if let Some(chosen) = self.choose_topic(inputs, &candidates, forecast, cold) {
            return chosen;
        }
        // The operator's pool is for this case, where little is known. A client that loads tools on
        // demand is shown all tools anyway.
        let shows_all = policy != ListPolicyName::Hints && prediction.shows_all(bounds.max_tools);
        if cold.is_some() || shows_all {
            let reason = SelectionReason::ColdStart;
            if let Some(chosen) = choose_pool(inputs, &candidates, reason) {
                return chosen;
            }
            if shows_all && !is_over_budget {
                return SelectedTools {
                    search_first: true,
                    ..all_tools(reason)
                };
            }
        }
        // What a client loads on demand is not recorded, so the cost of marks cannot be measured.
        // Before the first session is over, the rule compares no sizes.
        let source = source.filter(|_| policy != ListPolicyName::Hints && cold.is_none());
        let size_choice =
            source.and_then(|source| explore(inputs, &candidates, &ranked, size, source));
        let likely = LikelyTools {
            ranked: &ranked,
            next: &next,
            band: prediction.confidence(bounds.max_tools).band,
            cold,
        };
        self.choose_likely(inputs, &candidates, &likely, size, size_choice)
    }

    /// Selects the most likely tools: as many as `greedy` says, or as exploration decided.
    fn choose_likely(
        &self,
        inputs: &SelectionInputs<'_>,
        candidates: &OfferCandidates<'_>,
        likely: &LikelyTools<'_>,
        greedy: Result<usize, ShowAllReason>,
        size_choice: Option<SizeChoice>,
    ) -> SelectedTools {
        let (size, explored) = explored_size(greedy, size_choice.as_ref());
        let chosen = match size {
            Err(why) => whole_list(why, SelectionReason::ColdStart),
            Ok(n) => {
                let choice = self.choose_tools(inputs, candidates, likely.ranked, n);
                SelectedTools {
                    expected_coverage: expected_coverage(likely.next, &choice.shown),
                    tools: choice.shown,
                    mode: SelectionMode::Prediction,
                    reason: likely.cold,
                    search_first: likely.cold.is_some() || likely.band != ConfidenceBand::Filter,
                    size_choice: None,
                }
            }
        };
        SelectedTools {
            reason: explored.or(chosen.reason),
            size_choice,
            ..chosen
        }
    }

    /// Returns the tools in an order that needs no learning, and the mode of that order: by call
    /// frequency if learning is off, else by the definitions of the tools.
    async fn cold_start_order(
        &self,
        request: &ListRequest<'_>,
        catalog: &Catalog,
    ) -> (Vec<(usize, f64)>, SelectionMode) {
        if !self.predictor.is_on() {
            let frequent = self.frequent(request, catalog).await;
            if !frequent.is_empty() {
                return (frequent, SelectionMode::Frequency);
            }
        }
        (typical_ranking(catalog.tools()), SelectionMode::General)
    }

    /// Selects `n` tools in addition to the kept ones. Reports tools that do not fit into the
    /// budget.
    fn choose_tools(
        &self,
        inputs: &SelectionInputs<'_>,
        candidates: &OfferCandidates<'_>,
        ranked: &[(usize, f64)],
        n: usize,
    ) -> ListChoice {
        let bounds = ListBounds {
            max_tools: n,
            ..inputs.options().bounds()
        };
        let choice = choose_tools(candidates, ranked, &bounds);
        (self.warnings).check_budget(inputs.request, inputs.options(), &choice);
        choice
    }

    /// Selects the tools on the topic of the declared context; `None` if it names no topic. `reason`
    /// has the reason why predictions do not take part.
    fn choose_topic(
        &self,
        inputs: &SelectionInputs<'_>,
        candidates: &OfferCandidates<'_>,
        forecast: Option<(&[(usize, f64)], usize)>,
        reason: Option<SelectionReason>,
    ) -> Option<SelectedTools> {
        let choice = choose_by_topic(inputs, candidates, forecast)?;
        (self.warnings).check_budget(inputs.request, inputs.options(), &choice);
        let mode = SelectionMode::Context;
        Some(SelectedTools::of(choice.shown, mode, reason))
    }

    /// Selects tools after the predictor failed: by call frequency, or else the default pool.
    async fn frequent_or_pool(
        &self,
        inputs: &SelectionInputs<'_>,
        candidates: &OfferCandidates<'_>,
        size: Result<usize, ShowAllReason>,
    ) -> SelectedTools {
        let reason = SelectionReason::PredictorFailed;
        let ranked = self.frequent(inputs.request, inputs.catalog).await;
        if ranked.is_empty() {
            let pool = choose_pool(inputs, candidates, reason);
            return pool.unwrap_or_else(|| all_tools(reason));
        }
        match size {
            Err(why) => whole_list(why, reason),
            Ok(n) => {
                let chosen = self.choose_tools(inputs, candidates, &ranked, n);
                SelectedTools::of(chosen.shown, SelectionMode::Frequency, Some(reason))
            }
        }
    }

    /// Returns the tools that the principal called lately with their shares of the calls, the most
    /// frequent first. Empty if the store fails or times out.
    async fn frequent(&self, request: &ListRequest<'_>, catalog: &Catalog) -> Vec<(usize, f64)> {
        let Some(stores) = &self.stores else {
            return Vec::new();
        };
        let since = request.now - jiff::SignedDuration::from_hours(24 * FREQUENCY_DAYS);
        let asked = stores.usage.frequencies(Some(request.principal), since);
        // An error is ignored, because there are further fallbacks.
        let Ok(Ok(counts)) = tokio::time::timeout(FREQUENCY_DEADLINE, asked).await else {
            return Vec::new();
        };
        let total: u64 = counts.iter().map(|count| count.n_calls).sum();
        let ranked = counts.iter().filter_map(|count| {
            let at = catalog.position_of(&count.tool)?;
            Some((at, ratio(count.n_calls, total)))
        });
        ranked.collect()
    }
}

/// Returns the default pool as a selection; `None` if it has all tools.
fn choose_pool(
    inputs: &SelectionInputs<'_>,
    candidates: &OfferCandidates<'_>,
    reason: SelectionReason,
) -> Option<SelectedTools> {
    let pool = default_pool(inputs.options(), inputs.request, candidates.tools);
    if pool.len() == candidates.tools.len() {
        return None;
    }
    // Within the pool, a request about tasks keeps every task tool.
    let about = inputs.request.own_intent().map_or_else(Vec::new, |intent| {
        let foci: Vec<NamedTool<'_>> = (pool.iter())
            .map(|at| &candidates.tools[*at])
            .map(|tool| NamedTool {
                name: tool.tool.tool.as_str(),
                read_only: ReadOnlyHint::of_definition(&tool.definition),
            })
            .collect();
        tools_named_in(&intent.text, &foci)
    });
    // With few matches the intent is probably not understood completely, so the whole pool is
    // shown.
    let is_little = about.is_empty() || about.len() < inputs.options().min_tools;
    let mut tools: Vec<usize> = if is_little {
        pool
    } else {
        about.into_iter().map(|at| pool[at]).collect()
    };
    let kept = (0..candidates.len()).filter(|at| candidates.decision(*at) == ToolDecision::Kept);
    tools.extend(kept);
    tools.retain(|at| candidates.decision(*at) != ToolDecision::Banned);
    tools.sort_unstable();
    tools.dedup();
    let reason = Some(reason);
    Some(SelectedTools::of(tools, SelectionMode::Pool, reason))
}

/// Returns the positions of the default pool, ascending: the tools of all pools for the profile
/// and the intent. All tools if no pool applies.
pub(super) fn default_pool(
    options: &FilteringConfig,
    request: &ListRequest<'_>,
    tools: &[CatalogTool],
) -> Vec<usize> {
    let said: HashSet<String> = request.own_intent().map_or_else(HashSet::new, |intent| {
        words(&intent.text).into_iter().collect()
    });
    let is_called_for = |pool: &&Pool| {
        let profile = pool.profile.as_ref().map(ProfileName::as_str);
        let is_of_profile = profile.is_none_or(|of| request.profile == Some(of));
        let mut called = pool.words.iter().flat_map(|word| words(word));
        is_of_profile && (pool.words.is_empty() || called.any(|word| said.contains(&word)))
    };
    let pools: Vec<&Pool> = options.pools.iter().filter(is_called_for).collect();
    let is_in = |tool: &CatalogTool| pools.iter().any(|pool| fits_any(&pool.tools, tool));
    let pool: Vec<usize> = (0..tools.len()).filter(|at| is_in(&tools[*at])).collect();
    if pool.is_empty() {
        (0..tools.len()).collect()
    } else {
        pool
    }
}

/// Returns the decision about the size of a list under exploration; `None` if its size is not
/// explored.
fn explore(
    inputs: &SelectionInputs<'_>,
    candidates: &OfferCandidates<'_>,
    ranked: &[(usize, f64)],
    greedy: Result<usize, ShowAllReason>,
    source: SizeSource<'_>,
) -> Option<SizeChoice> {
    let share = inputs.options().exploration.share();
    if share.is_off() {
        return None;
    }
    let bounds = inputs.options().bounds();
    let longest = ListBounds {
        max_tools: candidates.len(),
        ..bounds
    };
    let longest = choose_tools(candidates, ranked, &longest);
    let catalog = ExploredCatalog {
        n_tools: candidates.len(),
        all_tokens: candidates.sizes.total(inputs.catalog),
        n_fitting: longest.shown.len() - longest.n_kept,
        bounds: &bounds,
    };
    let kept = (source.earlier).and_then(|it| catalog.keep(greedy, share, it));
    kept.or_else(|| catalog.explore(greedy, share, source.draw))
}

/// Returns the size of a list, and the reason if exploration decided another one than `greedy`.
fn explored_size(
    greedy: Result<usize, ShowAllReason>,
    choice: Option<&SizeChoice>,
) -> (Result<usize, ShowAllReason>, Option<SelectionReason>) {
    let Some(choice) = choice else {
        return (greedy, None);
    };
    let explored = (choice.size != choice.greedy).then_some(SelectionReason::Exploration);
    let of_rule = greedy.map_or(ListSize::All, ListSize::Tools);
    let size = match choice.size {
        // The same list as without exploration.
        size if size == choice.effective(of_rule) => greedy,
        ListSize::All => Err(ShowAllReason::NotPaying),
        ListSize::Tools(n) => Ok(n),
    };
    (size, explored)
}

fn all_tools(reason: SelectionReason) -> SelectedTools {
    SelectedTools {
        search_first: false,
        ..SelectedTools::of(Vec::new(), SelectionMode::All, Some(reason))
    }
}

/// Returns the whole list with its reason; `cold` is the reason in case of a cold start.
fn whole_list(why: ShowAllReason, cold: SelectionReason) -> SelectedTools {
    match why {
        ShowAllReason::SmallCatalog => all_tools(SelectionReason::SmallCatalog),
        ShowAllReason::NotPaying => all_tools(SelectionReason::NotPaying),
        ShowAllReason::ColdStart => SelectedTools {
            search_first: true,
            ..all_tools(cold)
        },
    }
}

/// Returns the tools in the order for catalogs without learned data.
fn typical_ranking(tools: &[CatalogTool]) -> Vec<(usize, f64)> {
    let unknown: Vec<UnknownTool<'_>> = (tools.iter())
        .map(|tool| UnknownTool {
            server: tool.tool.upstream.as_str(),
            name: tool.tool.tool.as_str(),
            read_only: ReadOnlyHint::of_definition(&tool.definition),
            n_bytes: tool.definition.len(),
        })
        .collect();
    let order = initial_order(&unknown).into_iter();
    order.map(|at| (at, 0.0)).collect()
}
