//! What sessions called, and what was recommended to them: who calls what was recommended says that
//! it was right.

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Mutex, MutexGuard, PoisonError};

use jiff::{SignedDuration, Timestamp};
use lru::LruCache;
use riglm_domain::id::{InvocationId, RecommendationId, SessionId};
use riglm_domain::invocation::{CallSession, Outcome};
use riglm_domain::principal::Principal;
use riglm_domain::tool::ToolRef;

/// How many sessions are followed at a time.
const MAX_SESSIONS: NonZeroUsize = NonZeroUsize::MIN.saturating_add(4_095);
/// How many of the newest tools of a session are known.
const MAX_USED: usize = 32;
/// How many of the newest recommendations of a session wait for being followed.
const MAX_WAITING: usize = 8;
/// How long a recommendation says what the calls after it are for.
const LASTS: SignedDuration = SignedDuration::from_mins(10);

/// A call came to its end.
#[derive(Clone, Debug)]
pub struct CallEnded {
    /// The connection.
    pub session: SessionId,
    /// What its calls have in common.
    pub together: CallSession,
    /// Whose call it was.
    pub principal: Principal,
    /// The tool.
    pub tool: ToolRef,
    /// The row of the call.
    pub invocation: InvocationId,
    /// How it ended.
    pub outcome: Outcome,
    /// When it was received.
    pub began_at: Timestamp,
}

/// A call of a tool that was recommended a moment before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Met {
    /// It went well.
    Followed(Followed),
    /// It did not: it says nothing of the recommendation.
    Failed,
}

/// A call that went well of a tool that was recommended a moment before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Followed {
    /// The recommendation.
    pub(super) recommendation: RecommendationId,
    /// The place of the tool in it, from 0.
    pub(super) place: usize,
    /// When it was shown.
    pub(super) shown_at: Timestamp,
    /// Whether the tool is the first of it that was called with success.
    pub(super) is_first: bool,
}

#[derive(Debug, Default)]
struct Track {
    /// What was called, the newest last, each once.
    used: Vec<ToolRef>,
    /// Recommendations, the newest last.
    waiting: VecDeque<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    id: RecommendationId,
    /// The connection that was shown it.
    connection: Option<SessionId>,
    shown_at: Timestamp,
    /// The tools in their order, each with whether it was called with success.
    tools: Vec<(ToolRef, bool)>,
}

/// What sessions called, and what was recommended to them.
#[derive(Debug)]
pub(super) struct Tracks(Mutex<LruCache<CallSession, Track>>);

impl Default for Tracks {
    fn default() -> Self {
        Self(Mutex::new(LruCache::new(MAX_SESSIONS)))
    }
}

impl Tracks {
    /// Returns what a session called, the newest last, each tool once.
    pub(super) fn used(&self, session: CallSession) -> Vec<ToolRef> {
        let mut tracks = self.lock();
        let track = tracks.get(&session);
        track.map(|track| track.used.clone()).unwrap_or_default()
    }

    /// Returns whether a tool was recommended to a session, or called by it.
    pub(super) fn knows(&self, session: CallSession, tool: &ToolRef) -> bool {
        let mut tracks = self.lock();
        tracks.get(&session).is_some_and(|track| {
            let mut waiting = track.waiting.iter().flat_map(|one| &one.tools);
            track.used.contains(tool) || waiting.any(|(one, _)| one == tool)
        })
    }

    /// Returns the newest recommendation to a session that has a tool.
    pub(super) fn newest_with(
        &self,
        session: CallSession,
        tool: &ToolRef,
    ) -> Option<RecommendationId> {
        let mut tracks = self.lock();
        let mut newest_first = tracks.get(&session)?.waiting.iter().rev();
        let has = |waiting: &&Waiting| waiting.tools.iter().any(|(one, _)| one == tool);
        Some(newest_first.find(has)?.id)
    }

    /// Returns what was recommended to a session, the newest first. A connection has what it was shown,
    /// whichever work session that belongs to.
    pub(super) fn recommended_to(
        &self,
        session: CallSession,
    ) -> Vec<(RecommendationId, Vec<ToolRef>)> {
        let tracks = self.lock();
        let mut shown: Vec<&Waiting> = match session {
            CallSession::Work(_) => {
                let track = tracks.peek(&session).into_iter();
                track.flat_map(|track| &track.waiting).collect()
            }
            CallSession::Connection(id) => {
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

    /// Notes what was recommended to a session over a connection.
    pub(super) fn recommended(
        &self,
        (session, connection): (CallSession, Option<SessionId>),
        (id, shown_at): (RecommendationId, Timestamp),
        tools: Vec<ToolRef>,
    ) {
        let mut tracks = self.lock();
        let track = tracks.get_or_insert_mut(session, Track::default);
        if track.waiting.len() >= MAX_WAITING {
            track.waiting.pop_front();
        }
        track.waiting.push_back(Waiting {
            id,
            connection,
            shown_at,
            tools: tools.into_iter().map(|tool| (tool, false)).collect(),
        });
    }

    /// Notes a call that ended; returns what it followed: the newest recommendation from before it
    /// that has the tool, until one call of the tool went well.
    pub(super) fn called(&self, call: &CallEnded) -> Option<Met> {
        let mut tracks = self.lock();
        let track = tracks.get_or_insert_mut(call.together, Track::default);
        track.used.retain(|used| *used != call.tool);
        track.used.push(call.tool.clone());
        if track.used.len() > MAX_USED {
            track.used.remove(0);
        }
        let is_fresh = |one: &&mut Waiting| {
            let age = call.began_at.duration_since(one.shown_at);
            age >= SignedDuration::ZERO && age <= LASTS
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
            return Some(Met::Failed);
        }
        let is_first = waiting.tools.iter().all(|(_, was_called)| !was_called);
        waiting.tools[place].1 = true;
        Some(Met::Followed(Followed {
            recommendation: waiting.id,
            place,
            shown_at: waiting.shown_at,
            is_first,
        }))
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<CallSession, Track>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
            together: CallSession::Connection(session()),
            principal: Principal::local(),
            tool: tool(name),
            invocation: InvocationId::new(NOW, [2; 10]),
            outcome,
            began_at: NOW + after,
        }
    }

    fn recommended(n: u8, after: SignedDuration, names: &[&str], tracks: &Tracks) {
        let tools = names.iter().map(|name| tool(name)).collect();
        let shown = (recommendation(n), NOW + after);
        let to = (CallSession::Connection(session()), Some(session()));
        tracks.recommended(to, shown, tools);
    }

    fn followed(met: Option<Met>) -> Option<Followed> {
        match met? {
            Met::Followed(followed) => Some(followed),
            Met::Failed => None,
        }
    }

    #[test]
    fn a_good_call_of_what_was_recommended_follows_it_once() {
        let tracks = Tracks::default();
        let seconds = SignedDuration::from_secs;
        recommended(1, seconds(0), &["a", "b"], &tracks);
        let met = |name, outcome, after| tracks.called(&call(name, outcome, after));
        let followed = |name, after| followed(met(name, Outcome::Ok, after));
        assert_eq!(met("b", Outcome::Error, seconds(1)), Some(Met::Failed));
        assert_eq!(met("x", Outcome::Ok, seconds(1)), None, "not recommended");
        let first = followed("b", seconds(2)).unwrap();
        assert_eq!((first.recommendation, first.place), (recommendation(1), 1));
        assert!(first.is_first);
        assert_eq!(met("b", Outcome::Ok, seconds(3)), None, "again");
        assert!(!followed("a", seconds(4)).unwrap().is_first);
        // Who asks again and calls once follows the newer answer alone.
        recommended(2, seconds(5), &["b"], &tracks);
        recommended(3, seconds(5), &["b"], &tracks);
        assert_eq!(
            followed("b", seconds(6)).unwrap().recommendation,
            recommendation(3)
        );
        assert_eq!(met("b", Outcome::Ok, seconds(7)), None);
    }

    #[test]
    fn a_call_belongs_to_the_newest_recommendation_before_it() {
        let tracks = Tracks::default();
        let minutes = SignedDuration::from_mins;
        recommended(1, minutes(0), &["a"], &tracks);
        recommended(2, minutes(2), &["a"], &tracks);
        let followed = |after| followed(tracks.called(&call("a", Outcome::Ok, after)));
        assert_eq!(
            followed(minutes(1)).unwrap().recommendation,
            recommendation(1)
        );
        assert_eq!(
            followed(minutes(3)).unwrap().recommendation,
            recommendation(2)
        );
        recommended(3, minutes(4), &["a"], &tracks);
        let session = CallSession::Connection(session());
        let newest = |name| tracks.newest_with(session, &tool(name));
        assert_eq!((newest("a"), newest("b")), (Some(recommendation(3)), None));
        assert_eq!(followed(minutes(15)), None, "too late");
    }

    #[test]
    fn what_a_session_called_is_known_in_its_order() {
        let tracks = Tracks::default();
        let after = SignedDuration::from_secs(1);
        for name in ["a", "b", "a"] {
            tracks.called(&call(name, Outcome::Error, after));
        }
        let session = CallSession::Connection(session());
        assert_eq!(tracks.used(session), [tool("b"), tool("a")]);
        assert!(tracks.knows(session, &tool("a")) && !tracks.knows(session, &tool("c")));
        recommended(1, after, &["c"], &tracks);
        assert!(tracks.knows(session, &tool("c")));
    }

    #[test]
    fn what_was_recommended_is_told_to_its_work_session_and_to_its_connection() {
        let tracks = Tracks::default();
        let work = |n: u8| CallSession::Work(WorkSessionId::new(NOW, [n; 10]));
        let connection = |n: u8| SessionId::new(NOW, [n; 10]);
        for (n, to) in [
            (1, (work(1), connection(1))),
            (2, (work(1), connection(2))),
            (3, (work(2), connection(1))),
        ] {
            let shown = (recommendation(n), NOW + SignedDuration::from_secs(n.into()));
            tracks.recommended((to.0, Some(to.1)), shown, vec![tool("a")]);
        }
        let told = |session| {
            let all = tracks.recommended_to(session).into_iter();
            all.map(|(id, _)| id).collect::<Vec<_>>()
        };
        let [first, second, third] = [1, 2, 3].map(recommendation);
        assert_eq!(told(work(1)), [second, first]);
        assert_eq!(told(CallSession::Connection(connection(1))), [third, first]);
        assert_eq!(told(CallSession::Connection(connection(3))), []);
    }
}
