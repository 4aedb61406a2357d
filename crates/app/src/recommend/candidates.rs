//! The candidates for an intent, and their ranking: what is kept for who asks the same again.

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use riglm_domain::recommender::{
    Candidate, CandidateIndex, FactorWeights, IntentAnalysis, Lexicon, Ranked, ranked_candidates,
};
use riglm_domain::search::SearchQuality;
use riglm_domain::tool::ToolRef;

use super::standings::Known;
use crate::search::OfferRanking;

/// How many offers have their tools sorted by what they are about.
const MAX_INDEXED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// The candidates for an intent, best first.
#[derive(Clone, Debug)]
pub(super) struct RankedCandidates {
    pub(super) intent: IntentAnalysis,
    pub(super) quality: SearchQuality,
    /// Whether any tool fits.
    pub(super) fits: bool,
    pub(super) candidates: Vec<Ranked<Candidate>>,
}

impl RankedCandidates {
    /// Returns that there are none for an intent.
    pub(super) fn none(intent: IntentAnalysis) -> Self {
        Self {
            intent,
            quality: SearchQuality::Low,
            fits: false,
            candidates: Vec::new(),
        }
    }
}

/// What a ranking is made of.
pub(super) struct Asked {
    pub(super) intent: IntentAnalysis,
    pub(super) ranking: OfferRanking,
    pub(super) known: Arc<Known>,
    /// What the session called, the newest last.
    pub(super) used: Vec<ToolRef>,
    pub(super) weights: FactorWeights,
    /// How many candidates there are at most.
    pub(super) n_candidates: usize,
}

/// Finds candidates in offers.
#[derive(Debug)]
pub(super) struct CandidateFinder {
    lexicon: Lexicon,
    indexes: Mutex<LruCache<[u8; 32], Arc<CandidateIndex>>>,
}

impl CandidateFinder {
    pub(super) fn new(lexicon: Lexicon) -> Self {
        Self {
            lexicon,
            indexes: Mutex::new(LruCache::new(MAX_INDEXED)),
        }
    }

    pub(super) fn analysed(&self, query: &str) -> IntentAnalysis {
        IntentAnalysis::of(query, &self.lexicon)
    }

    /// Returns the candidates in an offer, best first. Takes a while where the tools of the offer are
    /// not sorted yet.
    pub(super) fn ranked(&self, offer: [u8; 32], asked: Asked) -> RankedCandidates {
        let Asked {
            intent,
            ranking,
            known,
            used,
            weights,
            n_candidates,
        } = asked;
        let neighbours: Vec<usize> = ranking.hits.iter().map(|hit| hit.position).collect();
        let index = self.index(offer, &ranking);
        let candidates = index.candidates(&intent, &neighbours, n_candidates);
        let tools = ranking.index.tools();
        let mut scores = vec![0.0; tools.len()];
        for hit in &ranking.hits {
            scores[hit.position] = hit.score;
        }
        let factors = |candidate: &Candidate, relevance| {
            let tool = tools[candidate.position].tool();
            let session = known.successions.session_share(&used, tool);
            known.standings.factors(tool, relevance, session)
        };
        RankedCandidates {
            candidates: ranked_candidates(&intent, candidates, &scores, &weights, factors),
            intent,
            quality: ranking.quality,
            fits: ranking.fits,
        }
    }

    fn index(&self, offer: [u8; 32], ranking: &OfferRanking) -> Arc<CandidateIndex> {
        let lock = || self.indexes.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(index) = lock().get(&offer) {
            return Arc::clone(index);
        }
        let index = Arc::new(CandidateIndex::new(ranking.index.tools(), &self.lexicon));
        lock().put(offer, Arc::clone(&index));
        index
    }
}
