//! Counts of texts that are counted by more than one.
//!
//! The arguments and the result of a call are counted for its row and for the budget of its work
//! session, on two threads, at about the same moment.

use std::hash::{BuildHasher, RandomState};
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, PoisonError};

use lru::LruCache;
use riglm_ports::token_counter::TokenCounter;

/// How many counts are remembered: more than wait to be counted at a time.
const MAX_COUNTS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);

/// A counter of tokens that knows the texts again which it counted lately.
///
/// It is for threads that count beside the way of requests: one waits while another counts, so that
/// both do not count the same.
#[derive(Debug)]
pub struct RememberedCounts {
    counter: Arc<dyn TokenCounter>,
    /// Counts by the hash of their text, under a key of this process: two texts of one hash would have
    /// one count, but with 64 bits and so few texts there are hardly ever two.
    counts: Mutex<LruCache<u64, u64>>,
    hasher: RandomState,
}

impl RememberedCounts {
    /// Returns a counter that counts with this one.
    #[must_use]
    pub fn new(counter: Arc<dyn TokenCounter>) -> Self {
        Self {
            counter,
            counts: Mutex::new(LruCache::new(MAX_COUNTS)),
            hasher: RandomState::new(),
        }
    }
}

impl TokenCounter for RememberedCounts {
    fn count(&self, text: &str) -> u64 {
        let hash = self.hasher.hash_one(text);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.get_or_insert(hash, || self.counter.count(text))
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    /// Counts bytes, and how often it is asked.
    #[derive(Debug, Default)]
    struct Asked(AtomicUsize);

    impl TokenCounter for Asked {
        fn count(&self, text: &str) -> u64 {
            self.0.fetch_add(1, Ordering::Relaxed);
            text.len() as u64
        }
    }

    #[test]
    fn a_text_is_counted_once_by_two_threads_and_others_for_themselves() {
        let asked = Arc::new(Asked::default());
        let counts = RememberedCounts::new(asked.clone());
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
    fn what_was_counted_long_ago_is_counted_again() {
        let asked = Arc::new(Asked::default());
        let counts = RememberedCounts::new(asked.clone());
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
