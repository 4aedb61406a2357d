//! What searches and calls teach: which tools were used after which texts, and with which others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use riglm_domain::embedding::Embedding;
use riglm_domain::id::SessionId;
use riglm_domain::principal::Principal;
use riglm_domain::retrieval::UsageHistory;
use riglm_domain::tool::ToolKey;
use riglm_domain::usage::{ToolCooccurrence, ToolFrequency, ToolSessions};

use super::fair_cache::FairCache;
use super::request::ToolCalled;

/// How many sessions are followed at a time.
const MAX_SESSIONS: usize = 10_000;
/// The most tools of one session that count.
const MAX_SESSION_TOOLS: usize = 128;
/// How many searches of a session are remembered for calls that began before the newest one.
const MAX_SESSION_SEARCHES: usize = 8;
/// How long a search says what the following calls are for.
const SEARCH_LASTS: SignedDuration = SignedDuration::from_mins(10);

/// Returns how much a call tells of the text before it: one that failed, a little of the opposite.
fn trust(is_ok: bool) -> f32 {
    if is_ok { 1.0 } else { -0.2 }
}

/// What the store has counted of a principal.
#[derive(Debug, Default)]
pub(super) struct Counted {
    pub(super) frequencies: Vec<ToolFrequency>,
    pub(super) sessions: Vec<ToolSessions>,
    pub(super) pairs: Vec<ToolCooccurrence>,
}

/// A text that was searched for, and the calls that followed.
#[derive(Debug)]
pub(super) struct UseAfterText {
    /// The vector of the text, centred.
    pub(super) text: Embedding,
    pub(super) given_at: Timestamp,
    /// The text itself, where it was kept.
    pub(super) words: Option<String>,
    /// The tools, and whether the call went well.
    pub(super) calls: Vec<(ToolKey, bool)>,
}

/// Returns the history of a principal, as the store has it.
pub(super) fn history(counted: &Counted, uses: &[UseAfterText]) -> UsageHistory {
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
    for text in uses {
        let calls = text.calls.iter();
        let told: Vec<(ToolKey, f32)> = calls.map(|(tool, is_ok)| (*tool, trust(*is_ok))).collect();
        history.remember_all(&text.text, &told, text.given_at, 0);
    }
    history
}

/// What a call teaches.
#[derive(Clone, Debug)]
pub(super) struct Lesson {
    tool: ToolKey,
    /// The tools that the session had used before; `None` if this one was among them.
    others: Option<Vec<ToolKey>>,
    /// The text that the call belongs to, and how much it tells of it.
    text: Option<(PastSearch, f32)>,
    at: Timestamp,
}

impl Lesson {
    /// Adds what it says to a history.
    pub(super) fn teach(&self, history: &mut UsageHistory) {
        history.count_calls(self.tool, 1.0);
        if let Some(others) = &self.others {
            history.count_sessions(self.tool, 1.0);
            for other in others {
                history.count_together(*other, self.tool, 1.0);
            }
        }
        if let Some((search, trust)) = &self.text {
            history.remember(&search.text, (self.tool, *trust), self.at, 0);
        }
    }

    /// Returns the search that led to the call, where that went well.
    pub(super) fn success(&self) -> Option<&PastSearch> {
        let search = self.text.as_ref().filter(|(_, trust)| *trust > 0.0);
        search.map(|(search, _)| search)
    }
}

/// A text that a session searched for.
#[derive(Clone, Debug)]
pub(super) struct PastSearch {
    /// Its vector, centred.
    pub(super) text: Embedding,
    /// The text itself.
    pub(super) words: Arc<str>,
    pub(super) at: Timestamp,
}

#[derive(Debug, Default)]
struct SessionState {
    /// The oldest one first.
    searches: VecDeque<PastSearch>,
    tools: Vec<ToolKey>,
}

/// What sessions searched for and used. One principal with many sessions makes those of no other
/// forgotten.
#[derive(Debug)]
pub(super) struct Sessions(Mutex<FairCache<SessionId, SessionState>>);

impl Default for Sessions {
    fn default() -> Self {
        Self(Mutex::new(FairCache::new(MAX_SESSIONS)))
    }
}

impl Sessions {
    /// Returns the tools that a session has used.
    pub(super) fn tools(&self, principal: &Principal, session: SessionId) -> Vec<ToolKey> {
        let mut sessions = self.lock();
        let state = sessions.get(principal, &session);
        state.map(|state| state.tools.clone()).unwrap_or_default()
    }

    /// Notes what a session searched for.
    pub(super) fn searched(&self, principal: &Principal, session: SessionId, search: PastSearch) {
        let mut sessions = self.lock();
        let state = sessions.get_or_insert_mut(principal, session, SessionState::default);
        state.searches.push_back(search);
        if state.searches.len() > MAX_SESSION_SEARCHES {
            state.searches.pop_front();
        }
    }

    /// Notes that a call of a session ended, and returns what it teaches: it belongs to the newest
    /// search from before its beginning.
    pub(super) fn called(&self, event: &ToolCalled, now: Timestamp) -> Lesson {
        let tool = event.tool.key();
        let mut sessions = self.lock();
        let state =
            sessions.get_or_insert_mut(&event.principal, event.session, SessionState::default);
        let is_fresh = |it: &&PastSearch| {
            it.at <= event.began_at && event.began_at.duration_since(it.at) <= SEARCH_LASTS
        };
        let search = state.searches.iter().rev().find(is_fresh);
        let text = search.map(|it| (it.clone(), trust(event.is_ok)));
        let is_new = !state.tools.contains(&tool) && state.tools.len() < MAX_SESSION_TOOLS;
        let others = is_new.then(|| state.tools.clone());
        if is_new {
            state.tools.push(tool);
        }
        Lesson {
            tool,
            others,
            text,
            at: now,
        }
    }

    fn lock(&self) -> MutexGuard<'_, FairCache<SessionId, SessionState>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[expect(clippy::cast_precision_loss, reason = "counts are far below 2^52")]
fn count(n: u64) -> f64 {
    n as f64
}
