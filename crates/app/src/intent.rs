//! What sessions are doing, in words, as far as that is known: kept in memory, never stored, never
//! logged.
//!
//! Texts are noted where they pass: what clients say of it, search for, ask prompts and resources
//! for, give calls as arguments, and what servers have a model complete. How much each counts is a
//! rule of [`riglm_domain::intent`].

use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use arc_swap::ArcSwap;
use jiff::Timestamp;
use lru::LruCache;
use riglm_domain::id::SessionId;
use riglm_domain::intent::{ContextShift, IntentMemory, RecentCall, StatedIntent};
use riglm_domain::invocation::CallSession;

pub use riglm_domain::intent::{IntentSource, IntentWeights, KnownIntent};

/// How many sessions are followed at a time.
const MAX_SESSIONS: usize = 4_096;

/// What sessions are doing.
#[derive(Debug)]
pub struct Intents {
    weights: ArcSwap<IntentWeights>,
    sessions: Mutex<LruCache<CallSession, IntentMemory>>,
}

impl Intents {
    /// Returns the intents of no session so far.
    #[must_use]
    pub fn new(weights: IntentWeights) -> Self {
        let n = NonZeroUsize::new(MAX_SESSIONS).unwrap_or(NonZeroUsize::MIN);
        Self {
            weights: ArcSwap::from_pointee(weights),
            sessions: Mutex::new(LruCache::new(n)),
        }
    }

    /// Has sources count by other weights from now on. What was noted before keeps its weight.
    pub fn set_weights(&self, weights: IntentWeights) {
        self.weights.store(Arc::new(weights));
    }

    /// Returns whether a source counts, so that its texts are worth being read.
    #[must_use]
    pub fn listens_to(&self, source: IntentSource) -> bool {
        self.weights.load().of(source) > 0.0
    }

    /// Notes a text that says what a session is doing. One of [`IntentSource::Arguments`] is noted
    /// for each call, empty or not: calls make older texts count less. Nothing is noted while no
    /// source counts. Returns the shift where the client says that it does something else.
    pub fn note(
        &self,
        session: CallSession,
        source: IntentSource,
        text: &str,
        now: Timestamp,
    ) -> Option<ContextShift> {
        let weights = self.weights.load();
        if weights.is_off() {
            return None;
        }
        let mut sessions = self.lock();
        let memory = sessions.get_or_insert_mut(session, IntentMemory::default);
        memory.note(source, text, &weights, now)
    }

    /// Notes a call of a tool with what its arguments say. Returns the shift where recent calls are
    /// less like what the client said that it does than `threshold` (0 to 1; 0 for never).
    pub fn called(
        &self,
        session: CallSession,
        (tool, arguments): (&str, &str),
        threshold: f64,
    ) -> Option<ContextShift> {
        if threshold <= 0.0 {
            return None;
        }
        let mut sessions = self.lock();
        let memory = sessions.get_mut(&session)?;
        memory.called(RecentCall::new(tool, arguments), threshold)
    }

    /// Returns what a client said of what it does, in `session` and before that was known over the
    /// connection `row`.
    #[must_use]
    pub fn stated(&self, session: CallSession, row: SessionId, now: Timestamp) -> StatedIntent {
        let row = CallSession::Connection(row);
        let mut sessions = self.lock();
        let mut of = |session| {
            let memory: Option<&IntentMemory> = sessions.get(&session);
            memory.map_or_else(StatedIntent::default, |memory| memory.stated(now))
        };
        let stated = of(session);
        if session == row {
            return stated;
        }
        stated.or_earlier(of(row))
    }

    /// Returns what a session is doing, if anything is known of it.
    #[must_use]
    pub fn current(&self, session: CallSession, now: Timestamp) -> Option<KnownIntent> {
        let mut sessions = self.lock();
        sessions.get(&session)?.current(now)
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<CallSession, IntentMemory>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn session(n: usize) -> CallSession {
        let n = i64::try_from(n).unwrap();
        CallSession::Connection(SessionId::new(
            NOW + SignedDuration::from_millis(n),
            [1; 10],
        ))
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
    fn other_weights_hold_from_the_next_text_on() {
        let off = IntentWeights {
            set_context: 0.0,
            request: 0.0,
            search: 0.0,
            prompts: 0.0,
            sampling: 0.0,
            arguments: 0.0,
            resources: 0.0,
        };
        let intents = Intents::new(off);
        intents.note(session(1), IntentSource::SetContext, "before", NOW);
        assert_eq!(intents.current(session(1), NOW), None);
        intents.set_weights(IntentWeights::default());
        assert!(intents.listens_to(IntentSource::SetContext));
        intents.note(session(1), IntentSource::SetContext, "after", NOW);
        let known = intents.current(session(1), NOW).unwrap();
        assert_eq!(known.text, "after");
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
