//! Intents of sessions, as texts. They are kept in memory, never stored and never logged.
//!
//! The texts come from passing messages: declared contexts, queries, arguments of prompts,
//! resources and calls, and model completions that servers request. The weight of each source is a
//! rule of [`riglm_domain::intent`].

use std::num::NonZeroUsize;
use std::sync::Arc;

use arc_swap::ArcSwap;
use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::id::SessionId;
use riglm_domain::intent::{ContextShift, IntentMemory, RecentCall, StatedIntent};
use riglm_domain::usage::invocation::SessionKey;

pub use riglm_domain::intent::{IntentSource, IntentWeights, KnownIntent};

/// The most sessions in memory.
const MAX_SESSIONS: usize = 4_096;

/// The intents of sessions.
#[derive(Debug)]
pub struct Intents {
    weights: ArcSwap<IntentWeights>,
    sessions: Mutex<LruCache<SessionKey, IntentMemory>>,
}

impl Intents {
    /// Creates intents without any session.
    #[must_use]
    pub fn new(weights: IntentWeights) -> Self {
        let n = NonZeroUsize::new(MAX_SESSIONS).unwrap_or(NonZeroUsize::MIN);
        Self {
            weights: ArcSwap::from_pointee(weights),
            sessions: Mutex::new(LruCache::new(n)),
        }
    }

    /// Replaces the weights of sources. Earlier texts keep their weight.
    pub fn set_weights(&self, weights: IntentWeights) {
        self.weights.store(Arc::new(weights));
    }

    /// Returns whether a source has a weight, so that its texts need to be read.
    #[must_use]
    pub fn listens_to(&self, source: IntentSource) -> bool {
        self.weights.load().of(source) > 0.0
    }

    /// Adds a text about the task of a session. Call it for each call with
    /// [`IntentSource::Arguments`], even without arguments: calls lower the weight of older texts.
    /// Does nothing if no source has a weight. Returns the shift if the client declares another
    /// task.
    pub fn note(
        &self,
        session: SessionKey,
        source: IntentSource,
        text: &str,
        now: Timestamp,
    ) -> Option<ContextShift> {
        let weights = self.weights.load();
        if weights.is_off() {
            return None;
        }
        let mut sessions = self.sessions.lock();
        let memory = sessions.get_or_insert_mut(session, IntentMemory::default);
        memory.add_text(source, text, &weights, now)
    }

    /// Adds a call of a tool with the texts of its arguments. Returns the shift if the similarity
    /// of recent calls to the declared context is below `threshold` (0 to 1; 0 for never).
    pub fn record_call(
        &self,
        session: SessionKey,
        tool: &str,
        arguments: &str,
        threshold: f64,
    ) -> Option<ContextShift> {
        if threshold <= 0.0 {
            return None;
        }
        let mut sessions = self.sessions.lock();
        let memory = sessions.get_mut(&session)?;
        memory.add_call(RecentCall::new(tool, arguments), threshold)
    }

    /// Returns the declarations of a client in `session`, and the earlier ones over the connection
    /// `row` from before the work session was known.
    #[must_use]
    pub fn stated_intent(
        &self,
        session: SessionKey,
        row: SessionId,
        now: Timestamp,
    ) -> StatedIntent {
        let row = SessionKey::Connection(row);
        let mut sessions = self.sessions.lock();
        let mut of = |session| {
            let memory: Option<&IntentMemory> = sessions.get(&session);
            memory.map_or_else(StatedIntent::default, |memory| memory.stated_intent(now))
        };
        let stated = of(session);
        if session == row {
            return stated;
        }
        stated.merged_with(of(row))
    }

    /// Returns the intent of a session, if known.
    #[must_use]
    pub fn current(&self, session: SessionKey, now: Timestamp) -> Option<KnownIntent> {
        let mut sessions = self.sessions.lock();
        sessions.get(&session)?.current_intent(now)
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn session(n: usize) -> SessionKey {
        let n = i64::try_from(n).unwrap();
        SessionKey::Connection(SessionId::new(
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
    fn changed_weights_apply_from_the_next_text_on() {
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
    fn the_weight_of_an_intent_falls_with_every_call() {
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
