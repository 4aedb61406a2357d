//! Learning from searches and calls: the tools that were used after a query, and the tools that
//! were used together.

use std::collections::VecDeque;
use std::sync::Arc;

use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolKey;
use riglm_domain::id::SessionId;
use riglm_domain::num::to_f64;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::retrieval::UsageHistory;
use riglm_domain::retrieval::embedding::Embedding;
use riglm_domain::usage::{ToolCooccurrence, ToolFrequency, ToolSessions};

use super::fair_cache::FairCache;
use super::request::FinishedCall;

/// Maximum number of sessions whose searches are kept.
const MAX_SESSIONS: usize = 10_000;
/// Maximum number of tools of a session that are counted.
const MAX_SESSION_TOOLS: usize = 128;
/// Searches kept per session, because a call may have begun before the newest search.
const MAX_SESSION_SEARCHES: usize = 8;
/// A call is attributed to a search for at most this long.
const ATTRIBUTION_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// Returns the weight of a call as evidence for the query before it. A failed call counts slightly
/// against the tool.
fn evidence_weight(is_ok: bool) -> f32 {
    if is_ok { 1.0 } else { -0.2 }
}

/// Counts of a principal, as read from the store.
#[derive(Debug, Default)]
pub(super) struct StoredCounts {
    pub(super) frequencies: Vec<ToolFrequency>,
    pub(super) sessions: Vec<ToolSessions>,
    pub(super) pairs: Vec<ToolCooccurrence>,
}

/// A query, and the calls that followed it.
#[derive(Debug)]
pub(super) struct UseAfterText {
    /// The centred vector of the query.
    pub(super) text: Embedding,
    pub(super) given_at: Timestamp,
    /// The query itself, if it is recorded.
    pub(super) words: Option<String>,
    /// The called tools, and whether each call succeeded.
    pub(super) calls: Vec<(ToolKey, bool)>,
}

/// Builds the usage history of a principal from stored counts and queries.
pub(super) fn build_history(counted: &StoredCounts, uses: &[UseAfterText]) -> UsageHistory {
    let mut history = UsageHistory::new(UsageHistory::MAX_MEMORIES);
    for tool in &counted.frequencies {
        history.count_calls(tool.tool.key(), to_f64(tool.n_calls));
    }
    for tool in &counted.sessions {
        history.count_sessions(tool.tool.key(), to_f64(tool.n_sessions));
    }
    for pair in &counted.pairs {
        history.count_together(pair.tool_a.key(), pair.tool_b.key(), to_f64(pair.count));
    }
    for text in uses {
        let calls = text.calls.iter();
        let told: Vec<(ToolKey, f32)> = calls
            .map(|(tool, is_ok)| (*tool, evidence_weight(*is_ok)))
            .collect();
        history.remember_all(&text.text, &told, text.given_at, 0);
    }
    history
}

/// Evidence from one call.
#[derive(Clone, Debug)]
pub(super) struct CallEvidence {
    tool: ToolKey,
    /// Tools that the session had used before, or `None` if this tool was one of them.
    others: Option<Vec<ToolKey>>,
    /// The query that the call is attributed to, and the weight of the evidence.
    text: Option<(PastSearch, f32)>,
    at: Timestamp,
}

impl CallEvidence {
    /// Adds the evidence to a history.
    pub(super) fn add_to(&self, history: &mut UsageHistory) {
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

    /// Returns the search that led to the call, if the call succeeded.
    pub(super) fn success(&self) -> Option<&PastSearch> {
        let search = self.text.as_ref().filter(|(_, trust)| *trust > 0.0);
        search.map(|(search, _)| search)
    }
}

/// A query of a session.
#[derive(Clone, Debug)]
pub(super) struct PastSearch {
    /// The centred vector.
    pub(super) text: Embedding,
    pub(super) words: Arc<str>,
    pub(super) at: Timestamp,
}

#[derive(Debug, Default)]
struct SessionSearches {
    /// Oldest first.
    searches: VecDeque<PastSearch>,
    tools: Vec<ToolKey>,
}

/// Searches and used tools per session. A principal with many sessions cannot evict entries of
/// others.
#[derive(Debug)]
pub(super) struct SearchSessions(Mutex<FairCache<SessionId, SessionSearches>>);

impl Default for SearchSessions {
    fn default() -> Self {
        Self(Mutex::new(FairCache::new(MAX_SESSIONS)))
    }
}

impl SearchSessions {
    /// Returns the tools that a session has used.
    pub(super) fn tools(&self, principal: &Principal, session: SessionId) -> Vec<ToolKey> {
        let mut sessions = self.0.lock();
        let state = sessions.get(principal, &session);
        state.map(|state| state.tools.clone()).unwrap_or_default()
    }

    /// Records a search of a session.
    pub(super) fn record_search(
        &self,
        principal: &Principal,
        session: SessionId,
        search: PastSearch,
    ) {
        let mut sessions = self.0.lock();
        let state = sessions.get_or_insert_mut(principal, session, SessionSearches::default);
        state.searches.push_back(search);
        if state.searches.len() > MAX_SESSION_SEARCHES {
            state.searches.pop_front();
        }
    }

    /// Records a finished call, and returns the evidence in it. The call is attributed to the
    /// newest search that came before its start.
    pub(super) fn record_call(&self, event: &FinishedCall, now: Timestamp) -> CallEvidence {
        let tool = event.tool.key();
        let mut sessions = self.0.lock();
        let state =
            sessions.get_or_insert_mut(&event.principal, event.session, SessionSearches::default);
        let is_fresh = |it: &&PastSearch| {
            it.at <= event.began_at && event.began_at.duration_since(it.at) <= ATTRIBUTION_WINDOW
        };
        let search = state.searches.iter().rev().find(is_fresh);
        let text = search.map(|it| (it.clone(), evidence_weight(event.is_ok)));
        let is_new = !state.tools.contains(&tool) && state.tools.len() < MAX_SESSION_TOOLS;
        let others = is_new.then(|| state.tools.clone());
        if is_new {
            state.tools.push(tool);
        }
        CallEvidence {
            tool,
            others,
            text,
            at: now,
        }
    }
}
