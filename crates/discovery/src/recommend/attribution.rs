//! Attribution of calls to recommendations: a successful call of a recommended tool confirms the
//! recommendation.

use std::collections::VecDeque;
use std::num::NonZeroUsize;

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, RecommendationId, SessionId};
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{Outcome, SessionKey};

/// Maximum number of sessions that are followed.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// Maximum number of known tools per session, newest first.
const MAX_USED: usize = 32;
/// Maximum number of recommendations per session, newest first.
const MAX_RECOMMENDATIONS: usize = 8;
/// A call is attributed to a recommendation for at most this long.
const ATTRIBUTION_WINDOW: SignedDuration = SignedDuration::from_mins(10);

/// A finished call.
#[derive(Clone, Debug)]
pub struct CallEnded {
    /// The session.
    pub session: SessionId,
    /// The session key.
    pub session_key: SessionKey,
    /// The principal.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolRef,
    /// The row of the call.
    pub invocation: InvocationId,
    /// Outcome.
    pub outcome: Outcome,
    /// Time of the request.
    pub began_at: Timestamp,
}

/// A call of a recently recommended tool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum AttributedCall {
    /// The call succeeded.
    Followed(FollowedCall),
    /// The call failed. A failed call is no feedback on the recommendation.
    Failed,
}

/// A successful call that is attributed to a recommendation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct FollowedCall {
    pub(super) recommendation: RecommendationId,
    /// Rank of the tool in the recommendation, from 0.
    pub(super) place: usize,
    /// Time of the recommendation.
    pub(super) shown_at: Timestamp,
    /// Whether this is the first successful call of a tool of the recommendation.
    pub(super) is_first: bool,
}

#[derive(Debug, Default)]
struct SessionTrack {
    /// Called tools without repetitions, the newest last.
    used: Vec<ToolRef>,
    /// Recommendations, the newest last.
    waiting: VecDeque<ShownRecommendation>,
}

#[derive(Debug)]
struct ShownRecommendation {
    id: RecommendationId,
    /// The session that got the recommendation.
    connection: Option<SessionId>,
    shown_at: Timestamp,
    /// The tools in their order, each with whether it was called successfully.
    tools: Vec<(ToolRef, bool)>,
}

/// Calls and recommendations per session.
#[derive(Debug)]
pub(super) struct Attribution(Mutex<LruCache<SessionKey, SessionTrack>>);

impl Default for Attribution {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_SESSIONS)))
    }
}

impl Attribution {
    /// Returns the tools that a session called, without repetitions, the newest last.
    pub(super) fn used_tools(&self, session: SessionKey) -> Vec<ToolRef> {
        let mut tracks = self.0.lock();
        let track = tracks.get(&session);
        track.map(|track| track.used.clone()).unwrap_or_default()
    }

    /// Returns whether a tool was recommended to a session, or called by it.
    pub(super) fn knows(&self, session: SessionKey, tool: &ToolRef) -> bool {
        let mut tracks = self.0.lock();
        tracks.get(&session).is_some_and(|track| {
            let mut waiting = track.waiting.iter().flat_map(|one| &one.tools);
            track.used.contains(tool) || waiting.any(|(one, _)| one == tool)
        })
    }

    /// Returns the newest recommendation to a session that has the tool.
    pub(super) fn newest_with(
        &self,
        session: SessionKey,
        tool: &ToolRef,
    ) -> Option<RecommendationId> {
        let mut tracks = self.0.lock();
        let mut newest_first = tracks.get(&session)?.waiting.iter().rev();
        let has = |waiting: &&ShownRecommendation| waiting.tools.iter().any(|(one, _)| one == tool);
        Some(newest_first.find(has)?.id)
    }

    /// Returns the recommendations to a session, the newest first. A connection gets all that it
    /// was shown, from any work session.
    pub(super) fn recommendations_to(
        &self,
        session: SessionKey,
    ) -> Vec<(RecommendationId, Vec<ToolRef>)> {
        let tracks = self.0.lock();
        let mut shown: Vec<&ShownRecommendation> = match session {
            SessionKey::Work(_) => {
                let track = tracks.peek(&session).into_iter();
                track.flat_map(|track| &track.waiting).collect()
            }
            SessionKey::Connection(id) => {
                let all = tracks.iter().flat_map(|(_, track)| &track.waiting);
                all.filter(|one| one.connection == Some(id)).collect()
            }
        };
        shown.sort_by_key(|one| one.shown_at);
        let newest_first = shown.into_iter().rev().map(|one| {
            let tools = one.tools.iter().map(|(tool, _)| tool.clone());
            (one.id, tools.collect())
        });
        newest_first.collect()
    }

    /// Records a recommendation to a session over a connection.
    pub(super) fn record_recommendation(
        &self,
        session: SessionKey,
        connection: Option<SessionId>,
        id: RecommendationId,
        shown_at: Timestamp,
        tools: Vec<ToolRef>,
    ) {
        let mut tracks = self.0.lock();
        let track = tracks.get_or_insert_mut(session, SessionTrack::default);
        if track.waiting.len() >= MAX_RECOMMENDATIONS {
            track.waiting.pop_front();
        }
        track.waiting.push_back(ShownRecommendation {
            id,
            connection,
            shown_at,
            tools: tools.into_iter().map(|tool| (tool, false)).collect(),
        });
    }

    /// Records a finished call and attributes it to the newest earlier recommendation that has the
    /// tool. Returns `None` if there is none, or if an earlier call of the tool already confirmed
    /// it.
    pub(super) fn record_call(&self, call: &CallEnded) -> Option<AttributedCall> {
        let mut tracks = self.0.lock();
        let track = tracks.get_or_insert_mut(call.session_key, SessionTrack::default);
        track.used.retain(|used| *used != call.tool);
        track.used.push(call.tool.clone());
        if track.used.len() > MAX_USED {
            track.used.remove(0);
        }
        let is_fresh = |one: &&mut ShownRecommendation| {
            let age = call.began_at.duration_since(one.shown_at);
            age >= SignedDuration::ZERO && age <= ATTRIBUTION_WINDOW
        };
        let mut fresh = track.waiting.iter_mut().rev().filter(is_fresh);
        let newest = fresh.find_map(|waiting| {
            let is_it = |(tool, _): &(ToolRef, bool)| *tool == call.tool;
            Some((waiting.tools.iter().position(is_it)?, waiting))
        });
        let (place, waiting) = newest?;
        if waiting.tools[place].1 {
            return None;
        }
        if !call.outcome.is_success() {
            return Some(AttributedCall::Failed);
        }
        let is_first = waiting.tools.iter().all(|(_, was_called)| !was_called);
        waiting.tools[place].1 = true;
        Some(AttributedCall::Followed(FollowedCall {
            recommendation: waiting.id,
            place,
            shown_at: waiting.shown_at,
            is_first,
        }))
    }
}

#[cfg(test)]
mod tests {
    use riglm_domain::id::{UpstreamName, WorkSessionId};

    use super::*;

    const NOW: Timestamp = Timestamp::constant(1_800_000_000, 0);

    fn tool(name: &str) -> ToolRef {
        ToolRef {
            upstream: UpstreamName::parse("u").unwrap(),
            tool: name.into(),
        }
    }

    fn session() -> SessionId {
        SessionId::new(Timestamp::UNIX_EPOCH, [1; 10])
    }

    fn recommendation(n: u8) -> RecommendationId {
        RecommendationId::new(NOW, [n; 10])
    }

    fn call(name: &str, outcome: Outcome, after: SignedDuration) -> CallEnded {
        CallEnded {
            session: session(),
            session_key: SessionKey::Connection(session()),
            principal: Principal::local(),
            tool: tool(name),
            invocation: InvocationId::new(NOW, [2; 10]),
            outcome,
            began_at: NOW + after,
        }
    }

    fn recommend_tools(n: u8, after: SignedDuration, names: &[&str], tracks: &Attribution) {
        let tools = names.iter().map(|name| tool(name)).collect();
        let key = SessionKey::Connection(session());
        tracks.record_recommendation(key, Some(session()), recommendation(n), NOW + after, tools);
    }

    fn followed_call(met: Option<AttributedCall>) -> Option<FollowedCall> {
        match met? {
            AttributedCall::Followed(followed) => Some(followed),
            AttributedCall::Failed => None,
        }
    }

    #[test]
    fn a_recommendation_is_followed_by_one_successful_call() {
        let tracks = Attribution::default();
        let seconds = SignedDuration::from_secs;
        recommend_tools(1, seconds(0), &["a", "b"], &tracks);
        let met = |name, outcome, after| tracks.record_call(&call(name, outcome, after));
        let followed = |name, after| followed_call(met(name, Outcome::Ok, after));
        assert_eq!(
            met("b", Outcome::Error, seconds(1)),
            Some(AttributedCall::Failed)
        );
        assert_eq!(met("x", Outcome::Ok, seconds(1)), None, "not recommended");
        let first = followed("b", seconds(2)).unwrap();
        assert_eq!((first.recommendation, first.place), (recommendation(1), 1));
        assert!(first.is_first);
        assert_eq!(met("b", Outcome::Ok, seconds(3)), None, "again");
        assert!(!followed("a", seconds(4)).unwrap().is_first);
        // With two recommendations of the same tool, one call confirms only the newer one.
        recommend_tools(2, seconds(5), &["b"], &tracks);
        recommend_tools(3, seconds(5), &["b"], &tracks);
        assert_eq!(
            followed("b", seconds(6)).unwrap().recommendation,
            recommendation(3)
        );
        assert_eq!(met("b", Outcome::Ok, seconds(7)), None);
    }

    #[test]
    fn a_call_belongs_to_the_newest_recommendation_before_it() {
        let tracks = Attribution::default();
        let minutes = SignedDuration::from_mins;
        recommend_tools(1, minutes(0), &["a"], &tracks);
        recommend_tools(2, minutes(2), &["a"], &tracks);
        let followed = |after| followed_call(tracks.record_call(&call("a", Outcome::Ok, after)));
        assert_eq!(
            followed(minutes(1)).unwrap().recommendation,
            recommendation(1)
        );
        assert_eq!(
            followed(minutes(3)).unwrap().recommendation,
            recommendation(2)
        );
        recommend_tools(3, minutes(4), &["a"], &tracks);
        let session = SessionKey::Connection(session());
        let newest = |name| tracks.newest_with(session, &tool(name));
        assert_eq!((newest("a"), newest("b")), (Some(recommendation(3)), None));
        assert_eq!(followed(minutes(15)), None, "too late");
    }

    #[test]
    fn used_tools_of_a_session_are_ordered_by_last_use() {
        let tracks = Attribution::default();
        let after = SignedDuration::from_secs(1);
        for name in ["a", "b", "a"] {
            tracks.record_call(&call(name, Outcome::Error, after));
        }
        let session = SessionKey::Connection(session());
        assert_eq!(tracks.used_tools(session), [tool("b"), tool("a")]);
        assert!(tracks.knows(session, &tool("a")) && !tracks.knows(session, &tool("c")));
        recommend_tools(1, after, &["c"], &tracks);
        assert!(tracks.knows(session, &tool("c")));
    }

    #[test]
    fn recommendations_are_found_by_work_session_and_by_connection() {
        let tracks = Attribution::default();
        let work = |n: u8| SessionKey::Work(WorkSessionId::new(NOW, [n; 10]));
        let connection = |n: u8| SessionId::new(NOW, [n; 10]);
        for (n, to) in [
            (1, (work(1), connection(1))),
            (2, (work(1), connection(2))),
            (3, (work(2), connection(1))),
        ] {
            let (key, connection) = to;
            let at = NOW + SignedDuration::from_secs(n.into());
            let tools = vec![tool("a")];
            tracks.record_recommendation(key, Some(connection), recommendation(n), at, tools);
        }
        let told = |session| {
            let all = tracks.recommendations_to(session).into_iter();
            all.map(|(id, _)| id).collect::<Vec<_>>()
        };
        let [first, second, third] = [1, 2, 3].map(recommendation);
        assert_eq!(told(work(1)), [second, first]);
        assert_eq!(told(SessionKey::Connection(connection(1))), [third, first]);
        assert_eq!(told(SessionKey::Connection(connection(3))), []);
    }
}
