//! A cache of the values that were used last, limited in number and in bytes.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;

/// The most recently used values. A value is found by comparison with its content, so that all
/// sessions with equal content share it.
#[derive(Debug)]
pub(super) struct RecentCache<T> {
    max_entries: usize,
    max_bytes: usize,
    /// The values with their sizes in bytes, the last used first.
    entries: Mutex<VecDeque<(Arc<T>, usize)>>,
}

impl<T> RecentCache<T> {
    /// Returns an empty cache for at most `max_entries` values of `max_bytes` in total.
    pub(super) fn new(max_entries: usize, max_bytes: usize) -> Self {
        Self {
            max_entries,
            max_bytes,
            entries: Mutex::default(),
        }
    }

    /// Returns the value that satisfies the condition. It counts as used.
    pub(super) fn find(&self, is_it: impl Fn(&T) -> bool) -> Option<Arc<T>> {
        let mut entries = self.entries.lock();
        let at = entries.iter().position(|(value, _)| is_it(value))?;
        let entry = entries.remove(at)?;
        let value = Arc::clone(&entry.0);
        entries.push_front(entry);
        Some(value)
    }

    /// Adds a value of this size in bytes. The values that were not used for longest are dropped
    /// while the limits are exceeded.
    pub(super) fn insert(&self, value: &Arc<T>, n_bytes: usize) {
        let mut entries = self.entries.lock();
        entries.push_front((Arc::clone(value), n_bytes));
        let mut total: usize = entries.iter().map(|(_, n_bytes)| n_bytes).sum();
        while entries.len() > self.max_entries || total > self.max_bytes {
            let Some((_, dropped)) = entries.pop_back() else {
                return;
            };
            total -= dropped;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn least_recently_used_values_are_evicted() {
        let cache = RecentCache::new(2, 100);
        for value in [1, 2] {
            cache.insert(&Arc::new(value), 1);
        }
        assert!(cache.find(|value| *value == 1).is_some());
        cache.insert(&Arc::new(3), 1);
        let kept = [1, 2, 3].map(|value| cache.find(|known| *known == value).is_some());
        assert_eq!(kept, [true, false, true]);
    }

    proptest! {
        #[test]
        fn the_limits_are_never_exceeded(sizes in prop::collection::vec(0_usize..50, 0..40)) {
            let cache = RecentCache::new(5, 100);
            for (number, n_bytes) in sizes.into_iter().enumerate() {
                cache.insert(&Arc::new(number), n_bytes);
                let entries = cache.entries.lock();
                prop_assert!(entries.len() <= 5);
                prop_assert!(entries.iter().map(|(_, n_bytes)| n_bytes).sum::<usize>() <= 100);
                prop_assert!(entries.front().is_some_and(|(value, _)| **value == number));
            }
        }
    }
}
