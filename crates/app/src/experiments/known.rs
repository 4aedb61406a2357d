//! Assignments that are held in memory.

use std::sync::{Mutex, MutexGuard, PoisonError};

use lru::LruCache;

/// How many units are remembered; those that were not seen for longest are looked up again.
const MAX_UNITS: usize = 100_000;
/// How many assignments wait to be stored; more are stored when their units come again.
const MAX_WAITING: usize = 10_000;

/// An experiment, by its position, and the text that identifies a unit.
pub(super) type UnitKey = (usize, String);

/// What is known of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    /// The position of the arm; `None` for an arm that is not configured any more.
    pub(super) arm: Option<usize>,
}

/// Which arm the units belong to that were seen, and what is yet to be stored of that.
#[derive(Debug)]
pub(super) struct KnownUnits(Mutex<Units>);

#[derive(Debug)]
struct Units {
    known: LruCache<UnitKey, Known>,
    waiting: Vec<(UnitKey, usize, jiff::Timestamp)>,
}

impl KnownUnits {
    pub(super) fn new() -> Self {
        Self(Mutex::new(Units {
            known: LruCache::unbounded(),
            waiting: Vec::new(),
        }))
    }

    /// Returns what is known of a unit.
    pub(super) fn get(&self, key: &UnitKey) -> Option<Known> {
        self.units().known.get(key).copied()
    }

    /// Notes which arm a unit belongs to.
    pub(super) fn put(&self, key: UnitKey, known: Known) {
        self.units().put(key, known);
    }

    /// Notes that a unit is seen for the first time, in an arm that is yet to be stored. Returns
    /// whether it was not known.
    pub(super) fn begin(&self, key: &UnitKey, arm: usize, now: jiff::Timestamp) -> bool {
        let mut units = self.units();
        if units.known.contains(key) || units.waiting.len() >= MAX_WAITING {
            return false;
        }
        units.put(key.clone(), Known { arm: Some(arm) });
        units.waiting.push((key.clone(), arm, now));
        true
    }

    /// Takes what is yet to be stored.
    pub(super) fn take_waiting(&self) -> Vec<(UnitKey, usize, jiff::Timestamp)> {
        std::mem::take(&mut self.units().waiting)
    }

    /// Gives back what could not be stored. What does not fit is forgotten, so that it is stored when
    /// its units come again.
    pub(super) fn give_back(&self, waiting: Vec<(UnitKey, usize, jiff::Timestamp)>) {
        let mut units = self.units();
        units.waiting.extend(waiting);
        let kept = units.waiting.len().min(MAX_WAITING);
        let dropped = units.waiting.split_off(kept);
        for (key, ..) in dropped {
            units.known.pop(&key);
        }
    }

    fn units(&self) -> MutexGuard<'_, Units> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Units {
    fn put(&mut self, key: UnitKey, known: Known) {
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

    fn begin(units: &KnownUnits, names: std::ops::Range<usize>) -> usize {
        let keys = names.map(|n| (0, n.to_string()));
        keys.filter(|key| units.begin(key, 1, NOW)).count()
    }

    #[test]
    fn what_is_not_given_back_is_stored_when_it_comes_again() {
        let units = KnownUnits::new();
        assert_eq!(begin(&units, 0..MAX_WAITING), MAX_WAITING);
        let failed = units.take_waiting();
        let n_later = MAX_WAITING - 1;
        let later = MAX_WAITING..MAX_WAITING + n_later;
        assert_eq!(begin(&units, later), n_later);
        units.give_back(failed);
        // Of those that failed there is room for the first.
        assert!(units.get(&(0, "0".into())).is_some());
        assert_eq!(units.get(&(0, "1".into())), None);
        assert_eq!(units.take_waiting().len(), MAX_WAITING);
        assert_eq!(begin(&units, 0..3), 2);
    }
}
