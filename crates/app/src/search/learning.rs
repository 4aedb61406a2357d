//! What searches and calls teach: which tools were used after which texts, and with which others.

use std::num::NonZeroUsize;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::UsageHistory;
use riglm_domain::tool::{ToolKey, ToolRef};
use riglm_domain::usage::{ToolCooccurrence, ToolFrequency, ToolSessions};

/// How many principals are remembered at a time; one that comes back is read from the store.
const MAX_PRINCIPALS: usize = 256;
/// How many sessions are followed at a time.
const MAX_SESSIONS: usize = 10_000;
/// The most tools of one session that count.
const MAX_SESSION_TOOLS: usize = 128;
/// How long a search says what the following calls are for.
pub(super) const SEARCH_LASTS: SignedDuration = SignedDuration::from_mins(10);
/// How much a call tells of the text before it.
const AFTER_SEARCH: f32 = 1.0;
const NOT_AMONG_RESULTS: f32 = 0.6;
const FAILED: f32 = -0.2;

/// The text that a session searched for last.
#[derive(Clone, Debug)]
struct LastSearch {
    /// Its vector, centred.
    text: Embedding,
    at: Timestamp,
    results: Vec<ToolKey>,
}

#[derive(Debug, Default)]
struct SessionState {
    search: Option<LastSearch>,
    tools: Vec<ToolKey>,
}

/// What is known of principals and sessions.
#[derive(Debug)]
pub(super) struct Learning {
    histories: LruCache<Principal, UsageHistory>,
    sessions: LruCache<SessionId, SessionState>,
}

/// What the store has counted of a principal.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) frequencies: Vec<ToolFrequency>,
    pub(super) sessions: Vec<ToolSessions>,
    pub(super) pairs: Vec<ToolCooccurrence>,
}

/// A call that followed a text.
#[derive(Debug)]
pub(super) struct UseAfterText {
    /// The vector of the text, centred.
    pub(super) text: Embedding,
    pub(super) given_at: Timestamp,
    pub(super) tool: ToolKey,
    pub(super) is_ok: bool,
}

impl Default for Learning {
    fn default() -> Self {
        let cache = |n| NonZeroUsize::new(n).unwrap_or(NonZeroUsize::MIN);
        Self {
            histories: LruCache::new(cache(MAX_PRINCIPALS)),
            sessions: LruCache::new(cache(MAX_SESSIONS)),
        }
    }
}

impl Learning {
    /// Returns whether something is known of a principal, be it that there is nothing.
    pub(super) fn knows(&self, principal: &Principal) -> bool {
        self.histories.contains(principal)
    }

    /// Returns what is known of a principal, and the tools that the session has used.
    pub(super) fn of(
        &mut self,
        principal: &Principal,
        session: SessionId,
    ) -> (Option<&UsageHistory>, Vec<ToolKey>) {
        let state = self.sessions.get(&session);
        let tools = state.map(|state| state.tools.clone()).unwrap_or_default();
        (self.histories.get(principal), tools)
    }

    /// Takes over what the store has counted of a principal, unless something is known by now.
    pub(super) fn load(&mut self, principal: &Principal, counted: &Counted) {
        if self.knows(principal) {
            return;
        }
        let mut history = UsageHistory::new(UsageHistory::MAX_MEMORIES);
        for tool in &counted.frequencies {
            history.count_calls(tool.tool.key(), count(tool.n_calls));
        }
        for tool in &counted.sessions {
            history.count_sessions(tool.tool.key(), count(tool.n_sessions));
        }
        for pair in &counted.pairs {
            history.count_together(pair.tool_a.key(), pair.tool_b.key(), count(pair.count));
        }
        self.histories.put(principal.clone(), history);
    }

    /// Remembers what the store has of a principal's texts and the calls that followed.
    pub(super) fn remember(&mut self, principal: &Principal, uses: &[UseAfterText]) {
        let Some(history) = self.histories.get_mut(principal) else {
            return;
        };
        for call in uses {
            let trust = if call.is_ok { AFTER_SEARCH } else { FAILED };
            history.remember(&call.text, (call.tool, trust), call.given_at, 0);
        }
    }

    /// Notes what a session searched for and was answered.
    pub(super) fn searched(
        &mut self,
        session: SessionId,
        text: Embedding,
        at: Timestamp,
        results: Vec<ToolKey>,
    ) {
        let state = self
            .sessions
            .get_or_insert_mut(session, SessionState::default);
        state.search = Some(LastSearch { text, at, results });
    }

    /// Notes that a call of a session ended.
    pub(super) fn called(
        &mut self,
        session: SessionId,
        principal: &Principal,
        (tool, is_ok): (&ToolRef, bool),
        now: Timestamp,
    ) {
        let tool = tool.key();
        let state = self
            .sessions
            .get_or_insert_mut(session, SessionState::default);
        let is_new = !state.tools.contains(&tool) && state.tools.len() < MAX_SESSION_TOOLS;
        // What was not read from the store yet will be, with this call among it.
        if let Some(history) = self.histories.get_mut(principal) {
            history.count_calls(tool, 1.0);
            if is_new {
                history.count_sessions(tool, 1.0);
                for other in &state.tools {
                    history.count_together(*other, tool, 1.0);
                }
            }
            let search = state.search.as_ref();
            if let Some(search) = search.filter(|it| now.duration_since(it.at) <= SEARCH_LASTS) {
                let trust = match (is_ok, search.results.contains(&tool)) {
                    (false, _) => FAILED,
                    (true, true) => AFTER_SEARCH,
                    (true, false) => NOT_AMONG_RESULTS,
                };
                history.remember(&search.text, (tool, trust), now, 0);
            }
        }
        if is_new {
            state.tools.push(tool);
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: u64) -> f64 {
    n as f64
}
