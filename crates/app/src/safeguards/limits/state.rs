//! What was called, and what runs.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;
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
/// How many of those who share a rule are looked at, beyond as many, for one of whom no call runs: more
/// than come, so that they become fewer.
const MAX_SWEPT: usize = 4;

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

/// A place of a call that runs: it is given up when this is dropped.
#[derive(Debug)]
pub(super) struct Place {
    _held: Arc<()>,
}

/// What was called, and what runs.
#[derive(Debug)]
pub(super) struct State {
    /// The buckets of each rule.
    buckets: Vec<LruCache<ScopeKey, TokenBucket>>,
    /// How many calls were made since it was said what is being done.
    since_context: LruCache<CallSession, usize>,
    /// What calls that run have a share of: as many have one as there are shares but this. Those at
    /// upstreams are as many as there are upstreams.
    at_upstreams: LruCache<UpstreamName, Arc<()>>,
    by_rules: LruCache<(usize, ScopeKey), Arc<()>>,
    /// The latest moment that was seen.
    latest: Option<Instant>,
}

impl State {
    /// Returns the state of as many rules in which nothing was called.
    pub(super) fn new(n_rules: usize) -> Self {
        Self {
            buckets: (0..n_rules).map(|_| LruCache::unbounded()).collect(),
            since_context: LruCache::unbounded(),
            at_upstreams: LruCache::unbounded(),
            by_rules: LruCache::unbounded(),
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

    /// Returns the buckets of these rules, which are ascending, for who shares them.
    pub(super) fn buckets_of(
        &mut self,
        rules: impl Iterator<Item = (usize, ScopeKey, Rate)>,
    ) -> Vec<&mut TokenBucket> {
        let mut wanted = rules.peekable();
        let all = self.buckets.iter_mut().enumerate();
        let found = all.filter_map(|(place, buckets)| {
            let (_, key, rate) = wanted.next_if(|(rule, ..)| *rule == place)?;
            bounded(buckets, &key);
            Some(buckets.get_or_insert_mut(key, || TokenBucket::new(rate)))
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

    /// Returns how many calls have a place by a rule.
    pub(super) fn n_running(&self, rule: usize, whose: ScopeKey) -> usize {
        self.by_rules.peek(&(rule, whose)).map_or(0, n_shares)
    }

    /// Returns the upstreams of which as many calls run.
    pub(super) fn busy_upstreams(&self, max: usize) -> HashSet<UpstreamName> {
        let all = self.at_upstreams.iter();
        let full = all.filter(|(_, of)| n_shares(of) >= max);
        full.map(|(upstream, _)| upstream.clone()).collect()
    }

    /// Takes one of `max` places of this kind; `None` where all are taken.
    pub(super) fn take_place(&mut self, key: PlaceKey, max: usize) -> Option<Place> {
        let shared = match key {
            PlaceKey::Upstream(upstream) => self.at_upstreams.get_or_insert(upstream, Arc::default),
            PlaceKey::Rule(rule, whose) => {
                self.forget_idle();
                self.by_rules.get_or_insert((rule, whose), Arc::default)
            }
        };
        (n_shares(shared) < max).then(|| Place {
            _held: Arc::clone(shared),
        })
    }

    /// Makes room for another who shares a rule, of which some have no call that runs.
    fn forget_idle(&mut self) {
        for _ in 0..MAX_SWEPT {
            if self.by_rules.len() < MAX_KEYS {
                return;
            }
            if let Some((oldest, shared)) = self.by_rules.pop_lru()
                && n_shares(&shared) > 0
            {
                self.by_rules.put(oldest, shared);
            }
        }
    }

    #[cfg(test)]
    pub(super) fn n_keys(&self) -> usize {
        let n_buckets = self.buckets.iter().map(LruCache::len).max();
        let all = [n_buckets.unwrap_or(0), self.since_context.len()];
        all.into_iter().fold(self.by_rules.len(), usize::max)
    }
}

fn n_shares(of: &Arc<()>) -> usize {
    Arc::strong_count(of) - 1
}

/// Makes place for a key.
fn bounded<K: Hash + Eq, V>(cache: &mut LruCache<K, V>, key: &K) {
    if cache.len() >= MAX_KEYS && !cache.contains(key) {
        cache.pop_lru();
    }
}
