//! Limits of calls: by rate, by the number of running calls, and by the number of calls before the
//! next declaration of a context.
//!
//! A call over a limit is refused. The model gets a text with the limit, the time of the next
//! attempt and a similar tool that is free. All state is in memory: limits start again with the
//! process, and each process that shares a database has its own.

mod config;
mod limit_exceeded;
mod reached_limits;
mod similar;
mod state;
mod unmatched_patterns;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{ToolName, UpstreamName};
use riglm_domain::mcp::tool_result::is_error;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::safeguards::limiter::{BucketWait, Rate, longest_wait, take_all};
use riglm_domain::usage::invocation::SessionKey;
use riglm_ports::observer::{CallLimit, Event, Observer};

pub use self::config::{CallLimitsConfig, LimitRule};
use self::limit_exceeded::LimitExceeded;
use self::reached_limits::ReachedLimits;
use self::state::{LimitState, ScopeKey, SlotKey};
pub(super) use self::unmatched_patterns::UnmatchedPatterns;
use super::names::ToolNames;
use super::{GuardedCall, OwnKind, Refusal};
use crate::selection::ListFilter;
use riglm_discovery::search::{Catalog, ToolSearch};

pub(crate) use self::state::LimitPermit;

/// The parts of a limiter.
#[derive(Debug)]
pub struct LimiterParts {
    /// The limits.
    pub config: CallLimitsConfig,
    /// The names of the tools that declare a context.
    pub context_tools: Vec<String>,
    /// The names of all own tools of the proxy.
    pub own_tools: Vec<ToolName>,
    /// Finds similar tools; `None` if search is disabled.
    pub search: Option<Arc<ToolSearch>>,
    /// Knows the tools that the operator hides, while lists are learned.
    pub filter: ListFilter,
    /// Receives an event for each refused call.
    pub observer: Arc<dyn Observer>,
}

/// Refuses calls that are over a limit.
#[derive(Debug)]
pub struct Limiter {
    config: CallLimitsConfig,
    context_tools: Vec<String>,
    search: Option<Arc<ToolSearch>>,
    filter: ListFilter,
    observer: Arc<dyn Observer>,
    state: Mutex<LimitState>,
    unmatched: UnmatchedPatterns,
}

/// The client whose limits apply.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LimitSubject<'a> {
    pub(crate) session_key: SessionKey,
    pub(crate) principal: &'a Principal,
}

impl LimitRule {
    fn is_of(&self, names: &ToolNames) -> bool {
        names.fit_any(&self.tools)
    }
}

impl Limiter {
    /// Creates a limiter; `None` if nothing is limited.
    #[must_use]
    pub fn new(parts: LimiterParts) -> Option<Self> {
        let state = LimitState::new(parts.config.rules.len());
        (!parts.config.is_none()).then(|| Self {
            unmatched: UnmatchedPatterns::new(&parts.config.rules, &parts.own_tools),
            config: parts.config,
            context_tools: parts.context_tools,
            search: parts.search,
            filter: parts.filter,
            observer: parts.observer,
            state: Mutex::new(state),
        })
    }

    /// Returns whether both have the same limits and name the same own tools.
    pub(super) fn has_config_of(&self, other: &Self) -> bool {
        self.config == other.config && self.context_tools == other.context_tools
    }

    /// Checks a call against its rules. Keep the permit until the call has ended.
    ///
    /// # Errors
    ///
    /// Returns a refusal with the text for the model, if the call is over a limit.
    pub(super) fn admit(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> Result<LimitPermit, Refusal> {
        let held = match self.acquire(call, rules) {
            Ok(permit) => return Ok(permit),
            Err(held) => held,
        };
        let (limit, scope) = (held.limit(), held.scope());
        (self.observer).observe_from(&Event::CallLimited { limit, scope }, &call.origin());
        let similar = match limit {
            // No similar tool helps here: the client must declare its context first.
            CallLimit::Context => Vec::new(),
            CallLimit::Rate | CallLimit::Concurrent => self.similar_tools(call),
        };
        Err(Refusal {
            text: held.text(&similar),
        })
    }

    /// Returns the permit of a continued call, which was counted before.
    pub(super) fn admit_again(&self, call: &GuardedCall<'_>, rules: &[usize]) -> LimitPermit {
        let mut state = self.state.lock();
        let kinds = self.places(call, rules);
        // No maximum applies, because the call was admitted before.
        let places = kinds.filter_map(|(_, key, _)| state.take_slot(key, usize::MAX));
        LimitPermit::new(places.collect())
    }

    /// Records the answer of a call, which is JSON text.
    pub(super) fn record_result(&self, call: &GuardedCall<'_>, result: &str) {
        let says_context = matches!(call.own, Some(OwnKind::Search | OwnKind::Context));
        if says_context && !is_error(result) {
            self.state.lock().context_given(call.session_key);
        }
    }

    /// Records the tools in a list of an upstream; `is_last` marks the last page.
    pub(crate) fn record_list(
        &self,
        upstream: &UpstreamName,
        tools: &[ToolName],
        is_last: bool,
        n_upstreams: usize,
    ) {
        (self.unmatched).record_list(upstream, tools, is_last, n_upstreams);
    }

    /// Returns the tools of a catalog whose rate limit is reached now, each with the remaining
    /// wait.
    pub(crate) fn rate_limited_tools(
        &self,
        catalog: &Catalog,
        whose: LimitSubject<'_>,
        at: Instant,
    ) -> HashMap<ToolRef, Duration> {
        let closed = self.reached_limits(whose, at);
        if !closed.has_rates() {
            return HashMap::new();
        }
        let tools = catalog.tools().iter();
        let hindered = tools.filter_map(|tool| {
            let wait = closed.wait_of(&ToolNames::of_offered(tool))?;
            Some((tool.tool.clone(), wait))
        });
        hindered.collect()
    }

    /// Returns the positions of the rules for calls of a tool, ascending.
    pub(super) fn rules_of(&self, names: &ToolNames) -> Box<[usize]> {
        let rules = self.config.rules.iter().enumerate();
        let matching = rules.filter(|(_, rule)| rule.is_of(names));
        matching.map(|(place, _)| place).collect()
    }

    /// Returns the kinds of slots that a running call needs, each with its rule and the number of
    /// slots. The slots of the upstream have no rule.
    fn places(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> impl Iterator<Item = (Option<usize>, SlotKey, usize)> {
        let of_upstream = call.upstream.zip(self.config.max_concurrent);
        let of_upstream =
            of_upstream.map(|(upstream, max)| (None, SlotKey::Upstream(upstream.clone()), max));
        let of_rules = rules.iter().filter_map(|place| {
            let rule = self.config.rules.get(*place)?;
            let max = rule.max_concurrent?;
            let whose = call.whose().key(rule.scope);
            Some((Some(*place), SlotKey::Rule(*place, whose), max))
        });
        of_upstream.into_iter().chain(of_rules)
    }

    /// Returns the rules with a rate limit, by position, each with its scope.
    fn rates(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> impl Iterator<Item = (usize, ScopeKey, Rate)> {
        rules.iter().filter_map(|place| {
            let rule = self.config.rules.get(*place)?;
            let rate = rule.rate()?;
            Some((*place, call.whose().key(rule.scope), rate))
        })
    }

    /// Takes everything that a call needs, or nothing.
    fn acquire(
        &self,
        call: &GuardedCall<'_>,
        rules: &[usize],
    ) -> Result<LimitPermit, LimitExceeded> {
        let rule = |place: usize| self.config.rules.get(place);
        let mut state = self.state.lock();
        let at = state.later(call.at);
        // Own tools declare the context, so they must not be refused for its lack.
        let counts = call.own.is_none();
        if let Some(max) = self.config.max_calls_per_context.filter(|_| counts)
            && state.n_since_context(call.session_key) >= max
        {
            return Err(LimitExceeded::Context {
                max,
                tools: self.context_tools.clone(),
            });
        }
        let (mut places, mut full) = (Vec::new(), None);
        for (place, key, max) in self.places(call, rules) {
            match state.take_slot(key, max) {
                Some(taken) => places.push(taken),
                None => full = full.or(Some((place, max))),
            }
        }
        let mut buckets = state.buckets_of(self.rates(call, rules));
        // Without a free slot the buckets are only checked: a refused call must not use up the
        // rate.
        let blocked = match full {
            Some(_) => longest_wait(&mut buckets, at),
            None => take_all(&mut buckets, at).err(),
        };
        if let Some(BucketWait { bucket, wait }) = blocked
            && let Some((place, ..)) = self.rates(call, rules).nth(bucket)
            && let Some(rule) = rule(place)
        {
            return Err(LimitExceeded::rate(rule, wait));
        }
        if let Some((place, max)) = full {
            return Err(LimitExceeded::concurrent(place.and_then(rule), max));
        }
        if counts && self.config.max_calls_per_context.is_some() {
            state.count_call(call.session_key);
        }
        Ok(LimitPermit::new(places))
    }

    fn reached_limits(&self, whose: LimitSubject<'_>, at: Instant) -> ReachedLimits<'_> {
        let mut state = self.state.lock();
        let at = state.later(at);
        ReachedLimits::new(&self.config, &mut state, whose, at)
    }
}

impl<'a> GuardedCall<'a> {
    fn whose(&self) -> LimitSubject<'a> {
        LimitSubject {
            session_key: self.session_key,
            principal: self.principal,
        }
    }
}

#[cfg(test)]
mod tests;
