//! An LRU cache that principals share fairly: the principal with the most entries is evicted first.

use std::collections::HashMap;
use std::hash::Hash;

use lru::LruCache;
use riglm_domain::privacy::principal::Principal;

/// A cache with a fixed number of entries. If it is full, the principal with the most entries loses
/// its least recently used one.
#[derive(Debug)]
pub(super) struct FairCache<K: Hash + Eq, V> {
    by_principal: HashMap<Principal, LruCache<K, V>>,
    n_entries: usize,
    capacity: usize,
}

impl<K: Hash + Eq, V> FairCache<K, V> {
    /// Returns an empty cache of at most `capacity` entries, at least one.
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            by_principal: HashMap::new(),
            n_entries: 0,
            capacity: capacity.max(1),
        }
    }

    /// Returns an entry of a principal and marks it as used.
    pub(super) fn get(&mut self, principal: &Principal, key: &K) -> Option<&V> {
        self.by_principal.get_mut(principal)?.get(key)
    }

    /// Returns an entry of a principal, and inserts it first if necessary.
    pub(super) fn get_or_insert_mut(
        &mut self,
        principal: &Principal,
        key: K,
        make: impl FnOnce() -> V,
    ) -> &mut V {
        let own = self.by_principal.get(principal);
        if !own.is_some_and(|own| own.contains(&key)) {
            self.make_room(principal);
            self.n_entries += 1;
        }
        let own = self.by_principal.entry(principal.clone());
        own.or_insert_with(LruCache::unbounded)
            .get_or_insert_mut(key, make)
    }

    /// Evicts an entry if there is no room for one of `principal`.
    fn make_room(&mut self, principal: &Principal) {
        if self.n_entries < self.capacity {
            return;
        }
        // On a tie, the principal that inserts the entry loses one.
        let all = self.by_principal.iter_mut();
        let most = all.max_by_key(|(whose, entries)| (entries.len(), *whose == principal));
        let Some((whose, entries)) = most else {
            return;
        };
        entries.pop_lru();
        self.n_entries -= 1;
        if entries.is_empty() {
            let whose = whose.clone();
            self.by_principal.remove(&whose);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn put(cache: &mut FairCache<u32, u32>, principal: &str, keys: std::ops::Range<u32>) {
        for key in keys {
            cache.get_or_insert_mut(&Principal::from_name(principal), key, || key);
        }
    }

    fn n_of(cache: &FairCache<u32, u32>, principal: &str) -> usize {
        let own = cache.by_principal.get(&Principal::from_name(principal));
        own.map_or(0, LruCache::len)
    }

    #[test]
    fn the_principal_with_most_entries_loses_its_oldest() {
        let mut cache = FairCache::new(10);
        put(&mut cache, "one", 0..100);
        assert_eq!(n_of(&cache, "one"), 10);
        put(&mut cache, "other", 0..3);
        put(&mut cache, "one", 100..1_000);
        assert_eq!((n_of(&cache, "one"), n_of(&cache, "other")), (7, 3));
        let other = Principal::from_name("other");
        assert_eq!(cache.get(&other, &0), Some(&0));
        put(&mut cache, "other", 3..100);
        assert_eq!((n_of(&cache, "one"), n_of(&cache, "other")), (5, 5));
        let kept: Vec<u32> = (0..1_000)
            .filter(|key| cache.get(&Principal::from_name("one"), key).is_some())
            .collect();
        assert_eq!(kept, [995, 996, 997, 998, 999]);
    }

    #[test]
    fn each_principal_has_an_entry_within_the_capacity() {
        let mut cache = FairCache::new(10);
        put(&mut cache, "one", 0..100);
        for n in 0..9 {
            put(&mut cache, &format!("p{n}"), 0..1);
        }
        put(&mut cache, "one", 0..100);
        assert_eq!(cache.n_entries, 10);
        assert!((0..9).all(|n| n_of(&cache, &format!("p{n}")) == 1));
        put(&mut cache, "last", 0..1);
        assert_eq!(cache.n_entries, 10);
        let n_entries: usize = cache.by_principal.values().map(LruCache::len).sum();
        assert_eq!(n_entries, 10);
        assert!(cache.by_principal.values().all(|own| !own.is_empty()));
    }
}
