//! What sessions are doing, in words, as far as that is known: kept in memory, never stored, never
//! logged.
//!
//! Texts are noted where they pass: what clients say of it, search for, ask prompts and resources
//! for, give calls as arguments, and what servers have a model complete. How much each counts is a
//! rule of [`riglm_domain::intent`].

use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;
use lru::LruCache;
use riglm_domain::id::SessionId;
use riglm_domain::intent::IntentMemory;

pub use riglm_domain::intent::{IntentSource, IntentWeights, KnownIntent};

/// How many sessions are followed at a time.
const MAX_SESSIONS: usize = 4_096;

/// What sessions are doing.
#[derive(Debug)]
pub struct Intents {
    weights: IntentWeights,
    sessions: Mutex<LruCache<SessionId, IntentMemory>>,
}

impl Intents {
    /// Returns the intents of no session so far.
    #[must_use]
    pub fn new(weights: IntentWeights) -> Self {
        let n = NonZeroUsize::new(MAX_SESSIONS).unwrap_or(NonZeroUsize::MIN);
        Self {
            weights,
            sessions: Mutex::new(LruCache::new(n)),
        }
    }

    /// Returns whether a source counts, so that its texts are worth being read.
    #[must_use]
    pub fn listens_to(&self, source: IntentSource) -> bool {
        self.weights.of(source) > 0.0
    }

    /// Notes a text that says what a session is doing. One of [`IntentSource::Arguments`] is noted
    /// for each call, empty or not: calls make older texts count less.
    pub fn note(&self, session: SessionId, source: IntentSource, text: &str, now: Timestamp) {
        let mut sessions = self.lock();
        let memory = sessions.get_or_insert_mut(session, IntentMemory::default);
        memory.note(source, text, &self.weights, now);
    }

    /// Returns what a session is doing, if anything is known of it.
    #[must_use]
    pub fn current(&self, session: SessionId, now: Timestamp) -> Option<KnownIntent> {
        let mut sessions = self.lock();
        sessions.get(&session)?.current(now)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<SessionId, IntentMemory>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn session(n: usize) -> SessionId {
        let n = i64::try_from(n).unwrap();
        SessionId::new(NOW + SignedDuration::from_millis(n), [1; 10])
    }

    #[test]
    fn sessions_are_kept_apart_and_the_oldest_is_forgotten() {
        let intents = Intents::new(IntentWeights::default());
        for n in 0..=MAX_SESSIONS {
            intents.note(session(n), IntentSource::Search, &n.to_string(), NOW);
        }
        assert_eq!(intents.current(session(0), NOW), None);
        let known = intents.current(session(1), NOW).unwrap();
        assert_eq!(known.text, "1");
    }

    #[test]
    fn what_was_said_counts_less_with_every_call() {
        let intents = Intents::new(IntentWeights {
            arguments: 0.0,
            ..IntentWeights::default()
        });
        assert!(!intents.listens_to(IntentSource::Arguments));
        intents.note(session(1), IntentSource::SetContext, "said", NOW);
        let before = intents.current(session(1), NOW).unwrap();
        intents.note(session(1), IntentSource::Arguments, "a secret", NOW);
        let after = intents.current(session(1), NOW).unwrap();
        assert_eq!(after.text, "said");
        assert!(after.weight < before.weight);
    }
}
