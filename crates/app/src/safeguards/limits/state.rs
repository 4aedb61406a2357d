//! What was called, and what runs.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::time::Instant;

use lru::LruCache;
use riglm_domain::id::UpstreamName;
use riglm_domain::invocation::CallSession;
use riglm_domain::principal::Principal;
use riglm_domain::safeguard::limiter::{LimitScope, Rate, TokenBucket};

use super::Whose;

/// The most sessions or principals of which is remembered what they called, for each rule. Those that
/// called longest ago are forgotten first: their limits begin anew.
const MAX_KEYS: usize = 10_000;

/// Who shares a limit.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScopeKey {
    Session(CallSession),
    Principal(Principal),
    Global,
}

impl Whose<'_> {
    /// Returns who shares a limit of this scope.
    pub(super) fn key(&self, scope: LimitScope) -> ScopeKey {
        match scope {
            LimitScope::Session => ScopeKey::Session(self.together),
            LimitScope::Principal => ScopeKey::Principal(self.principal.clone()),
            LimitScope::Global => ScopeKey::Global,
        }
    }
}

/// A kind of places, of which there are so many.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum PlaceKey {
    /// At an upstream.
    Upstream(UpstreamName),
    /// By a rule, by its position.
    Rule(usize, ScopeKey),
}

/// What was called, and what runs.
#[derive(Debug)]
pub(super) struct State {
    /// The buckets of each rule.
    buckets: Vec<LruCache<ScopeKey, TokenBucket>>,
    /// How many calls were made since it was said what is being done.
    since_context: LruCache<CallSession, usize>,
    /// How many calls run; there are as many entries at most as requests in flight have places.
    running: HashMap<PlaceKey, usize>,
    /// The latest moment that was seen.
    latest: Option<Instant>,
}

impl State {
    /// Returns the state of as many rules in which nothing was called.
    pub(super) fn new(n_rules: usize) -> Self {
        Self {
            buckets: (0..n_rules).map(|_| LruCache::unbounded()).collect(),
            since_context: LruCache::unbounded(),
            running: HashMap::new(),
            latest: None,
        }
    }

    /// Returns the moment, or the latest one that was seen: calls come here in another order than they
    /// were received.
    pub(super) fn later(&mut self, at: Instant) -> Instant {
        let latest = self.latest.map_or(at, |latest| latest.max(at));
        self.latest = Some(latest);
        latest
    }

    /// Sees to it that a rule has a bucket for who shares it.
    pub(super) fn make_bucket(&mut self, rule: usize, key: ScopeKey, rate: Rate) {
        if let Some(buckets) = self.buckets.get_mut(rule) {
            bounded(buckets, &key);
            buckets.get_or_insert(key, || TokenBucket::new(rate));
        }
    }

    /// Returns the bucket of each of these rules, in their order, which is ascending.
    pub(super) fn buckets_of(
        &mut self,
        rules: &[(usize, Rate)],
        key: impl Fn(usize) -> ScopeKey,
    ) -> Vec<&mut TokenBucket> {
        let mut wanted = rules.iter().map(|(rule, _)| *rule).peekable();
        let all = self.buckets.iter_mut().enumerate();
        let found = all.filter_map(|(rule, buckets)| {
            wanted.next_if_eq(&rule)?;
            buckets.get_mut(&key(rule))
        });
        found.collect()
    }

    /// Returns the bucket of a rule; `None` where nobody called anything.
    pub(super) fn bucket(&mut self, rule: usize, key: &ScopeKey) -> Option<&mut TokenBucket> {
        self.buckets.get_mut(rule)?.peek_mut(key)
    }

    /// Returns how many calls were made since it was said what is being done.
    pub(super) fn n_since_context(&self, session: CallSession) -> usize {
        self.since_context.peek(&session).copied().unwrap_or(0)
    }

    /// Counts a call.
    pub(super) fn called(&mut self, session: CallSession) {
        bounded(&mut self.since_context, &session);
        *self.since_context.get_or_insert_mut(session, || 0) += 1;
    }

    /// Notes that it was said what is being done.
    pub(super) fn context_given(&mut self, session: CallSession) {
        self.since_context.pop(&session);
    }

    /// Returns how many calls have a place of this kind.
    pub(super) fn n_running(&self, key: &PlaceKey) -> usize {
        self.running.get(key).copied().unwrap_or(0)
    }

    /// Returns the upstreams of which as many calls run.
    pub(super) fn busy_upstreams(&self, max: usize) -> HashSet<UpstreamName> {
        let full = self.running.iter().filter(|(_, n)| **n >= max);
        let names = full.filter_map(|(key, _)| match key {
            PlaceKey::Upstream(upstream) => Some(upstream.clone()),
            PlaceKey::Rule(..) => None,
        });
        names.collect()
    }

    /// Takes a place of each of these kinds.
    pub(super) fn occupy(&mut self, places: &[PlaceKey]) {
        for place in places {
            *self.running.entry(place.clone()).or_default() += 1;
        }
    }

    /// Gives a place of each of these kinds up.
    pub(super) fn release(&mut self, places: &[PlaceKey]) {
        for place in places {
            let Some(n) = self.running.get_mut(place) else {
                continue;
            };
            *n = n.saturating_sub(1);
            if *n == 0 {
                self.running.remove(place);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn n_keys(&self) -> usize {
        let n_buckets = self.buckets.iter().map(LruCache::len).max();
        n_buckets.unwrap_or(0).max(self.since_context.len()) + self.running.len()
    }
}

/// Makes place for a key.
fn bounded<K: Hash + Eq, V>(cache: &mut LruCache<K, V>, key: &K) {
    if cache.len() >= MAX_KEYS && !cache.contains(key) {
        cache.pop_lru();
    }
}
