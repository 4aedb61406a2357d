//! State of the limits: counted calls and running calls.

use std::collections::HashSet;
use std::hash::Hash;
use std::sync::Arc;
use std::time::Instant;

use lru::LruCache;
use riglm_domain::id::UpstreamName;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::safeguards::limiter::{LimitScope, Rate, TokenBucket};
use riglm_domain::usage::invocation::SessionKey;

use super::LimitSubject;

// The most sessions or principals for each rule. The least recent are dropped first, so that their
// limits start again.
const MAX_KEYS: usize = 10_000;
// Entries that are checked for running calls when the table is full. It is more than one for each
// new entry, so that the table shrinks.
const MAX_SWEPT: usize = 4;

/// The scope in which a limit is shared.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum ScopeKey {
    Session(SessionKey),
    Principal(Principal),
    Global,
}

impl LimitSubject<'_> {
    pub(super) fn key(&self, scope: LimitScope) -> ScopeKey {
        match scope {
            LimitScope::Session => ScopeKey::Session(self.session_key),
            LimitScope::Principal => ScopeKey::Principal(self.principal.clone()),
            LimitScope::Global => ScopeKey::Global,
        }
    }
}

/// A kind of slots for running calls.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum SlotKey {
    Upstream(UpstreamName),
    /// Slots of a rule, by its position.
    Rule(usize, ScopeKey),
}

/// A slot of a running call, freed on drop.
pub(super) type RunningSlot = Arc<()>;

/// Counted calls and running calls.
#[derive(Debug)]
pub(super) struct LimitState {
    /// The token buckets of each rule.
    buckets: Vec<LruCache<ScopeKey, TokenBucket>>,
    /// The number of calls since the last declaration of a context.
    since_context: LruCache<SessionKey, usize>,
    /// The slots of upstreams, bounded by the number of upstreams. The reference count minus one is
    /// the number of running calls.
    at_upstreams: LruCache<UpstreamName, Arc<()>>,
    by_rules: LruCache<(usize, ScopeKey), Arc<()>>,
    /// The latest time of a call.
    latest: Option<Instant>,
}

impl LimitState {
    /// Returns the state of `n_rules` rules without any calls.
    pub(super) fn new(n_rules: usize) -> Self {
        Self {
            buckets: (0..n_rules).map(|_| LruCache::unbounded()).collect(),
            since_context: LruCache::unbounded(),
            at_upstreams: LruCache::unbounded(),
            by_rules: LruCache::unbounded(),
            latest: None,
        }
    }

    /// Returns the time, or the latest one so far: calls may come here in another order than they
    /// were received.
    pub(super) fn later(&mut self, at: Instant) -> Instant {
        let latest = self.latest.map_or(at, |latest| latest.max(at));
        self.latest = Some(latest);
        latest
    }

    /// Returns the buckets of these rules, which must be ascending, in their scopes.
    pub(super) fn buckets_of(
        &mut self,
        rules: impl Iterator<Item = (usize, ScopeKey, Rate)>,
    ) -> Vec<&mut TokenBucket> {
        let mut wanted = rules.peekable();
        let all = self.buckets.iter_mut().enumerate();
        let found = all.filter_map(|(place, buckets)| {
            let (_, key, rate) = wanted.next_if(|(rule, ..)| *rule == place)?;
            make_room(buckets, &key);
            Some(buckets.get_or_insert_mut(key, || TokenBucket::new(rate)))
        });
        found.collect()
    }

    /// Returns the bucket of a rule; `None` before the first call in the scope.
    pub(super) fn bucket(&mut self, rule: usize, key: &ScopeKey) -> Option<&mut TokenBucket> {
        self.buckets.get_mut(rule)?.peek_mut(key)
    }

    /// Returns the number of calls since the last declaration of a context.
    pub(super) fn n_since_context(&self, session: SessionKey) -> usize {
        self.since_context.peek(&session).copied().unwrap_or(0)
    }

    pub(super) fn count_call(&mut self, session: SessionKey) {
        make_room(&mut self.since_context, &session);
        *self.since_context.get_or_insert_mut(session, || 0) += 1;
    }

    /// Resets the count after a declaration of a context.
    pub(super) fn context_given(&mut self, session: SessionKey) {
        self.since_context.pop(&session);
    }

    /// Returns the number of running calls with a slot of the rule.
    pub(super) fn n_running(&self, rule: usize, whose: ScopeKey) -> usize {
        self.by_rules.peek(&(rule, whose)).map_or(0, n_shares)
    }

    /// Returns the upstreams with at least `max` running calls.
    pub(super) fn busy_upstreams(&self, max: usize) -> HashSet<UpstreamName> {
        let all = self.at_upstreams.iter();
        let full = all.filter(|(_, of)| n_shares(of) >= max);
        full.map(|(upstream, _)| upstream.clone()).collect()
    }

    /// Takes one of `max` slots of this kind; `None` if all are taken.
    pub(super) fn take_slot(&mut self, key: SlotKey, max: usize) -> Option<RunningSlot> {
        let shared = match key {
            SlotKey::Upstream(upstream) => self.at_upstreams.get_or_insert(upstream, Arc::default),
            SlotKey::Rule(rule, whose) => {
                self.drop_idle_scopes();
                self.by_rules.get_or_insert((rule, whose), Arc::default)
            }
        };
        (n_shares(shared) < max).then(|| Arc::clone(shared))
    }

    /// Makes room for another scope of a rule by dropping scopes without a running call.
    fn drop_idle_scopes(&mut self) {
        for _ in 0..MAX_SWEPT {
            if self.by_rules.len() < MAX_KEYS {
                return;
            }
            // An entry with running calls must stay, so it becomes the most recent one.
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

fn make_room<K: Hash + Eq, V>(cache: &mut LruCache<K, V>, key: &K) {
    if cache.len() >= MAX_KEYS && !cache.contains(key) {
        cache.pop_lru();
    }
}

/// The slots of a running call. They are freed on drop, so also if the call is cancelled.
#[derive(Debug)]
pub(crate) struct LimitPermit {
    _places: Vec<RunningSlot>,
}

impl LimitPermit {
    pub(super) fn new(places: Vec<RunningSlot>) -> Self {
        Self { _places: places }
    }
}
