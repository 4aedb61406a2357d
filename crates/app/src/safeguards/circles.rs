//! Searches in circles: what the searches of a work session found, and what models are told when they
//! lead nowhere.
//!
//! There are two rows: the searches for tools, which the proxy answers itself, and those of upstream
//! tools that search. Each ends when a tool is called that does not search; the first also when one is
//! called that does, since that is what it led to. `set_context` and the other tools of the proxy are
//! neither a search nor a call.

mod found;
mod seekers;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use lru::LruCache;
use riglm_domain::invocation::CallSession;
use riglm_domain::prediction::NamePattern;
use riglm_domain::safeguard::circles::{
    CircleRules, ResultSet, SearchTrail, SeenSearch, normalised,
};
use riglm_domain::search::ScoredTool;
use riglm_ports::observer::{CirclesEvent, Event, Observer, SearchedIn};

use super::names::Names;
use super::{CONNECTION_SILENCE, GuardedCall, Notice, OwnKind};

/// What notices of searches are about.
const KIND: &str = "searches";
/// How many work sessions are followed at a time; beyond that the most silent one counts as over.
const MAX_SESSIONS: usize = 4_096;
/// After how long a silence a work session counts as over; the longest one that it survives by
/// default.
const SILENCE: Duration = Duration::from_hours(1);
/// How many silent work sessions are looked for at a time.
const MAX_SWEPT: usize = 4;
/// How many lines wait for the result that they belong to.
const MAX_WAITING: usize = 4;
/// A tool that fits less than this part of what fits best is only in an answer to fill it.
const LEAST_FIT: f64 = 0.5;

/// What the operator wants of searches.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct CircleOptions {
    /// From which point on searches go in circles.
    pub rules: CircleRules,
    /// Upstream tools that search.
    pub tools: Vec<NamePattern>,
    /// Whether upstream tools search that say they only read, and take a query.
    pub annotated: bool,
}

/// The searches of the work sessions that were active lately.
#[derive(Debug)]
pub(crate) struct Circles {
    options: CircleOptions,
    sessions: Mutex<LruCache<CallSession, Searches>>,
    observer: Arc<dyn Observer>,
}

/// The searches of one work session.
#[derive(Debug)]
struct Searches {
    for_tools: Row,
    of_upstreams: Row,
    /// What is to be said in the results of searches for tools that are being written, by when those
    /// were received.
    waiting: VecDeque<(Instant, Notice)>,
    n_for_tools: u64,
    seen_at: Instant,
}

/// What became of the searches of a work session that is over.
#[derive(Debug)]
struct Ended {
    session: CallSession,
    events: Vec<CirclesEvent>,
}

/// A row of searches, and whether it is to be seen what comes after a warning.
#[derive(Debug, Default)]
struct Row {
    trail: SearchTrail,
    /// The session was told that it searches in circles, and did nothing since.
    is_told: bool,
}

impl Searches {
    fn new(at: Instant) -> Self {
        Self {
            for_tools: Row::default(),
            of_upstreams: Row::default(),
            waiting: VecDeque::new(),
            n_for_tools: 0,
            seen_at: at,
        }
    }
}

impl Circles {
    pub(super) fn new(options: CircleOptions, observer: Arc<dyn Observer>) -> Self {
        let n = NonZeroUsize::new(MAX_SESSIONS).unwrap_or(NonZeroUsize::MIN);
        Self {
            options,
            sessions: Mutex::new(LruCache::new(n)),
            observer,
        }
    }

    /// Notes a call that goes to its tool, which may be one that searches.
    pub(super) fn admitted(&self, call: &GuardedCall<'_>, is_search: bool) {
        if call.own.is_some() {
            return;
        }
        let (mut over, mut happened) = (Vec::new(), Vec::new());
        {
            let mut sessions = self.lock();
            let searches = Self::of(&mut sessions, (call.together, call.at), &mut over);
            searches.for_tools.called(SearchedIn::Tools, &mut happened);
            if !is_search {
                (searches.of_upstreams).called(SearchedIn::Upstream, &mut happened);
            }
        }
        self.tell(&over, call.together, &happened);
    }

    /// Notes a search for tools and what it found, best first. What is to be said of it is said with
    /// the result of its call.
    pub(crate) fn searched(
        &self,
        (together, at): (CallSession, Instant),
        query: &str,
        results: &[ScoredTool],
    ) {
        let top_score = results.first().map(|best| best.score);
        let fits = |one: &&ScoredTool| {
            let top = top_score.unwrap_or_default();
            top <= 0.0 || one.score >= top * LEAST_FIT
        };
        let fitting = results.iter().filter(fits);
        let search = SeenSearch {
            query: normalised(query),
            words: query.into(),
            results: ResultSet::of(
                fitting.map(|one| format!("{}\n{}", one.tool.upstream, one.tool.tool)),
            ),
            top_score,
        };
        let mut over = Vec::new();
        let mut happened = vec![CirclesEvent::Searched(SearchedIn::Tools)];
        {
            let mut sessions = self.lock();
            let searches = Self::of(&mut sessions, (together, at), &mut over);
            searches.n_for_tools = searches.n_for_tools.saturating_add(1);
            let rules = &self.options.rules;
            if let Some(notice) = searches.for_tools.searched(&search, rules, &mut happened) {
                if searches.waiting.len() >= MAX_WAITING {
                    searches.waiting.pop_front();
                }
                searches.waiting.push_back((at, notice));
            }
        }
        self.tell(&over, together, &happened);
    }

    /// Notes the result of a call, which is JSON text, and returns what is to be said of it.
    pub(super) fn ended(
        &self,
        call: &GuardedCall<'_>,
        is_search: bool,
        result: &str,
    ) -> Option<Notice> {
        match call.own {
            Some(OwnKind::Search) => {
                let mut sessions = self.lock();
                let searches = sessions.get_mut(&call.together)?;
                let mut waiting = searches.waiting.iter();
                let place = waiting.position(|(at, _)| *at == call.at)?;
                searches.waiting.remove(place).map(|(_, notice)| notice)
            }
            None if is_search => {
                let search = found::search_of(call, result);
                let mut over = Vec::new();
                let mut happened = vec![CirclesEvent::Searched(SearchedIn::Upstream)];
                let notice = {
                    let mut sessions = self.lock();
                    let searches =
                        Self::of(&mut sessions, (call.together, call.ended_at()), &mut over);
                    let rules = &self.options.rules;
                    searches
                        .of_upstreams
                        .searched(&search, rules, &mut happened)
                };
                self.tell(&over, call.together, &happened);
                notice
            }
            _ => None,
        }
    }

    /// Returns whether a call of an upstream tool, which has these names, is a search.
    pub(super) fn is_search(&self, call: &GuardedCall<'_>, names: &Names) -> bool {
        names.fit_any(&self.options.tools)
            || self.options.annotated
                && (call.offered()).is_some_and(|tool| seekers::is_seeker(&tool.definition))
    }

    /// Returns the searches of a work session that is active at a moment. Those that were silent for
    /// long are over.
    fn of<'a>(
        sessions: &'a mut LruCache<CallSession, Searches>,
        (together, at): (CallSession, Instant),
        over: &mut Vec<Ended>,
    ) -> &'a mut Searches {
        if !sessions.contains(&together) {
            Self::make_room(sessions, at, over);
        }
        let searches = sessions.get_or_insert_mut(together, || Searches::new(at));
        let limit = match together {
            CallSession::Work(_) => SILENCE,
            CallSession::Connection(_) => CONNECTION_SILENCE,
        };
        if searches.silence(at) > limit {
            let before = std::mem::replace(searches, Searches::new(at));
            over.push(before.end(together));
        }
        searches.seen_at = searches.seen_at.max(at);
        searches
    }

    /// Makes room for another work session.
    fn make_room(
        sessions: &mut LruCache<CallSession, Searches>,
        at: Instant,
        over: &mut Vec<Ended>,
    ) {
        let is_full = sessions.len() >= MAX_SESSIONS;
        for n in 0..MAX_SWEPT {
            let oldest = sessions
                .peek_lru()
                .map(|(_, searches)| searches.silence(at));
            let is_silent = oldest.is_some_and(|silence| silence > SILENCE);
            if !(is_silent || is_full && n == 0) {
                break;
            }
            if let Some((session, searches)) = sessions.pop_lru() {
                over.push(searches.end(session));
            }
        }
    }

    /// Tells of the sessions whose searches are over, and of what happened in this one.
    fn tell(&self, over: &[Ended], together: CallSession, happened: &[CirclesEvent]) {
        let ended = over.iter().flat_map(|ended| {
            let events = ended.events.iter();
            events.map(|event| (ended.session, event))
        });
        let here = happened.iter().map(|event| (together, event));
        for (session, event) in ended.chain(here) {
            let event = Event::Circles(*event);
            self.observer.observe_from(&event, &session.into());
        }
    }

    fn lock(&self) -> MutexGuard<'_, LruCache<CallSession, Searches>> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Searches {
    /// Returns how long nothing was done.
    fn silence(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.seen_at)
    }

    /// Says what became of a work session that is over.
    fn end(self, session: CallSession) -> Ended {
        let mut events = Vec::new();
        for row in [self.for_tools, self.of_upstreams] {
            if row.is_told {
                events.push(CirclesEvent::Answered { has_stopped: true });
            }
        }
        events.push(CirclesEvent::SessionOver {
            n_searches: self.n_for_tools,
        });
        Ended { session, events }
    }
}

impl Row {
    /// Notes a search. Returns what is to be said of it.
    fn searched(
        &mut self,
        search: &SeenSearch,
        rules: &CircleRules,
        happened: &mut Vec<CirclesEvent>,
    ) -> Option<Notice> {
        if std::mem::take(&mut self.is_told) {
            happened.push(CirclesEvent::Answered { has_stopped: false });
        }
        let circling = self.trail.searched(search, rules)?;
        self.is_told = true;
        happened.push(CirclesEvent::Warned {
            advice: circling.advice,
            sign: circling.signs.first()?.name(),
        });
        Some(Notice {
            kind: KIND,
            text: circling.line(),
        })
    }

    /// Notes that a tool was called: the row ends.
    fn called(&mut self, what: SearchedIn, happened: &mut Vec<CirclesEvent>) {
        if self.trail.called() > 0 {
            happened.push(CirclesEvent::Followed(what));
        }
        if std::mem::take(&mut self.is_told) {
            happened.push(CirclesEvent::Answered { has_stopped: true });
        }
    }
}
