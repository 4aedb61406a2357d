//! Cache of rankings for repeated requests.
//!
//! The key has everything on which a ranking depends: catalog, intent, principal, calls of the
//! session, weights. A change of one of these needs no invalidation. Expired entries are evicted
//! when new ones arrive, the least recently used first.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::recommendation::IntentAnalysis;

use super::candidates::RankedCandidates;

/// Maximum number of cached rankings.
const MAX_RANKINGS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// Maximum number of expired entries to remove per insertion. It is more than one, so that their
/// number falls.
const MAX_REMOVED: usize = 4;

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct RankingKey {
    pub(super) catalog: [u8; 32],
    /// The query in lower case, with single spaces.
    pub(super) query: String,
    /// The analysed intent, which can depend on upper case and line breaks of the query.
    pub(super) intent: IntentAnalysis,
    pub(super) principal: Principal,
    /// Hash of the tools that the session called, in their order.
    pub(super) used: u64,
    pub(super) arm: Option<ExperimentArm>,
    /// The bits of the weights, in their order.
    pub(super) weights: [u64; 5],
    pub(super) n_candidates: usize,
    /// Counter of other changes: configuration, overrides of operators.
    pub(super) revision: u64,
}

impl RankingKey {
    /// Returns a hash of tools in their order.
    pub(super) fn hash_of(tools: &[ToolRef]) -> u64 {
        let mut hasher = DefaultHasher::new();
        tools.hash(&mut hasher);
        hasher.finish()
    }

    /// Normalizes a query for comparison: lower case, single spaces.
    pub(super) fn normalize_query(query: &str) -> String {
        let lower = query.to_lowercase();
        lower.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[derive(Debug)]
pub(super) struct RankingCache {
    of: Mutex<LruCache<RankingKey, (Timestamp, Arc<RankedCandidates>)>>,
    keep: Duration,
}

impl RankingCache {
    /// Returns a cache whose entries expire after `keep`.
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            of: Mutex::new(LruCache::new(MAX_RANKINGS)),
            keep,
        }
    }

    pub(super) fn get(&self, key: &RankingKey, now: Timestamp) -> Option<Arc<RankedCandidates>> {
        let mut kept = self.of.lock();
        let (made_at, ranked) = kept.get(key)?;
        if self.is_fresh(*made_at, now) {
            return Some(Arc::clone(ranked));
        }
        kept.pop(key);
        None
    }

    pub(super) fn put(&self, key: RankingKey, ranked: Arc<RankedCandidates>, now: Timestamp) {
        if self.keep.is_zero() {
            return;
        }
        let mut kept = self.of.lock();
        for _ in 0..MAX_REMOVED {
            let oldest = kept.peek_lru().map(|(_, (made_at, _))| *made_at);
            if oldest.is_none_or(|made_at| self.is_fresh(made_at, now)) {
                break;
            }
            kept.pop_lru();
        }
        kept.put(key, (now, ranked));
    }

    fn is_fresh(&self, made_at: Timestamp, now: Timestamp) -> bool {
        let age = now.duration_since(made_at);
        Duration::try_from(age).is_ok_and(|age| age < self.keep)
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::recommendation::Lexicon;
    use riglm_domain::retrieval::search::SearchQuality;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const KEEP: Duration = Duration::from_hours(1);

    fn key(n: usize) -> RankingKey {
        RankingKey {
            catalog: [0; 32],
            query: format!("query {n}"),
            intent: IntentAnalysis::default(),
            principal: Principal::local(),
            used: 0,
            arm: None,
            weights: [0; 5],
            n_candidates: 20,
            revision: 0,
        }
    }

    fn empty_ranking() -> Arc<RankedCandidates> {
        Arc::new(RankedCandidates {
            intent: IntentAnalysis::of("read a file", &Lexicon::built_in()),
            quality: SearchQuality::High,
            fits: true,
            candidates: Vec::new(),
        })
    }

    fn n_kept(kept: &RankingCache) -> usize {
        kept.of.lock().len()
    }

    #[test]
    fn expired_rankings_are_removed_on_insertion() {
        let kept = RankingCache::new(KEEP);
        let one = empty_ranking();
        for n in 0..10 {
            kept.put(key(n), Arc::clone(&one), NOW);
        }
        let later = NOW + KEEP;
        kept.put(key(10), Arc::clone(&one), later);
        assert_eq!(n_kept(&kept), 7, "four go for one that comes");
        kept.put(key(11), Arc::clone(&one), later);
        kept.put(key(12), Arc::clone(&one), later);
        assert_eq!(n_kept(&kept), 3);
        assert_eq!(Arc::strong_count(&one), 4, "nothing else holds it");
        assert!(kept.get(&key(10), later).is_some());
        assert!(kept.get(&key(0), later).is_none());
    }

    #[test]
    fn unexpired_rankings_are_kept_on_insertion() {
        let kept = RankingCache::new(KEEP);
        kept.put(key(0), empty_ranking(), NOW);
        let before_the_end = NOW + KEEP.saturating_sub(Duration::from_secs(1));
        kept.put(key(1), empty_ranking(), before_the_end);
        assert!(kept.get(&key(0), before_the_end).is_some());
        assert!(kept.get(&key(0), NOW + KEEP).is_none());
        assert_eq!(n_kept(&kept), 1);
    }
}
