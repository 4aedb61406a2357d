//! The choice: of what is predicted; where that cannot be, of what was frequent; else the default
//! pool; else everything.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::SessionId;
use riglm_domain::invocation::CallSession;
use riglm_domain::list_shown::{SelectionMode, SelectionReason};
use riglm_domain::listing::{
    Candidates, Choice, Decision, Evidence, Focus, ListPolicyName, ListPrices, ReadOnly, Standing,
    WhyAll, decide, focused,
};
use riglm_domain::prediction::Band;
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
    tools: &'a [OfferedTool],
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
        let options = self.options(ask);
        let candidates = OfferCandidates {
            tools,
            marks,
            kept,
            sizes: &self.sizes,
        };
        if tools.len() <= options.bounds.min_tools {
            return all(SelectionReason::SmallCatalog);
        }
        let learned = self.next_tools.as_ref().filter(|next| next.has_learned());
        if learned.is_none() {
            let reason = SelectionReason::NothingLearned;
            return self.topical_or_pool(ask, offer, &candidates, reason);
        }
        let Some(prediction) = self.predict_for_list(ask, offer) else {
            return self.frequent_or_pool(ask, offer, &candidates).await;
        };
        let band = prediction.confidence(options.bounds.max_tools).band;
        let ranked = ranking(&prediction);
        let some = |choice: Choice| Chosen {
            mass: Some(mass(&ranked, &choice.shown)),
            tools: choice.shown,
            mode: SelectionMode::Prediction,
            reason: None,
            search_first: band == Band::SearchProminent,
        };
        if policy == ListPolicyName::Hints && band == Band::ShowAll {
            let topical = self.topical(ask, offer, &candidates, SelectionReason::ColdStart);
            return topical.unwrap_or_else(|| all(SelectionReason::ColdStart));
        }
        let evidence = Evidence {
            ranked: &ranked,
            band,
            all_tokens: self.sizes.total(offer),
        };
        // A client that loads on demand wants to load little: one search to spare is enough.
        let prices = ListPrices {
            n_spare_searches: if policy == ListPolicyName::Hints {
                options.prices.n_spare_searches.min(1.0)
            } else {
                options.prices.n_spare_searches
            },
            ..options.prices
        };
        match decide(&candidates, &evidence, &options.bounds, &prices) {
            Decision::Some(choice) => {
                self.warn_of_budget(ask, &choice);
                some(choice)
            }
            Decision::All(WhyAll::NotPaying) => all(SelectionReason::NotPaying),
            Decision::All(WhyAll::ColdStart) => {
                self.topical_or_pool(ask, offer, &candidates, SelectionReason::ColdStart)
            }
        }
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
    ) -> Chosen {
        let ranked = self.frequent(ask, offer).await;
        if ranked.is_empty() {
            return self.pool_or_all(ask, candidates, SelectionReason::PredictorFailed);
        }
        let evidence = Evidence {
            ranked: &ranked,
            band: Band::SearchProminent,
            all_tokens: self.sizes.total(offer),
        };
        let options = self.options(ask);
        match decide(candidates, &evidence, &options.bounds, &options.prices) {
            Decision::Some(choice) => Chosen {
                tools: choice.shown,
                mode: SelectionMode::Frequency,
                reason: Some(SelectionReason::PredictorFailed),
                search_first: true,
                mass: None,
            },
            Decision::All(_) => all(SelectionReason::PredictorFailed),
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

    /// Returns the default pool as a choice, where there is one; else everything.
    pub(super) fn pool_or_all(
        &self,
        ask: &ListAsk<'_>,
        candidates: &OfferCandidates<'_>,
        reason: SelectionReason,
    ) -> Chosen {
        let pool = self.default_pool(ask, candidates.tools);
        if pool.len() == candidates.tools.len() {
            return all(reason);
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
        Chosen {
            tools,
            mode: SelectionMode::Pool,
            reason: Some(reason),
            search_first: true,
            mass: None,
        }
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
