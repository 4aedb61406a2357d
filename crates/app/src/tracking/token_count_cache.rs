//! Cache of token counts for texts that several threads count.
//!
//! The arguments and the result of a call are counted for its row and for the budget of its work
//! session, on two threads, at about the same time. The definitions of tools are counted each time
//! that an operator looks at them.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::Arc;

use lru::LruCache;
use parking_lot::Mutex;
use riglm_ports::token_counter::TokenCounter;

/// Size of the cache: the definitions of the 5,000 tools that the page asks for at most, and more
/// texts of calls than wait at a time.
const MAX_COUNTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(10_239);

/// A token counter with a cache of recent texts.
///
/// It is for background threads: one waits while another counts, so that no text is counted twice.
#[derive(Debug)]
pub struct CachedTokenCounter {
    counter: Arc<dyn TokenCounter>,
    /// Counts by the hash of their text, under a random key of this process. Two texts with the
    /// same hash would get the same count, but with 64 bits and so few texts that is very unlikely.
    counts: Mutex<LruCache<u64, u64>>,
    hasher: RandomState,
}

impl CachedTokenCounter {
    /// Creates a cache over `counter`.
    #[must_use]
    pub fn new(counter: Arc<dyn TokenCounter>) -> Self {
        Self {
            counter,
            counts: Mutex::new(LruCache::new(MAX_COUNTS)),
            hasher: RandomState::new(),
        }
    }
}

impl TokenCounter for CachedTokenCounter {
    fn count(&self, text: &str) -> u64 {
        let hash = self.hasher.hash_one(text);
        let mut counts = self.counts.lock();
        *counts.get_or_insert(hash, || self.counter.count(text))
    }
}

#[cfg(test)]
mod tests {
    use std::future::ready;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use riglm_ports::fake::WordCounter;

    use super::*;

    riglm_ports::token_counter_contract!(
        contract,
        ready(Box::new(CachedTokenCounter::new(Arc::new(WordCounter))))
    );

    /// Counts bytes, and the number of counted texts.
    #[derive(Debug, Default)]
    struct CountingCounter(AtomicUsize);

    impl TokenCounter for CountingCounter {
        fn count(&self, text: &str) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed);
            text.len() as u64
        }
    }

    #[test]
    fn concurrent_threads_count_each_text_once() {
        let asked = Arc::new(CountingCounter::default());
        let counts = CachedTokenCounter::new(asked.clone());
        let texts: Vec<String> = (0..100).map(|n| "x".repeat(n)).collect();
        std::thread::scope(|scope| {
            for _ in 0..2 {
                scope.spawn(|| {
                    for text in &texts {
                        assert_eq!(counts.count(text), text.len() as u64);
                    }
                });
            }
        });
        assert_eq!(asked.0.load(Ordering::Relaxed), texts.len());
    }

    #[test]
    fn the_definitions_of_a_large_catalog_stay_beside_the_texts_of_calls() {
        let asked = Arc::new(CountingCounter::default());
        let counts = CachedTokenCounter::new(asked.clone());
        for part in ["definition", "text of a call", "definition"] {
            for n in 0..5_000 {
                counts.count(&format!("{part} {n}"));
            }
        }
        assert_eq!(asked.0.load(Ordering::Relaxed), 10_000);
    }

    #[test]
    fn evicted_texts_are_counted_again() {
        let asked = Arc::new(CountingCounter::default());
        let counts = CachedTokenCounter::new(asked.clone());
        for n in 0..=MAX_COUNTS.get() {
            counts.count(&n.to_string());
        }
        let n_asked = MAX_COUNTS.get() + 1;
        counts.count("1");
        assert_eq!(asked.0.load(Ordering::Relaxed), n_asked);
        counts.count("0");
        assert_eq!(asked.0.load(Ordering::Relaxed), n_asked + 1);
    }
}
