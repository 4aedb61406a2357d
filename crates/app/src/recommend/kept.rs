//! Rankings that were made a while ago, for who asks the same again.
//!
//! What a ranking depends on is part of its key: the catalog, the intent, who asks, what the session
//! did, the weights. So nothing has to be removed when one of these changes; what nobody asks for
//! any more makes room for others: what was kept for long enough goes when something else comes, the
//! least recently used first.

use std::hash::{DefaultHasher, Hash, Hasher as _};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use lru::LruCache;
use riglm_domain::experiment::ExperimentArm;
use riglm_domain::principal::Principal;
use riglm_domain::recommender::IntentAnalysis;
use riglm_domain::tool::ToolRef;

use super::candidates::RankedCandidates;

/// How many rankings are kept.
const MAX_KEPT: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// How many that are over are removed when one comes: more than come, so that they become fewer.
const MAX_REMOVED: usize = 4;

/// What a ranking depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Key {
    pub(super) offer: [u8; 32],
    /// The query in lower case, with single spaces.
    pub(super) query: String,
    /// What it asks for, which may depend on capitals and on the ends of lines.
    pub(super) intent: IntentAnalysis,
    pub(super) principal: Principal,
    /// A hash of the tools that the session called, in their order.
    pub(super) used: u64,
    /// The arm of an experiment by which it is made.
    pub(super) arm: Option<ExperimentArm>,
    /// The bits of the weights, in their order.
    pub(super) weights: [u64; 5],
    /// How many candidates there are.
    pub(super) n_candidates: usize,
    /// Counts what else changed: rules, decisions of operators.
    pub(super) revision: u64,
}

impl Key {
    /// Returns a hash of tools in their order.
    pub(super) fn hash_of(tools: &[ToolRef]) -> u64 {
        let mut hasher = DefaultHasher::new();
        tools.hash(&mut hasher);
        hasher.finish()
    }

    /// Returns the text by which queries count as the same.
    pub(super) fn normalised(query: &str) -> String {
        let lower = query.to_lowercase();
        lower.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

/// Rankings that were made a while ago.
#[derive(Debug)]
pub(super) struct Kept {
    of: Mutex<LruCache<Key, (Timestamp, Arc<RankedCandidates>)>>,
    keep: Duration,
}

impl Kept {
    /// Returns a place for rankings, each of which is kept so long.
    pub(super) fn new(keep: Duration) -> Self {
        Self {
            of: Mutex::new(LruCache::new(MAX_KEPT)),
            keep,
        }
    }

    pub(super) fn get(&self, key: &Key, now: Timestamp) -> Option<Arc<RankedCandidates>> {
        let mut kept = self.of.lock().unwrap_or_else(PoisonError::into_inner);
        let (made_at, ranked) = kept.get(key)?;
        if self.is_fresh(*made_at, now) {
            return Some(Arc::clone(ranked));
        }
        kept.pop(key);
        None
    }

    pub(super) fn put(&self, key: Key, ranked: Arc<RankedCandidates>, now: Timestamp) {
        if self.keep.is_zero() {
            return;
        }
        let mut kept = self.of.lock().unwrap_or_else(PoisonError::into_inner);
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
    use riglm_domain::recommender::Lexicon;
    use riglm_domain::search::SearchQuality;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);
    const KEEP: Duration = Duration::from_hours(1);

    fn key(n: usize) -> Key {
        Key {
            offer: [0; 32],
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

    fn ranked() -> Arc<RankedCandidates> {
        Arc::new(RankedCandidates {
            intent: IntentAnalysis::of("read a file", &Lexicon::shipped()),
            quality: SearchQuality::High,
            fits: true,
            candidates: Vec::new(),
        })
    }

    fn n_kept(kept: &Kept) -> usize {
        kept.of.lock().unwrap().len()
    }

    #[test]
    fn what_is_over_goes_when_others_come() {
        let kept = Kept::new(KEEP);
        let one = ranked();
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
    fn what_is_not_over_stays() {
        let kept = Kept::new(KEEP);
        kept.put(key(0), ranked(), NOW);
        let before_the_end = NOW + KEEP.saturating_sub(Duration::from_secs(1));
        kept.put(key(1), ranked(), before_the_end);
        assert!(kept.get(&key(0), before_the_end).is_some());
        assert!(kept.get(&key(0), NOW + KEEP).is_none());
        assert_eq!(n_kept(&kept), 1);
    }
}
