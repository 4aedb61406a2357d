//! Diminishing returns: detects searches of a work session that bring little new, and warns the
//! model.
//!
//! There are two series: searches for tools, which the proxy answers itself, and searches with
//! upstream search tools. A series ends when another tool is called. The first series ends also
//! with a call of an upstream search tool, since that is its result. `set_context` and the other
//! own tools of the proxy are neither a search nor a call.

mod search_results;
mod search_tools;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::num::NonZeroUsize;
use std::sync::Arc;
use std::time::{Duration, Instant};

use lru::LruCache;
use parking_lot::Mutex;
use riglm_domain::prediction::NamePattern;
use riglm_domain::retrieval::search::ScoredTool;
use riglm_domain::safeguards::diminishing_returns::{
    DiminishingReturnsRules, ResultSet, SearchHistory, SearchSummary, normalize_query,
};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{DiminishingReturnsEvent, Event, Observer, SearchScope};
use serde::Deserialize;
use validator::{Validate, ValidationError};

use super::names::ToolNames;
use super::{CONNECTION_SILENCE, GuardedCall, Notice, OwnKind, check_patterns};

/// The kind of these notices.
const KIND: &str = "searches";
/// The most work sessions in memory; beyond it the one with the longest pause counts as ended.
const MAX_SESSIONS: usize = 4_096;
// The pause after which a work session counts as ended; it is the longest default pause of work
// sessions.
const SILENCE: Duration = Duration::from_hours(1);
/// The number of paused work sessions to remove at a time.
const MAX_SWEPT: usize = 4;
/// The most notices that wait for their result.
const MAX_WAITING: usize = 4;
// Tools below this share of the best score only fill up an answer, so they do not count as found.
const LEAST_FIT: f64 = 0.5;

/// The subsection `safeguards.searches`.
#[derive(Clone, Debug, PartialEq, Deserialize, Validate)]
#[serde(deny_unknown_fields, default)]
pub struct SearchesConfig {
    /// Whether models get a warning about searches with diminishing returns.
    pub enabled: bool,
    /// Upstream tools that search, in addition to riglm's search for tools.
    #[validate(custom(function = "check_patterns"))]
    pub tools: Vec<NamePattern>,
    /// Whether upstream tools count as searches if they are annotated as read-only and take a
    /// query.
    pub annotated: bool,
    /// The share of results in common above which two searches count as the same.
    #[validate(custom(function = "check_overlap"))]
    pub overlap: f64,
    /// The number of consecutive searches with falling yield that causes a warning.
    #[validate(range(min = 2, max = 16))]
    pub falling: usize,
    /// The number of searches without a call in between that causes a warning.
    #[validate(range(min = 2, max = 1_000))]
    pub without_call: usize,
}

impl Default for SearchesConfig {
    fn default() -> Self {
        let rules = DiminishingReturnsRules::default();
        Self {
            enabled: true,
            tools: Vec::new(),
            annotated: false,
            overlap: rules.overlap,
            falling: rules.falling,
            without_call: rules.without_call,
        }
    }
}

impl SearchesConfig {
    fn rules(&self) -> DiminishingReturnsRules {
        DiminishingReturnsRules {
            overlap: self.overlap,
            falling: self.falling,
            without_call: self.without_call,
        }
    }
}

fn check_overlap(share: f64) -> Result<(), ValidationError> {
    if share > 0.0 && share <= 1.0 {
        return Ok(());
    }
    let message = "expected a share above 0 and at most 1";
    Err(ValidationError::new("range").with_message(message.into()))
}

/// The searches of the recent work sessions.
#[derive(Debug)]
pub(crate) struct DiminishingReturns {
    config: SearchesConfig,
    sessions: Mutex<LruCache<SessionKey, SessionSearches>>,
    observer: Arc<dyn Observer>,
}

/// The searches of one work session.
#[derive(Debug)]
struct SessionSearches {
    for_tools: SearchSeries,
    of_upstreams: SearchSeries,
    /// Notices for the results of running searches, by the time of receipt of those.
    waiting: VecDeque<(Instant, Notice)>,
    n_for_tools: u64,
    seen_at: Instant,
}

/// An event of an ended work session.
type EventOfEnded = (SessionKey, DiminishingReturnsEvent);

/// A series of searches, and whether the reaction to a warning is awaited.
#[derive(Debug, Default)]
struct SearchSeries {
    trail: SearchHistory,
    /// Whether the session was warned and has done nothing since.
    is_told: bool,
}

impl SessionSearches {
    fn new(at: Instant) -> Self {
        Self {
            for_tools: SearchSeries::default(),
            of_upstreams: SearchSeries::default(),
            waiting: VecDeque::new(),
            n_for_tools: 0,
            seen_at: at,
        }
    }
}

impl DiminishingReturns {
    pub(super) fn new(config: SearchesConfig, observer: Arc<dyn Observer>) -> Self {
        let n = NonZeroUsize::new(MAX_SESSIONS).unwrap_or(NonZeroUsize::MIN);
        Self {
            config,
            sessions: Mutex::new(LruCache::new(n)),
            observer,
        }
    }

    /// Returns whether both have the same configuration.
    pub(super) fn has_config_of(&self, other: &Self) -> bool {
        self.config == other.config
    }

    /// Records an admitted call, which may be a search.
    pub(super) fn record_call(&self, call: &GuardedCall<'_>, is_search: bool) {
        if call.own.is_some() {
            return;
        }
        let (mut over, mut happened) = (Vec::new(), Vec::new());
        {
            let mut sessions = self.sessions.lock();
            let searches = Self::of(&mut sessions, call.session_key, call.at, &mut over);
            (searches.for_tools).end_series(SearchScope::Tools, &mut happened);
            if !is_search {
                (searches.of_upstreams).end_series(SearchScope::Upstream, &mut happened);
            }
        }
        self.report(&over, call.session_key, &happened);
    }

    /// Records a search for tools with its results, best first. Its notice is added to the result
    /// of its call.
    pub(crate) fn record_search(
        &self,
        session_key: SessionKey,
        at: Instant,
        query: &str,
        results: &[ScoredTool],
    ) {
        let top_score = results.first().map(|best| best.score);
        let fits = |one: &&ScoredTool| {
            let top = top_score.unwrap_or_default();
            top <= 0.0 || one.score >= top * LEAST_FIT
        };
        let fitting = results.iter().filter(fits);
        let search = SearchSummary {
            query: normalize_query(query),
            words: query.into(),
            results: ResultSet::of(
                fitting.map(|one| format!("{}\n{}", one.tool.upstream, one.tool.tool)),
            ),
            top_score,
        };
        let mut over = Vec::new();
        let mut happened = vec![DiminishingReturnsEvent::Searched(SearchScope::Tools)];
        {
            let mut sessions = self.sessions.lock();
            let searches = Self::of(&mut sessions, session_key, at, &mut over);
            searches.n_for_tools = searches.n_for_tools.saturating_add(1);
            let (rules, for_tools) = (self.config.rules(), &mut searches.for_tools);
            let notice = for_tools.record_search_in_series(&search, &rules, &mut happened);
            if let Some(notice) = notice {
                if searches.waiting.len() >= MAX_WAITING {
                    searches.waiting.pop_front();
                }
                searches.waiting.push_back((at, notice));
            }
        }
        self.report(&over, session_key, &happened);
    }

    /// Records the result of a call, which is JSON text; returns its notice.
    pub(super) fn record_result(
        &self,
        call: &GuardedCall<'_>,
        is_search: bool,
        result: &str,
    ) -> Option<Notice> {
        match call.own {
            Some(OwnKind::Search) => {
                let mut sessions = self.sessions.lock();
                let searches = sessions.get_mut(&call.session_key)?;
                let mut waiting = searches.waiting.iter();
                // The time of receipt identifies the call, because parallel calls may end in
                // another order.
                let place = waiting.position(|(at, _)| *at == call.at)?;
                searches.waiting.remove(place).map(|(_, notice)| notice)
            }
            None if is_search => {
                let search = search_results::search_of(call, result);
                let mut over = Vec::new();
                let mut happened = vec![DiminishingReturnsEvent::Searched(SearchScope::Upstream)];
                let notice = {
                    let mut sessions = self.sessions.lock();
                    let at = call.ended_at();
                    let searches = Self::of(&mut sessions, call.session_key, at, &mut over);
                    let (rules, series) = (self.config.rules(), &mut searches.of_upstreams);
                    series.record_search_in_series(&search, &rules, &mut happened)
                };
                self.report(&over, call.session_key, &happened);
                notice
            }
            _ => None,
        }
    }

    /// Returns whether a call of an upstream tool with these names is a search.
    pub(super) fn is_search(&self, call: &GuardedCall<'_>, names: &ToolNames) -> bool {
        names.fit_any(&self.config.tools)
            || self.config.annotated
                && (call.catalog_tool())
                    .is_some_and(|tool| search_tools::is_search_tool(&tool.definition))
    }

    /// Returns the searches of a work session that is active at this time. After a long pause they
    /// start again.
    fn of<'a>(
        sessions: &'a mut LruCache<SessionKey, SessionSearches>,
        session_key: SessionKey,
        at: Instant,
        over: &mut Vec<EventOfEnded>,
    ) -> &'a mut SessionSearches {
        if !sessions.contains(&session_key) {
            Self::make_room(sessions, at, over);
        }
        let searches = sessions.get_or_insert_mut(session_key, || SessionSearches::new(at));
        let limit = match session_key {
            SessionKey::Work(_) => SILENCE,
            SessionKey::Connection(_) => CONNECTION_SILENCE,
        };
        if searches.silence(at) > limit {
            let before = std::mem::replace(searches, SessionSearches::new(at));
            before.end(session_key, over);
        }
        searches.seen_at = searches.seen_at.max(at);
        searches
    }

    /// Makes room for another work session.
    fn make_room(
        sessions: &mut LruCache<SessionKey, SessionSearches>,
        at: Instant,
        over: &mut Vec<EventOfEnded>,
    ) {
        let is_full = sessions.len() >= MAX_SESSIONS;
        for n in 0..MAX_SWEPT {
            let oldest = sessions.peek_lru();
            let is_silent = oldest.is_some_and(|(_, searches)| searches.silence(at) > SILENCE);
            if !(is_silent || is_full && n == 0) {
                break;
            }
            if let Some((session, searches)) = sessions.pop_lru() {
                searches.end(session, over);
            }
        }
    }

    /// Reports the events of ended sessions and of this one.
    fn report(
        &self,
        over: &[EventOfEnded],
        session_key: SessionKey,
        happened: &[DiminishingReturnsEvent],
    ) {
        let here = happened.iter().map(|event| (session_key, *event));
        for (session, event) in over.iter().copied().chain(here) {
            let event = Event::DiminishingReturns(event);
            self.observer.observe_from(&event, &session.into());
        }
    }
}

impl SessionSearches {
    /// Returns the time since the last call or search.
    fn silence(&self, at: Instant) -> Duration {
        at.saturating_duration_since(self.seen_at)
    }

    /// Adds the events of a work session that has ended.
    fn end(self, session: SessionKey, over: &mut Vec<EventOfEnded>) {
        let answered = DiminishingReturnsEvent::Answered { has_stopped: true };
        for row in [self.for_tools, self.of_upstreams] {
            if row.is_told {
                over.push((session, answered));
            }
        }
        let n_searches = self.n_for_tools;
        over.push((session, DiminishingReturnsEvent::SessionOver { n_searches }));
    }
}

impl SearchSeries {
    /// Records a search; returns its notice.
    fn record_search_in_series(
        &mut self,
        search: &SearchSummary,
        rules: &DiminishingReturnsRules,
        happened: &mut Vec<DiminishingReturnsEvent>,
    ) -> Option<Notice> {
        if std::mem::take(&mut self.is_told) {
            happened.push(DiminishingReturnsEvent::Answered { has_stopped: false });
        }
        let circling = self.trail.record_search(search, rules)?;
        self.is_told = true;
        happened.push(DiminishingReturnsEvent::Warned {
            advice: circling.advice,
            sign: circling.signs.first()?.name(),
        });
        Some(Notice {
            kind: KIND,
            text: circling.line(),
        })
    }

    /// Records a call, which ends the series.
    fn end_series(&mut self, what: SearchScope, happened: &mut Vec<DiminishingReturnsEvent>) {
        if self.trail.record_call() > 0 {
            happened.push(DiminishingReturnsEvent::Followed(what));
        }
        if std::mem::take(&mut self.is_told) {
            happened.push(DiminishingReturnsEvent::Answered { has_stopped: true });
        }
    }
}
