//! Selection of the tools of a list. The order is: the declared context, then the prediction; if
//! prediction fails, the call frequency. Before anything is learned, it is the default pool, or
//! tools in their typical order.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::SessionId;
use riglm_domain::num::ratio;
use riglm_domain::prediction::{ClientKey, ConfidenceBand};
use riglm_domain::retrieval::words;
use riglm_domain::selection::shown::{SelectionMode, SelectionReason};
use riglm_domain::selection::{
    Candidates, HiddenToolSearch, ListBounds, ListChoice, ListPolicyName, NamedTool, ReadOnlyHint,
    SessionOutlook, ShowAllReason, SizeEvidence, SizeHistory, ToolDecision, UnknownTool,
    choose_tools, initial_order, list_size, rank_for_session, tools_named_in,
};
use riglm_domain::usage::invocation::SessionKey;

use super::list_request::ListRequest;
use super::lists::Lists;
use super::marks::{ToolMark, fits_any};
use super::options::Pool;
use super::sizes::DefinitionSizes;
use riglm_discovery::learning::{Intent, Prediction, SessionView};
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
    /// The summed probability of the tools; `None` if a prediction did not select them.
    pub(super) mass: Option<f64>,
}

/// The tools of a catalog as candidates of a list.
pub(super) struct OfferCandidates<'a> {
    pub(super) tools: &'a [CatalogTool],
    marks: &'a [ToolMark],
    kept: &'a HashSet<ToolRef>,
    sizes: &'a DefinitionSizes,
}

impl Candidates for OfferCandidates<'_> {
    fn len(&self) -> usize {
        self.tools.len()
    }

    fn decision(&self, position: usize) -> ToolDecision {
        match self.marks.get(position) {
            Some(ToolMark::Exclude) => ToolDecision::Banned,
            Some(ToolMark::Include | ToolMark::Pin) => ToolDecision::Kept,
            _ if self.kept.contains(&self.tools[position].tool) => ToolDecision::Kept,
            _ => ToolDecision::Free,
        }
    }

    fn tokens(&self, position: usize) -> u64 {
        self.sizes.of(&self.tools[position].definition)
    }
}

impl Lists {
    /// Selects the tools of a list. Tools in `kept` are always selected.
    pub(super) async fn choose(
        &self,
        policy: ListPolicyName,
        ask: &ListRequest<'_>,
        offer: &Arc<Catalog>,
        kept: &HashSet<ToolRef>,
        marks: &[ToolMark],
    ) -> SelectedTools {
        let tools = offer.tools();
        let bounds = self.options(ask).bounds;
        let candidates = OfferCandidates {
            tools,
            marks,
            kept,
            sizes: &self.sizes,
        };
        let all_tokens = self.sizes.total(offer);
        let is_over_budget = bounds
            .token_budget
            .is_some_and(|budget| all_tokens > budget);
        // A list has at least `min_tools` tools, so none could be hidden.
        if tools.len() <= bounds.min_tools && !is_over_budget {
            return all_tools(SelectionReason::SmallCatalog);
        }
        let outlook = self.outlook(ask);
        let finding = if policy == ListPolicyName::Hints {
            HiddenToolSearch::OwnSearch
        } else {
            HiddenToolSearch::ProxySearch
        };
        let evidence = SizeEvidence {
            outlook: &outlook,
            finding,
            all_tokens,
        };
        let size = list_size(&candidates, &evidence, &bounds, &self.options(ask).prices);
        let learned = self.next_tools.as_ref().filter(|next| next.has_learned());
        let Some(next_tools) = learned else {
            let reason = SelectionReason::NothingLearned;
            if let Some(chosen) = self.topical(ask, offer, &candidates, None, Some(reason)) {
                return chosen;
            }
            if let Some(chosen) = self.pool(ask, &candidates, reason) {
                return chosen;
            }
            let (ranked, mode) = self.cold_start_order(ask, offer).await;
            return match size {
                Err(why) => whole_list(why, reason),
                Ok(n) => SelectedTools {
                    tools: self.choose_tools(ask, &candidates, &ranked, n).shown,
                    mode,
                    reason: Some(reason),
                    search_first: true,
                    mass: None,
                },
            };
        };
        let Some(prediction) = self.predict_for_list(ask, offer) else {
            return self.frequent_or_pool(ask, offer, &candidates, size).await;
        };
        let mut ranked = ranking(&prediction);
        if policy == ListPolicyName::Hints && session_view(ask).intent.is_none() {
            // The marks of this policy last for the whole session, and without an intent no query
            // says which tool comes next.
            let tools: Vec<ToolRef> = tools.iter().map(|tool| tool.tool.clone()).collect();
            let shares = next_tools.session_use(&session_view(ask), &tools);
            ranked = rank_for_session(&ranked, |at| shares.get(at).copied().unwrap_or(0.0));
        }
        let cold = (!outlook.is_learned()).then_some(SelectionReason::ColdStart);
        let knows_texts = cold.is_none() && next_tools.knows_texts(&session_view(ask));
        let forecast = knows_texts.then_some((ranked.as_slice(), size.unwrap_or(bounds.max_tools)));
        if let Some(chosen) = self.topical(ask, offer, &candidates, forecast, cold) {
            return chosen;
        }
        // The operator's pool is for this case, where little is known. A client that loads tools on
        // demand is shown all tools anyway.
        let shows_all = policy != ListPolicyName::Hints && prediction.shows_all(bounds.max_tools);
        if cold.is_some() || shows_all {
            let reason = SelectionReason::ColdStart;
            if let Some(chosen) = self.pool(ask, &candidates, reason) {
                return chosen;
            }
            if shows_all && !is_over_budget {
                return SelectedTools {
                    search_first: true,
                    ..all_tools(reason)
                };
            }
        }
        match size {
            Err(why) => whole_list(why, SelectionReason::ColdStart),
            Ok(n) => {
                let choice = self.choose_tools(ask, &candidates, &ranked, n);
                let band = prediction.confidence(bounds.max_tools).band;
                SelectedTools {
                    mass: Some(summed_probability(&ranked, &choice.shown)),
                    tools: choice.shown,
                    mode: SelectionMode::Prediction,
                    reason: cold,
                    search_first: cold.is_some() || band != ConfidenceBand::Filter,
                }
            }
        }
    }

    /// Returns the expected number of calls and searches of the client's session. For a shared list
    /// it is the expectation over all sessions of the principal.
    pub(super) fn outlook(&self, ask: &ListRequest<'_>) -> SessionOutlook {
        let shape = self.options(ask).prices.shape;
        let nothing = || SizeHistory::default().outlook(client_key(ask), ask.is_modern, &shape);
        let next_tools = self.next_tools.as_ref();
        next_tools.map_or_else(nothing, |next_tools| {
            next_tools.outlook(&session_view(ask), ask.is_modern, &shape)
        })
    }

    /// Returns the tools in an order that needs no learning, and the mode of that order: by call
    /// frequency if learning is off, else by the definitions of the tools.
    async fn cold_start_order(
        &self,
        ask: &ListRequest<'_>,
        offer: &Catalog,
    ) -> (Vec<(usize, f64)>, SelectionMode) {
        if self.next_tools.is_none() {
            let frequent = self.frequent(ask, offer).await;
            if !frequent.is_empty() {
                return (frequent, SelectionMode::Frequency);
            }
        }
        (typical_ranking(offer.tools()), SelectionMode::General)
    }

    /// Selects `n` tools in addition to the kept ones. Reports tools that do not fit into the
    /// budget.
    fn choose_tools(
        &self,
        ask: &ListRequest<'_>,
        candidates: &OfferCandidates<'_>,
        ranked: &[(usize, f64)],
        n: usize,
    ) -> ListChoice {
        let bounds = ListBounds {
            max_tools: n,
            ..self.options(ask).bounds
        };
        let choice = choose_tools(candidates, ranked, &bounds);
        self.warn_of_budget(ask, &choice);
        choice
    }

    /// Returns the prediction of the next tools; `None` if the predictor failed or is missing.
    pub(super) fn predict(&self, ask: &ListRequest<'_>, offer: &Catalog) -> Option<Prediction> {
        let next_tools = self.next_tools.as_ref()?;
        let tools: Vec<ToolRef> = offer.tools().iter().map(|tool| tool.tool.clone()).collect();
        let prediction = next_tools.predict(&session_view(ask), &tools);
        prediction.fallback.is_none().then_some(prediction)
    }

    /// Returns the prediction for a list that is shown, and notes the exposure to the experiment.
    pub(super) fn predict_for_list(
        &self,
        ask: &ListRequest<'_>,
        offer: &Catalog,
    ) -> Option<Prediction> {
        let prediction = self.predict(ask, offer)?;
        if let Some(next_tools) = &self.next_tools {
            next_tools.record_exposure(&session_view(ask));
        }
        Some(prediction)
    }

    async fn frequent_or_pool(
        &self,
        ask: &ListRequest<'_>,
        offer: &Arc<Catalog>,
        candidates: &OfferCandidates<'_>,
        size: Result<usize, ShowAllReason>,
    ) -> SelectedTools {
        let reason = SelectionReason::PredictorFailed;
        let ranked = self.frequent(ask, offer).await;
        if ranked.is_empty() {
            let pool = self.pool(ask, candidates, reason);
            return pool.unwrap_or_else(|| all_tools(reason));
        }
        match size {
            Err(why) => whole_list(why, reason),
            Ok(n) => SelectedTools {
                tools: self.choose_tools(ask, candidates, &ranked, n).shown,
                mode: SelectionMode::Frequency,
                reason: Some(reason),
                search_first: true,
                mass: None,
            },
        }
    }

    /// Returns the tools that the principal called lately with their shares of the calls, the most
    /// frequent first. Empty if the store fails or times out.
    async fn frequent(&self, ask: &ListRequest<'_>, offer: &Catalog) -> Vec<(usize, f64)> {
        let Some(stores) = &self.stores else {
            return Vec::new();
        };
        let since = ask.now - jiff::SignedDuration::from_hours(24 * FREQUENCY_DAYS);
        let asked = stores.usage.frequencies(Some(ask.principal), since);
        // An error is ignored, because there are further fallbacks.
        let Ok(Ok(counts)) = tokio::time::timeout(FREQUENCY_DEADLINE, asked).await else {
            return Vec::new();
        };
        let total: u64 = counts.iter().map(|count| count.n_calls).sum();
        let ranked = counts.iter().filter_map(|count| {
            let at = offer.position_of(&count.tool)?;
            Some((at, ratio(count.n_calls, total)))
        });
        ranked.collect()
    }

    /// Returns the default pool as a selection; `None` if it has all tools.
    pub(super) fn pool(
        &self,
        ask: &ListRequest<'_>,
        candidates: &OfferCandidates<'_>,
        reason: SelectionReason,
    ) -> Option<SelectedTools> {
        let pool = self.default_pool(ask, candidates.tools);
        if pool.len() == candidates.tools.len() {
            return None;
        }
        // Within the pool, a request about tasks keeps every task tool.
        let said = ask.intent.filter(|_| !ask.is_modern);
        let about = said.map_or_else(Vec::new, |intent| {
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
        let is_little = about.is_empty() || about.len() < self.options(ask).bounds.min_tools;
        let mut tools: Vec<usize> = if is_little {
            pool
        } else {
            about.into_iter().map(|at| pool[at]).collect()
        };
        let kept =
            (0..candidates.len()).filter(|at| candidates.decision(*at) == ToolDecision::Kept);
        tools.extend(kept);
        tools.retain(|at| candidates.decision(*at) != ToolDecision::Banned);
        tools.sort_unstable();
        tools.dedup();
        Some(SelectedTools {
            tools,
            mode: SelectionMode::Pool,
            reason: Some(reason),
            search_first: true,
            mass: None,
        })
    }

    /// Returns the positions of the default pool, ascending: the tools of all pools for the profile
    /// and the intent. All tools if no pool applies.
    pub(super) fn default_pool(&self, ask: &ListRequest<'_>, tools: &[CatalogTool]) -> Vec<usize> {
        let said = ask.intent.filter(|_| !ask.is_modern);
        let said: HashSet<String> = said.map_or_else(HashSet::new, |intent| {
            words(&intent.text).into_iter().collect()
        });
        let is_called_for = |pool: &&Pool| {
            let is_of_profile = (pool.profile.as_deref()).is_none_or(|of| ask.profile == Some(of));
            let mut called = pool.words.iter().flat_map(|word| words(word));
            is_of_profile && (pool.words.is_empty() || called.any(|word| said.contains(&word)))
        };
        let options = self.options(ask);
        let pools: Vec<&Pool> = options.pools.iter().filter(is_called_for).collect();
        let is_in = |tool: &CatalogTool| pools.iter().any(|pool| fits_any(&pool.tools, tool));
        let all = tools.iter().enumerate();
        let pool: Vec<usize> = all
            .filter(|(_, tool)| is_in(tool))
            .map(|(at, _)| at)
            .collect();
        if pool.is_empty() {
            (0..tools.len()).collect()
        } else {
            pool
        }
    }
}

pub(super) fn ranking(prediction: &Prediction) -> Vec<(usize, f64)> {
    let ranked = prediction.ranked.iter();
    ranked
        .map(|tool| (tool.position, tool.probability))
        .collect()
}

/// Returns the input of a prediction for this request.
pub(super) fn session_view<'a>(ask: &'a ListRequest<'_>) -> SessionView<'a> {
    // The intent of one session must not change a list that several sessions share.
    let intent = ask.intent.filter(|_| !ask.is_modern);
    SessionView {
        session: live_session(ask),
        principal: ask.principal,
        client: if ask.is_modern { "" } else { ask.client },
        intent: intent.map(|intent| Intent {
            text: &intent.text,
            fits: &intent.fits,
            vector: intent.vector.as_ref(),
        }),
        now: ask.now,
    }
}

/// Returns the key under which sessions of the client are learned.
fn client_key(ask: &ListRequest<'_>) -> ClientKey {
    ClientKey::new(ask.principal, ask.client)
}

/// Returns the session whose calls are the history of a prediction. A shared list gets an id that
/// no session has.
fn live_session(ask: &ListRequest<'_>) -> SessionKey {
    if ask.is_modern {
        SessionKey::Connection(SessionId::new(jiff::Timestamp::UNIX_EPOCH, [0; 10]))
    } else {
        ask.session
    }
}

fn all_tools(reason: SelectionReason) -> SelectedTools {
    SelectedTools {
        tools: Vec::new(),
        mode: SelectionMode::All,
        reason: Some(reason),
        search_first: false,
        mass: None,
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
        })
        .collect();
    initial_order(&unknown)
        .into_iter()
        .map(|at| (at, 0.0))
        .collect()
}

/// Returns the summed probability of the tools at `positions`, which must be ascending.
pub(super) fn summed_probability(ranked: &[(usize, f64)], positions: &[usize]) -> f64 {
    let chosen = ranked
        .iter()
        .filter(|(at, _)| positions.binary_search(at).is_ok());
    chosen
        .map(|(_, probability)| probability)
        .sum::<f64>()
        .min(1.0)
}
