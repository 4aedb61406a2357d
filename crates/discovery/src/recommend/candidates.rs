//! Candidates for an intent, and their ranking, which is cached for repeated requests.

use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::recommendation::{
    Candidate, CandidateIndex, FactorWeights, IntentAnalysis, Lexicon, RankedTool, rank_candidates,
};
use riglm_domain::retrieval::search::SearchQuality;

use super::tool_performance::PrincipalStatistics;
use crate::search::CatalogRanking;

/// Cached candidate indexes, one per catalog.
const MAX_INDEXED: NonZeroUsize = NonZeroUsize::MIN.saturating_add(15);

/// Candidates for an intent, best first.
#[derive(Clone, Debug)]
pub(super) struct RankedCandidates {
    pub(super) intent: IntentAnalysis,
    pub(super) quality: SearchQuality,
    pub(super) fits: bool,
    pub(super) candidates: Vec<RankedTool<Candidate>>,
}

impl RankedCandidates {
    pub(super) fn none(intent: IntentAnalysis) -> Self {
        Self {
            intent,
            quality: SearchQuality::Low,
            fits: false,
            candidates: Vec::new(),
        }
    }
}

/// The inputs of a ranking.
pub(super) struct RankingInputs {
    pub(super) intent: IntentAnalysis,
    pub(super) ranking: CatalogRanking,
    pub(super) known: Arc<PrincipalStatistics>,
    /// Calls of the session, the newest last.
    pub(super) used: Vec<ToolRef>,
    pub(super) weights: FactorWeights,
    /// Maximum number of candidates.
    pub(super) n_candidates: usize,
}

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

    pub(super) fn analyse(&self, query: &str) -> IntentAnalysis {
        IntentAnalysis::of(query, &self.lexicon)
    }

    /// Returns the candidates in a catalog, best first. The first call for a catalog builds an
    /// index and is slower.
    pub(super) fn rank(&self, catalog: [u8; 32], asked: RankingInputs) -> RankedCandidates {
        let RankingInputs {
            intent,
            ranking,
            known,
            used,
            weights,
            n_candidates,
        } = asked;
        let neighbours: Vec<usize> = ranking.hits.iter().map(|hit| hit.position).collect();
        let index = self.index(catalog, &ranking);
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
            candidates: rank_candidates(&intent, candidates, &scores, &weights, factors),
            intent,
            quality: ranking.quality,
            fits: ranking.fits,
        }
    }

    fn index(&self, catalog: [u8; 32], ranking: &CatalogRanking) -> Arc<CandidateIndex> {
        let lock = || self.indexes.lock();
        if let Some(index) = lock().get(&catalog) {
            return Arc::clone(index);
        }
        let index = Arc::new(CandidateIndex::new(ranking.index.tools(), &self.lexicon));
        lock().put(catalog, Arc::clone(&index));
        index
    }
}
