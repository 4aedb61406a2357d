//! Recent calls of sessions, before the store has them.

use std::collections::VecDeque;
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::num::NonZeroUsize;

use jiff::Timestamp;
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::usage::invocation::SessionKey;

use super::learner::idle_gap;

/// The most sessions in memory; the least recently used are dropped.
const MAX_SESSIONS: usize = 10_000;
/// The number of last calls of a session that are kept in order.
const MAX_CALLS: usize = 256;
/// The number of different tools that are kept of earlier calls.
const MAX_EARLIER: usize = 128;

/// A hash of a tool. Names may be long, and invented by clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct CallKey(u64);

impl CallKey {
    pub(super) fn of(tool: &ToolRef) -> Self {
        let mut hasher = DefaultHasher::new();
        tool.upstream.as_str().hash(&mut hasher);
        tool.tool.as_str().hash(&mut hasher);
        Self(hasher.finish())
    }
}

#[derive(Debug)]
struct CallsOfSession {
    /// The tools of calls before the last ones, each once.
    earlier: Vec<CallKey>,
    last: VecDeque<CallKey>,
    last_at: Timestamp,
}

impl CallsOfSession {
    fn new(at: Timestamp) -> Self {
        Self {
            earlier: Vec::new(),
            last: VecDeque::new(),
            last_at: at,
        }
    }

    fn is_over(&self, session: &SessionKey, now: Timestamp) -> bool {
        now.duration_since(self.last_at) > idle_gap(session)
    }

    fn push(&mut self, tool: CallKey, at: Timestamp) {
        if self.last.len() >= MAX_CALLS
            && let Some(oldest) = self.last.pop_front()
            && self.earlier.len() < MAX_EARLIER
            && !self.earlier.contains(&oldest)
        {
            self.earlier.push(oldest);
        }
        self.last.push_back(tool);
        self.last_at = self.last_at.max(at);
    }
}

/// The calls of the current sessions.
#[derive(Debug)]
pub(super) struct SessionCalls(Mutex<LruCache<SessionKey, CallsOfSession>>);

impl Default for SessionCalls {
    fn default() -> Self {
        let n = NonZeroUsize::new(MAX_SESSIONS).unwrap_or(NonZeroUsize::MIN);
        Self(Mutex::new(LruCache::new(n)))
    }
}

impl SessionCalls {
    pub(super) fn record_call(&self, session: SessionKey, tool: &ToolRef, at: Timestamp) {
        let mut sessions = self.0.lock();
        let calls = sessions.get_or_insert_mut(session, || CallsOfSession::new(at));
        if calls.is_over(&session, at) {
            *calls = CallsOfSession::new(at);
        }
        calls.push(CallKey::of(tool), at);
    }

    /// Returns the calls of a session so far, in order. Empty if there are none, or if the pause
    /// was so long that another session begins.
    pub(super) fn of(&self, session: SessionKey, now: Timestamp) -> Vec<CallKey> {
        let mut sessions = self.0.lock();
        let calls = sessions
            .get(&session)
            .filter(|calls| !calls.is_over(&session, now));
        calls.map_or_else(Vec::new, |calls| {
            calls.earlier.iter().chain(&calls.last).copied().collect()
        })
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use riglm_domain::id::{SessionId, UpstreamName};

    use super::*;

    fn tool(n: usize) -> ToolRef {
        ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: format!("t{n}").as_str().into(),
        }
    }

    fn key(n: usize) -> CallKey {
        CallKey::of(&tool(n))
    }

    #[test]
    fn calls_are_kept_until_the_session_is_silent() {
        let sessions = SessionCalls::default();
        let start = Timestamp::constant(1_800_000_000, 0);
        let session = SessionKey::Connection(SessionId::new(start, [1; 10]));
        sessions.record_call(session, &tool(1), start);
        sessions.record_call(session, &tool(2), start + SignedDuration::from_mins(9));
        let later = start + SignedDuration::from_mins(19);
        assert_eq!(sessions.of(session, later), [key(1), key(2)]);
        assert_eq!(
            sessions.of(
                SessionKey::Connection(SessionId::new(start, [2; 10])),
                later
            ),
            []
        );
        let silent = later + SignedDuration::from_secs(1);
        assert_eq!(sessions.of(session, silent), []);
        sessions.record_call(session, &tool(3), silent);
        assert_eq!(sessions.of(session, silent), [key(3)]);
    }

    #[test]
    fn a_long_session_keeps_its_last_calls_and_its_tools() {
        let sessions = SessionCalls::default();
        let start = Timestamp::constant(1_800_000_000, 0);
        let session = SessionKey::Connection(SessionId::new(start, [1; 10]));
        sessions.record_call(session, &tool(7), start);
        for _ in 0..2 {
            for n in 0..MAX_CALLS {
                sessions.record_call(session, &tool(n % 20), start);
            }
        }
        let calls = sessions.of(session, start);
        assert_eq!(calls.len(), MAX_CALLS + 20);
        assert_eq!(calls[0], key(7));
        assert_eq!(calls.last(), Some(&key((MAX_CALLS - 1) % 20)));
    }
}
