//! Assignments that are held in memory.

use lru::LruCache;
use parking_lot::Mutex;

/// Maximum number of cached units. Evicted units are computed again.
const MAX_UNITS: usize = 100_000;
/// Maximum number of assignments that wait to be stored. Further ones are stored when their units
/// occur again.
const MAX_QUEUED: usize = 10_000;

/// Index of an experiment, and the identifier of a unit.
pub(super) type UnitKey = (usize, String);

/// Cached data of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CachedAssignment {
    /// Index of the arm, or `None` if the arm is no longer configured.
    pub(super) arm: Option<usize>,
}

/// Arms of recent units, and the queue of assignments to store.
#[derive(Debug)]
pub(super) struct AssignmentCache(Mutex<AssignmentCacheState>);

#[derive(Debug)]
struct AssignmentCacheState {
    known: LruCache<UnitKey, CachedAssignment>,
    waiting: Vec<(UnitKey, usize, jiff::Timestamp)>,
}

impl AssignmentCache {
    pub(super) fn new() -> Self {
        Self(Mutex::new(AssignmentCacheState {
            known: LruCache::unbounded(),
            waiting: Vec::new(),
        }))
    }

    /// Returns the cached data of a unit.
    pub(super) fn get(&self, key: &UnitKey) -> Option<CachedAssignment> {
        self.0.lock().known.get(key).copied()
    }

    /// Stores the arm of a unit in the cache.
    pub(super) fn put(&self, key: UnitKey, known: CachedAssignment) {
        self.0.lock().put(key, known);
    }

    /// Adds a new unit to the cache and its assignment to the queue. Returns whether it was new and
    /// there was room in the queue.
    pub(super) fn add_new(&self, key: &UnitKey, arm: usize, now: jiff::Timestamp) -> bool {
        let mut units = self.0.lock();
        if units.known.contains(key) || units.waiting.len() >= MAX_QUEUED {
            return false;
        }
        units.put(key.clone(), CachedAssignment { arm: Some(arm) });
        units.waiting.push((key.clone(), arm, now));
        true
    }

    /// Takes all assignments out of the queue.
    pub(super) fn take_queued(&self) -> Vec<(UnitKey, usize, jiff::Timestamp)> {
        std::mem::take(&mut self.0.lock().waiting)
    }

    /// Puts assignments back into the queue after an error of the store. If the queue is full,
    /// their units are evicted, so that they are stored when the units occur again.
    pub(super) fn requeue(&self, waiting: Vec<(UnitKey, usize, jiff::Timestamp)>) {
        let mut units = self.0.lock();
        units.waiting.extend(waiting);
        let kept = units.waiting.len().min(MAX_QUEUED);
        let dropped = units.waiting.split_off(kept);
        for (key, ..) in dropped {
            units.known.pop(&key);
        }
    }
}

impl AssignmentCacheState {
    fn put(&mut self, key: UnitKey, known: CachedAssignment) {
        self.known.put(key, known);
        while self.known.len() > MAX_UNITS {
            self.known.pop_lru();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: jiff::Timestamp = jiff::Timestamp::constant(1_800_000_000, 0);

    fn begin(units: &AssignmentCache, names: std::ops::Range<usize>) -> usize {
        let keys = names.map(|n| (0, n.to_string()));
        keys.filter(|key| units.add_new(key, 1, NOW)).count()
    }

    #[test]
    fn a_dropped_assignment_is_queued_at_the_next_exposure() {
        let units = AssignmentCache::new();
        assert_eq!(begin(&units, 0..MAX_QUEUED), MAX_QUEUED);
        let failed = units.take_queued();
        let n_later = MAX_QUEUED - 1;
        let later = MAX_QUEUED..MAX_QUEUED + n_later;
        assert_eq!(begin(&units, later), n_later);
        units.requeue(failed);
        // The queue has room for the first of the failed assignments.
        assert!(units.get(&(0, "0".into())).is_some());
        assert_eq!(units.get(&(0, "1".into())), None);
        assert_eq!(units.take_queued().len(), MAX_QUEUED);
        assert_eq!(begin(&units, 0..3), 2);
    }
}
