//! The choice: what the client says that it does first, then what is predicted; where nothing can be
//! predicted, what was frequent; before anything was learned, the default pool, or tools in their
//! typical order.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::SessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::list_shown::{SelectionMode, SelectionReason};
use riglm_domain::listing::{
    Candidates, Choice, Evidence, Finding, Focus, ListBounds, ListPolicyName, ReadOnly,
    SessionOutlook, SizeHistory, Standing, UnknownTool, WhyAll, choose, focused, rank_for_session,
    size_of, typical_order,
};
use riglm_domain::prediction::{Band, Party};
use riglm_domain::retrieval::words;
use riglm_domain::tool::ToolRef;

use super::ask::ListAsk;
use super::lists::Lists;
use super::marks::{Mark, fits_any};
use super::options::Pool;
use super::sizes::Sizes;
use crate::learning::{Intent, Prediction, SessionView};
use crate::search::{Offer, OfferedTool};

/// How long the store may take to say what was frequent.
const FREQUENCY_DEADLINE: Duration = Duration::from_millis(200);
/// How far back that goes.
const FREQUENCY_DAYS: i64 = 30;

/// What was chosen.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Chosen {
    /// The positions of the tools, ascending.
    pub(super) tools: Vec<usize>,
    pub(super) mode: SelectionMode,
    pub(super) reason: Option<SelectionReason>,
    pub(super) search_first: bool,
    /// The probability that a prediction gave to the tools together, where it chose them.
    pub(super) mass: Option<f64>,
}

/// The tools of an offer as candidates of a list.
pub(super) struct OfferCandidates<'a> {
    pub(super) tools: &'a [OfferedTool],
    marks: &'a [Mark],
    kept: &'a HashSet<ToolRef>,
    sizes: &'a Sizes,
}

impl Candidates for OfferCandidates<'_> {
    fn len(&self) -> usize {
        self.tools.len()
    }

    fn standing(&self, position: usize) -> Standing {
        match self.marks.get(position) {
            Some(Mark::Exclude) => Standing::Banned,
            Some(Mark::Include | Mark::Pin) => Standing::Kept,
            _ if self.kept.contains(&self.tools[position].tool) => Standing::Kept,
            _ => Standing::Free,
        }
    }

    fn tokens(&self, position: usize) -> u64 {
        self.sizes.of(&self.tools[position].definition)
    }
}

impl Lists {
    /// Chooses the tools of a list. What is `kept` is among them whatever is predicted.
    pub(super) async fn choose(
        &self,
        policy: ListPolicyName,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        kept: &HashSet<ToolRef>,
        marks: &[Mark],
    ) -> Chosen {
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
        if tools.len() <= bounds.min_tools && !is_over_budget {
            return all(SelectionReason::SmallCatalog);
        }
        let outlook = self.outlook(ask);
        let finding = if policy == ListPolicyName::Hints {
            Finding::OwnSearch
        } else {
            Finding::ProxySearch
        };
        let evidence = Evidence {
            outlook: &outlook,
            finding,
            all_tokens,
        };
        let size = size_of(&candidates, &evidence, &bounds, &self.options(ask).prices);
        let learned = self.next_tools.as_ref().filter(|next| next.has_learned());
        let Some(next_tools) = learned else {
            let reason = SelectionReason::NothingLearned;
            if let Some(chosen) = self.topical(ask, offer, &candidates, None, Some(reason)) {
                return chosen;
            }
            if let Some(chosen) = self.pool(ask, &candidates, reason) {
                return chosen;
            }
            let (ranked, mode) = self.unlearned(ask, offer).await;
            return match size {
                Err(why) => whole(why, reason),
                Ok(n) => Chosen {
                    tools: self.chosen(ask, &candidates, &ranked, n).shown,
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
            // Its marks are for the whole session, and no answer of a search tells what comes next.
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
        // An operator's choice for when little is known; a client that loads on demand is shown all
        // anyhow.
        let shows_all = policy != ListPolicyName::Hints && prediction.shows_all(bounds.max_tools);
        if cold.is_some() || shows_all {
            let reason = SelectionReason::ColdStart;
            if let Some(chosen) = self.pool(ask, &candidates, reason) {
                return chosen;
            }
            if shows_all && !is_over_budget {
                return Chosen {
                    search_first: true,
                    ..all(reason)
                };
            }
        }
        match size {
            Err(why) => whole(why, SelectionReason::ColdStart),
            Ok(n) => {
                let choice = self.chosen(ask, &candidates, &ranked, n);
                let band = prediction.confidence(bounds.max_tools).band;
                Chosen {
                    mass: Some(mass(&ranked, &choice.shown)),
                    tools: choice.shown,
                    mode: SelectionMode::Prediction,
                    reason: cold,
                    search_first: cold.is_some() || band != Band::Filter,
                }
            }
        }
    }

    /// Returns the expectation of the session of who asks, or of any session of its principal for a
    /// list that sessions share.
    pub(super) fn outlook(&self, ask: &ListAsk<'_>) -> SessionOutlook {
        let shape = self.options(ask).prices.shape;
        let nothing = || SizeHistory::default().outlook(party(ask), ask.is_modern, &shape);
        let next_tools = self.next_tools.as_ref();
        next_tools.map_or_else(nothing, |next_tools| {
            next_tools.outlook(&session_view(ask), ask.is_modern, &shape)
        })
    }

    /// Returns the tools in an order that needs no learning, and what it goes by: what was frequent where
    /// nothing is ever learned, else what servers say of their tools.
    async fn unlearned(
        &self,
        ask: &ListAsk<'_>,
        offer: &Offer,
    ) -> (Vec<(usize, f64)>, SelectionMode) {
        if self.next_tools.is_none() {
            let frequent = self.frequent(ask, offer).await;
            if !frequent.is_empty() {
                return (frequent, SelectionMode::Frequency);
            }
        }
        (typical(offer.tools()), SelectionMode::General)
    }

    /// Chooses `n` tools beside those that are kept, and notes where the budget has no room for them.
    fn chosen(
        &self,
        ask: &ListAsk<'_>,
        candidates: &OfferCandidates<'_>,
        ranked: &[(usize, f64)],
        n: usize,
    ) -> Choice {
        let bounds = ListBounds {
            max_tools: n,
            ..self.options(ask).bounds
        };
        let choice = choose(candidates, ranked, &bounds);
        self.warn_of_budget(ask, &choice);
        choice
    }

    /// Returns what the session needs next; `None` where that cannot be said because the predictor
    /// failed, or there is none.
    pub(super) fn predict(&self, ask: &ListAsk<'_>, offer: &Offer) -> Option<Prediction> {
        let next_tools = self.next_tools.as_ref()?;
        let tools: Vec<ToolRef> = offer.tools().iter().map(|tool| tool.tool.clone()).collect();
        let prediction = next_tools.predict(&session_view(ask), &tools);
        prediction.fallback.is_none().then_some(prediction)
    }

    /// Returns the same for a list that is chosen by it, and notes that it is.
    pub(super) fn predict_for_list(&self, ask: &ListAsk<'_>, offer: &Offer) -> Option<Prediction> {
        let prediction = self.predict(ask, offer)?;
        if let Some(next_tools) = &self.next_tools {
            next_tools.exposed(&session_view(ask));
        }
        Some(prediction)
    }

    async fn frequent_or_pool(
        &self,
        ask: &ListAsk<'_>,
        offer: &Arc<Offer>,
        candidates: &OfferCandidates<'_>,
        size: Result<usize, WhyAll>,
    ) -> Chosen {
        let reason = SelectionReason::PredictorFailed;
        let ranked = self.frequent(ask, offer).await;
        if ranked.is_empty() {
            let pool = self.pool(ask, candidates, reason);
            return pool.unwrap_or_else(|| all(reason));
        }
        match size {
            Err(why) => whole(why, reason),
            Ok(n) => Chosen {
                tools: self.chosen(ask, candidates, &ranked, n).shown,
                mode: SelectionMode::Frequency,
                reason: Some(reason),
                search_first: true,
                mass: None,
            },
        }
    }

    /// Returns the tools that the principal called lately, with their shares of the calls, the most
    /// frequent first; none where the store does not say in time.
    async fn frequent(&self, ask: &ListAsk<'_>, offer: &Offer) -> Vec<(usize, f64)> {
        let Some(stores) = &self.stores else {
            return Vec::new();
        };
        let since = ask.now - jiff::SignedDuration::from_hours(24 * FREQUENCY_DAYS);
        let asked = stores.usage.frequencies(Some(ask.principal), since);
        let Ok(Ok(counts)) = tokio::time::timeout(FREQUENCY_DEADLINE, asked).await else {
            return Vec::new();
        };
        let total: u64 = counts.iter().map(|count| count.n_calls).sum();
        let ranked = counts.iter().filter_map(|count| {
            let at = offer.position_of(&count.tool)?;
            Some((at, share(count.n_calls, total)))
        });
        ranked.collect()
    }

    /// Returns the default pool as a choice; `None` where there is none.
    pub(super) fn pool(
        &self,
        ask: &ListAsk<'_>,
        candidates: &OfferCandidates<'_>,
        reason: SelectionReason,
    ) -> Option<Chosen> {
        let pool = self.default_pool(ask, candidates.tools);
        if pool.len() == candidates.tools.len() {
            return None;
        }
        // Within the pool, a request about tasks keeps every task tool.
        let said = ask.intent.filter(|_| !ask.is_modern);
        let about = said.map_or_else(Vec::new, |intent| {
            let foci: Vec<Focus<'_>> = (pool.iter())
                .map(|at| &candidates.tools[*at])
                .map(|tool| Focus {
                    name: tool.tool.tool.as_str(),
                    read_only: ReadOnly::of_definition(&tool.definition),
                })
                .collect();
            focused(&intent.text, &foci)
        });
        let is_little = about.is_empty() || about.len() < self.options(ask).bounds.min_tools;
        let mut tools: Vec<usize> = if is_little {
            pool
        } else {
            about.into_iter().map(|at| pool[at]).collect()
        };
        let kept = (0..candidates.len()).filter(|at| candidates.standing(*at) == Standing::Kept);
        tools.extend(kept);
        tools.retain(|at| candidates.standing(*at) != Standing::Banned);
        tools.sort_unstable();
        tools.dedup();
        Some(Chosen {
            tools,
            mode: SelectionMode::Pool,
            reason: Some(reason),
            search_first: true,
            mass: None,
        })
    }

    /// Returns the positions of the tools that are shown where nothing better is known, ascending:
    /// those of the pools that are for the profile and for what is being done; all where none is.
    pub(super) fn default_pool(&self, ask: &ListAsk<'_>, tools: &[OfferedTool]) -> Vec<usize> {
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
        let is_in = |tool: &OfferedTool| pools.iter().any(|pool| fits_any(&pool.tools, tool));
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

/// Returns the positions with their probabilities.
pub(super) fn ranking(prediction: &Prediction) -> Vec<(usize, f64)> {
    let ranked = prediction.ranked.iter();
    ranked
        .map(|tool| (tool.position, tool.probability))
        .collect()
}

/// Returns what a prediction for who asks is made from.
pub(super) fn session_view<'a>(ask: &'a ListAsk<'_>) -> SessionView<'a> {
    // A list that sessions share is the same whoever of them asks first.
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
fn party(ask: &ListAsk<'_>) -> Party {
    Party::new(ask.principal, ask.client)
}

/// Returns whose calls a prediction goes on from: nobody's for a list that sessions share.
fn live_session(ask: &ListAsk<'_>) -> CallSession {
    if ask.is_modern {
        CallSession::Connection(SessionId::new(jiff::Timestamp::UNIX_EPOCH, [0; 10]))
    } else {
        ask.session
    }
}

fn all(reason: SelectionReason) -> Chosen {
    Chosen {
        tools: Vec::new(),
        mode: SelectionMode::All,
        reason: Some(reason),
        search_first: false,
        mass: None,
    }
}

/// Returns the whole list, with its reason; `cold` is that of a start.
fn whole(why: WhyAll, cold: SelectionReason) -> Chosen {
    match why {
        WhyAll::SmallCatalog => all(SelectionReason::SmallCatalog),
        WhyAll::NotPaying => all(SelectionReason::NotPaying),
        WhyAll::ColdStart => Chosen {
            search_first: true,
            ..all(cold)
        },
    }
}

/// Returns the tools in the order in which they are shown before anything was learned.
fn typical(tools: &[OfferedTool]) -> Vec<(usize, f64)> {
    let unknown: Vec<UnknownTool<'_>> = (tools.iter())
        .map(|tool| UnknownTool {
            server: tool.tool.upstream.as_str(),
            name: tool.tool.tool.as_str(),
            read_only: ReadOnly::of_definition(&tool.definition),
        })
        .collect();
    typical_order(&unknown)
        .into_iter()
        .map(|at| (at, 0.0))
        .collect()
}

/// Returns the probability of the tools at these positions, ascending, together.
pub(super) fn mass(ranked: &[(usize, f64)], positions: &[usize]) -> f64 {
    let chosen = ranked
        .iter()
        .filter(|(at, _)| positions.binary_search(at).is_ok());
    chosen
        .map(|(_, probability)| probability)
        .sum::<f64>()
        .min(1.0)
}

#[expect(
    clippy::cast_precision_loss,
    reason = "numbers of calls are far below 2^52"
)]
fn share(part: u64, whole: u64) -> f64 {
    part as f64 / whole.max(1) as f64
}
