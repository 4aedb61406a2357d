//! How often tools may be called, how many calls may run at the same time, and how many may be made
//! before it is said anew what is being done.
//!
//! A call that is over a limit is not passed on; the model is told which limit it is, when to try again,
//! and which similar tool is free. All of it is in memory: limits begin anew with the process, and each
//! process that shares a database has its own.

mod closed;
mod held;
mod permit;
mod similar;
mod state;
mod unmatched;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::invocation::CallSession;
use riglm_domain::prediction::NamePattern;
use riglm_domain::principal::Principal;
use riglm_domain::safeguard::limiter::{Blocked, LimitScope, Rate, peek_all, take_all};
use riglm_domain::tool::ToolRef;
use riglm_domain::tool_result::is_error;
use riglm_ports::observer::{Event, EventOrigin, Observer};

use self::closed::Closed;
use self::held::Held;
use self::state::{PlaceKey, ScopeKey, State};
pub(super) use self::unmatched::Unmatched;
use super::names::Names;
use super::{GuardedCall, OwnKind, Refusal};
use crate::filtering::Lists;
use crate::search::{Offer, ToolSearch};

pub(crate) use self::held::whole_seconds;
pub(crate) use self::permit::LimitPermit;

/// A limit of calls of some tools, which they share.
#[derive(Clone, Debug, PartialEq)]
pub struct LimitRule {
    /// The tools: patterns that are compared with the name that the upstream knows, with that of the
    /// upstream in front, and with the one that the client is offered.
    pub tools: Vec<NamePattern>,
    /// How often they may be called.
    pub rate: Option<Rate>,
    /// How many calls of them may run at the same time, at least 1.
    pub max_concurrent: Option<usize>,
    /// Who shares the limit.
    pub scope: LimitScope,
}

/// The limits that the operator wants.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LimitOptions {
    /// The limits of some tools.
    pub rules: Vec<LimitRule>,
    /// How many calls of the tools of one upstream may run at the same time, whichever upstream it is,
    /// at least 1.
    pub max_concurrent: Option<usize>,
    /// How many calls a work session may make before it says anew what is being done, at least 1.
    pub max_calls_per_context: Option<usize>,
    /// The names of the tools by which it is said what is being done.
    pub context_tools: Vec<String>,
    /// The names of all tools of the proxy itself.
    pub own_tools: Vec<ToolName>,
}

impl LimitOptions {
    /// Returns whether nothing is limited.
    #[must_use]
    pub fn is_none(&self) -> bool {
        self.rules.is_empty()
            && self.max_concurrent.is_none()
            && self.max_calls_per_context.is_none()
    }
}

/// What a limiter is made of.
#[derive(Debug)]
pub struct LimiterParts {
    /// The limits.
    pub options: LimitOptions,
    /// Finds similar tools; `None` where nothing is searched.
    pub search: Option<Arc<ToolSearch>>,
    /// Knows what the operator hides; `None` where lists are not chosen as a whole.
    pub lists: Option<Arc<Lists>>,
    /// Is told of what is held back.
    pub observer: Arc<dyn Observer>,
}

/// Holds back calls that are over a limit.
#[derive(Debug)]
pub struct Limiter {
    options: LimitOptions,
    search: Option<Arc<ToolSearch>>,
    lists: Option<Arc<Lists>>,
    observer: Arc<dyn Observer>,
    state: Mutex<State>,
    unmatched: Unmatched,
}

/// Whose limits are meant.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whose<'a> {
    pub(crate) together: CallSession,
    pub(crate) principal: &'a Principal,
}

impl LimitRule {
    fn is_of(&self, names: &Names) -> bool {
        names.fit_any(&self.tools)
    }
}

impl Limiter {
    /// Returns a limiter of these parts; `None` where nothing is limited.
    #[must_use]
    pub fn new(parts: LimiterParts) -> Option<Self> {
        let state = State::new(parts.options.rules.len());
        (!parts.options.is_none()).then(|| Self {
            unmatched: Unmatched::new(&parts.options),
            options: parts.options,
            search: parts.search,
            lists: parts.lists,
            observer: parts.observer,
            state: Mutex::new(state),
        })
    }

    /// Decides whether a call is passed on, which has to pass these rules. What is returned is to be kept
    /// until the call came to its end.
    ///
    /// # Errors
    ///
    /// Returns what the model is told of a call that is over a limit.
    pub(super) fn admit(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> Result<LimitPermit, Refusal> {
        let held = match self.taken(call, rules) {
            Ok(permit) => return Ok(permit),
            Err(held) => held,
        };
        self.observer.observe_from(
            &Event::CallLimited {
                limit: held.limit(),
                scope: held.scope(),
            },
            &EventOrigin::of_session(call.principal, call.together),
        );
        // There is no other tool for who has to say first what it is doing.
        let similar = match &held {
            Held::Context { .. } => Vec::new(),
            Held::Rate { .. } | Held::Concurrent { .. } => self.similar(call),
        };
        Err(Refusal {
            text: held.text(&similar),
        })
    }

    /// Returns what is to be kept of a call that goes on although it was counted when it came first.
    pub(super) fn admit_again(&self, call: &GuardedCall<'_>, rules: &[usize]) -> LimitPermit {
        let mut state = self.state();
        let kinds = self.places(call, rules);
        let places = kinds.filter_map(|(_, key, _)| state.take_place(key, usize::MAX));
        LimitPermit::new(places.collect())
    }

    /// Takes note of a call that was answered with this result, which is JSON text.
    pub(super) fn ended(&self, call: &GuardedCall<'_>, result: &str) {
        let says_context = matches!(call.own, Some(OwnKind::Search | OwnKind::Context));
        if says_context && !is_error(result) {
            self.state().context_given(call.together);
        }
    }

    /// Takes note of tools that an upstream lists; `is_last` says that there are no more of it.
    pub(crate) fn listed(
        &self,
        upstream: &UpstreamName,
        tools: &[ToolName],
        (is_last, n_upstreams): (bool, usize),
    ) {
        self.unmatched
            .listed(upstream, tools, (is_last, n_upstreams));
    }

    /// Returns which tools of an offer are held back now by how often they were called, and for how
    /// long.
    pub(crate) fn hindered(
        &self,
        offer: &Offer,
        whose: Whose<'_>,
        at: Instant,
    ) -> HashMap<ToolRef, Duration> {
        let closed = self.closed(whose, at);
        if !closed.has_rates() {
            return HashMap::new();
        }
        let tools = offer.tools().iter();
        let hindered = tools.filter_map(|tool| {
            let wait = closed.wait_of(&Names::of_offered(tool))?;
            Some((tool.tool.clone(), wait))
        });
        hindered.collect()
    }

    /// Returns the positions of the rules that calls of a tool have to pass, ascending.
    pub(super) fn rules_of(&self, names: &Names) -> Box<[usize]> {
        let rules = self.options.rules.iter().enumerate();
        let matching = rules.filter(|(_, rule)| rule.is_of(names));
        matching.map(|(place, _)| place).collect()
    }

    /// Returns the kinds of places of which a call takes one while it runs: the rule of each, or none of
    /// those at its upstream, and how many there are.
    fn places(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> impl Iterator<Item = (Option<usize>, PlaceKey, usize)> {
        let of_upstream = call.upstream.zip(self.options.max_concurrent);
        let of_upstream =
            of_upstream.map(|(upstream, max)| (None, PlaceKey::Upstream(upstream.clone()), max));
        let of_rules = rules.iter().filter_map(|place| {
            let rule = self.options.rules.get(*place)?;
            let max = rule.max_concurrent?;
            let whose = call.whose().key(rule.scope);
            Some((Some(*place), PlaceKey::Rule(*place, whose), max))
        });
        of_upstream.into_iter().chain(of_rules)
    }

    /// Returns the rules that have a rate, by position, with who shares them.
    fn rates(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> impl Iterator<Item = (usize, ScopeKey, Rate)> {
        rules.iter().filter_map(|place| {
            let rule = self.options.rules.get(*place)?;
            let rate = rule.rate?;
            Some((*place, call.whose().key(rule.scope), rate))
        })
    }

    /// Takes all that a call needs, or nothing.
    fn taken(&self, call: &GuardedCall<'_>, rules: &[usize]) -> Result<LimitPermit, Held> {
        let rule = |place: usize| self.options.rules.get(place);
        let mut state = self.state();
        let at = state.later(call.at);
        let counts = call.own.is_none();
        if let Some(max) = self.options.max_calls_per_context.filter(|_| counts)
            && state.n_since_context(call.together) >= max
        {
            return Err(Held::Context {
                max,
                tools: self.options.context_tools.clone(),
            });
        }
        let (mut places, mut full) = (Vec::new(), None);
        for (place, key, max) in self.places(call, rules) {
            match state.take_place(key, max) {
                Some(taken) => places.push(taken),
                None => full = full.or(Some((place, max))),
            }
        }
        let mut buckets = state.buckets_of(self.rates(call, rules));
        let blocked = match full {
            Some(_) => peek_all(&mut buckets, at),
            None => take_all(&mut buckets, at).err(),
        };
        if let Some(Blocked { bucket, wait }) = blocked
            && let Some((place, ..)) = self.rates(call, rules).nth(bucket)
            && let Some(rule) = rule(place)
        {
            return Err(Held::rate(rule, wait));
        }
        if let Some((place, max)) = full {
            return Err(Held::concurrent(place.and_then(rule), max));
        }
        if counts && self.options.max_calls_per_context.is_some() {
            state.called(call.together);
        }
        Ok(LimitPermit::new(places))
    }

    /// Returns what is over a limit now.
    fn closed(&self, whose: Whose<'_>, at: Instant) -> Closed<'_> {
        let mut state = self.state();
        let at = state.later(at);
        Closed::new(&self.options, &mut state, whose, at)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<'a> GuardedCall<'a> {
    fn whose(&self) -> Whose<'a> {
        Whose {
            together: self.together,
            principal: self.principal,
        }
    }
}

#[cfg(test)]
mod tests;
