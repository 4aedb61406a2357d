//! What is counted, for one principal, one kind of client, or all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::counts::{Counts, Kind, Reading, context};
use super::number::real;
use super::pairs::PairGraph;
use super::trail::{Party, Trail};
use super::vocabulary::{Slot, Vocabulary};
use super::whole::Whole;

/// The counts of one scope.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tables {
    pub(super) counts: Counts,
    pub(super) pairs: PairGraph,
}

/// The most that is kept in one scope.
#[derive(Clone, Copy, Debug)]
struct Limits {
    contexts: usize,
    outcomes: usize,
    pairs: usize,
}

impl Limits {
    /// Of a principal.
    const OWN: Self = Self {
        contexts: 8_000,
        outcomes: 60_000,
        pairs: 8_000,
    };
    /// Of what principals share, and of each of the clients of one: much of what is kept there is
    /// in the counts of a principal too.
    const OTHER: Self = Self {
        contexts: 8_000,
        outcomes: 30_000,
        pairs: 4_000,
    };

    /// Returns how many there may be above a limit before some are dropped.
    const fn slack(most: usize) -> usize {
        most / 8
    }
}

impl Tables {
    fn keep_small(&mut self, most: Limits) {
        let is_over = |n: usize, most: usize| n > most + Limits::slack(most);
        if is_over(self.counts.len(), most.contexts) {
            self.counts.shrink_to(most.contexts);
        }
        if is_over(self.counts.n_outcomes(), most.outcomes) {
            self.counts.shrink_outcomes_to(most.outcomes);
        }
        if is_over(self.pairs.n_pairs(), most.pairs) {
            self.pairs.shrink_to(most.pairs);
        }
    }

    /// Returns the counts without those of pairs.
    fn without_pairs(&self) -> Self {
        Self {
            counts: self.counts.clone(),
            pairs: self.pairs.without_pairs(),
        }
    }

    /// Multiplies all weights, and drops what is then below `least`.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        self.counts.rescale(factor, least);
        self.pairs.rescale(factor, least);
    }

    pub(super) fn is_empty(&self) -> bool {
        self.counts.len() == 0
    }
}

/// A scope as it is read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Scope<'a> {
    pub(super) tables: &'a Tables,
    /// What is worth more than this counts as this.
    cap: f64,
    scale: f64,
}

impl<'a> Scope<'a> {
    pub(super) fn node(self, key: u64) -> Option<Reading<'a>> {
        Some(Reading {
            node: self.tables.counts.node(key)?,
            scale: self.scale,
            cap: self.cap,
        })
    }

    /// Returns the sessions that used a tool.
    pub(super) fn n_sessions(self, slot: Slot) -> f64 {
        self.tables
            .pairs
            .n_sessions(slot.0, self.scale)
            .min(self.cap)
    }
}

/// The counts of all scopes: what all share, of each kind of client, of each principal, and of
/// each principal with each kind of client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Scopes {
    /// What all share, by kind of client.
    shared: Whole,
    /// What each principal does, by kind of client. Which tools a principal uses together is known
    /// of all its clients alone.
    principals: BTreeMap<u64, Whole>,
}

impl Scopes {
    /// The most kinds of clients that have counts of their own: the name of a client is what it
    /// says of itself.
    const MAX_CLIENTS: usize = 64;
    /// The most kinds of clients of one principal that have counts of their own.
    const MAX_OWN_CLIENTS: usize = 8;
    /// The most principals that have counts of their own.
    pub(super) const MAX_PRINCIPALS: usize = 4_096;

    /// How many calls of its own a principal is predicted from alone: from then on what others do
    /// changes nothing for it.
    const ENOUGH_CALLS: f64 = 500.0;
    /// What all repetitions of one thing count, where it matters that there was any: about as
    /// much as those of one principal count for others.
    const PRESENCE: f64 = 1.5;

    /// Returns the scopes that a party reads, the widest first, and the principal's own counts
    /// last. `scale` is what a stored weight is worth now.
    ///
    /// What others share tells which things are done at all, not how often. A principal who is
    /// known well enough is predicted from what it does itself, with that read in the same two
    /// ways: at all, and how often.
    pub(super) fn of(&self, party: Party, scale: f64) -> Vec<Scope<'_>> {
        let scope = |tables, cap| Scope { tables, cap, scale };
        let shared = std::iter::once(&self.shared.all).chain(self.shared.part(party.client));
        let Some(own) = self.principals.get(&party.principal) else {
            return shared.map(|tables| scope(tables, f64::INFINITY)).collect();
        };
        let calls = own.all.counts.node(context(Kind::Call, &[]));
        if calls.is_some_and(|calls| calls.total(scale) >= Self::ENOUGH_CALLS) {
            let present = std::iter::once(&own.all).chain(own.part(party.client));
            let present = present.map(|tables| scope(tables, Self::PRESENCE));
            return present.chain([scope(&own.all, f64::INFINITY)]).collect();
        }
        (shared.chain([&own.all]))
            .map(|tables| scope(tables, f64::INFINITY))
            .collect()
    }

    /// Returns the counts of one principal.
    pub(super) fn own(&self, party: Party) -> Option<&Tables> {
        let own = self.principals.get(&party.principal)?;
        Some(&own.all)
    }

    /// Returns the counts of the kind of client: of the principal where there are any.
    pub(super) fn client(&self, party: Party, scale: f64) -> Option<Scope<'_>> {
        let own = self.principals.get(&party.principal);
        let own = own.and_then(|own| own.part(party.client));
        let tables = own.or_else(|| self.shared.part(party.client))?;
        Some(Scope {
            tables,
            cap: f64::INFINITY,
            scale,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Tables> {
        let own = self.principals.values().flat_map(Whole::each);
        self.shared.each().chain(own)
    }

    /// Multiplies all weights, and drops what is then below `least`.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        self.shared.rescale(factor, least);
        for own in self.principals.values_mut() {
            own.rescale(factor, least);
        }
        self.principals.retain(|_, own| !own.all.is_empty());
    }

    /// Returns how many contexts are known in all scopes.
    pub(super) fn n_contexts(&self) -> usize {
        self.all().map(|tables| tables.counts.len()).sum()
    }

    pub(super) fn is_sound(&self) -> bool {
        self.all()
            .all(|tables| tables.counts.is_sound() && tables.pairs.is_sound())
    }

    /// Learns that a tool was called after the trail. `weight` is what something learned now is
    /// stored with. A principal beyond the most that are kept is not learned from.
    pub(super) fn learn(
        &mut self,
        trail: &Trail,
        slot: Slot,
        vocabulary: &Vocabulary,
        weight: f64,
    ) {
        let party = trail.party;
        let is_known = self.principals.contains_key(&party.principal);
        if !is_known && self.principals.len() >= Self::MAX_PRINCIPALS {
            return;
        }
        (self.shared).enter(party.client, Self::MAX_CLIENTS, Tables::clone);
        let own = self.principals.entry(party.principal).or_default();
        own.enter(party.client, Self::MAX_OWN_CLIENTS, Tables::without_pairs);
        let (own, own_client) = own.both_mut(party.client);
        let (everyone, client) = self.shared.both_mut(party.client);
        let mut writer = Writer {
            own,
            own_client,
            shared: std::iter::once(everyone).chain(client).collect(),
            weight,
        };
        writer.call(trail, slot, vocabulary);
        writer.own.keep_small(Limits::OWN);
        for tables in writer.own_client.into_iter().chain(writer.shared) {
            tables.keep_small(Limits::OTHER);
        }
    }
}

struct Writer<'a> {
    own: &'a mut Tables,
    own_client: Option<&'a mut Tables>,
    shared: Vec<&'a mut Tables>,
    weight: f64,
}

impl Writer<'_> {
    fn call(&mut self, trail: &Trail, slot: Slot, vocabulary: &Vocabulary) {
        let outcome = slot.0;
        let is_new = !trail.has_used(slot);
        self.count(context(Kind::Call, &[]), outcome);
        if trail.n_calls() == 0 {
            self.count(context(Kind::First, &[]), outcome);
        }
        for key in after(Kind::After, &trail.last) {
            self.count(key, outcome);
        }
        if let Some(server) = vocabulary.server(slot) {
            self.count(after_server(trail, vocabulary), server);
        }
        for key in trail.now.into_iter().flat_map(times) {
            self.count(key, outcome);
        }
        if is_new {
            self.first_use(trail, outcome);
        } else if (trail.used.iter()).any(|used| used.slot == slot && used.n_calls == 1) {
            self.pair(outcome, outcome, 0.0);
        }
        for key in repeats(trail) {
            self.count(key, u32::from(!is_new));
        }
    }

    fn first_use(&mut self, trail: &Trail, outcome: u32) {
        for key in after(Kind::Workflow, &trail.changes) {
            self.count(key, outcome);
        }
        for used in trail.used.iter().rev().take(Trail::MAX_PARTNERS) {
            let distance = real(trail.n_calls().saturating_sub(used.first_call));
            self.pair(used.slot.0, outcome, distance);
            self.count(context(Kind::Later, &[used.slot.0]), outcome);
        }
        self.session(outcome);
    }

    fn count(&mut self, key: u64, outcome: u32) {
        let own = self.own.counts.add(key, outcome, self.weight);
        let shared = self.shared_weight(own);
        if let Some(tables) = &mut self.own_client {
            tables.counts.add(key, outcome, self.weight);
        }
        for tables in &mut self.shared {
            tables.counts.add(key, outcome, shared);
        }
    }

    fn session(&mut self, slot: u32) {
        let own = self.own.pairs.add_session(slot, self.weight);
        let shared = self.shared_weight(own);
        if let Some(tables) = &mut self.own_client {
            tables.pairs.add_session(slot, self.weight);
        }
        for tables in &mut self.shared {
            tables.pairs.add_session(slot, shared);
        }
    }

    fn pair(&mut self, a: u32, b: u32, distance: f64) {
        let own = self.own.pairs.add_pair(a, b, distance, self.weight);
        let shared = self.shared_weight(own);
        for tables in &mut self.shared {
            tables.pairs.add_pair(a, b, distance, shared);
        }
    }

    /// Returns the weight of something of which `own` is stored for the principal, in what others
    /// share: the `k`-th time counts `1 / k^2`, so that all of them together count less than 1.65.
    /// What is shared is in how many principals do a thing, and one cannot outvote others.
    fn shared_weight(&self, own: f64) -> f64 {
        let times = own * (1.0 / self.weight);
        self.weight / times.max(1.0).powi(2)
    }
}

/// The longest context.
const MAX_ORDER: usize = 5;

/// Returns the keys of the contexts that calls make, the shortest first: the last one to five,
/// and at the beginning of a session the whole of it.
pub(super) fn after(kind: Kind, calls: &[Slot]) -> Vec<u64> {
    let mut keys = Vec::with_capacity(MAX_ORDER);
    for order in 1..=MAX_ORDER {
        let Some(start) = calls.len().checked_sub(order) else {
            if order == calls.len() + 1 && !calls.is_empty() {
                let begin = std::iter::once(u32::MAX);
                let whole: Vec<u32> = begin.chain(calls.iter().map(|slot| slot.0)).collect();
                keys.push(context(kind, &whole));
            }
            break;
        };
        let parts: Vec<u32> = calls[start..].iter().map(|slot| slot.0).collect();
        keys.push(context(kind, &parts));
    }
    keys
}

/// Returns the key of what tells the next server: that of the last call.
pub(super) fn after_server(trail: &Trail, vocabulary: &Vocabulary) -> u64 {
    let last = trail.last().and_then(|last| vocabulary.server(last));
    context(Kind::Server, &[last.unwrap_or(u32::MAX)])
}

/// Returns the keys of a time: its weekday and its hour, in UTC.
pub(super) fn times(at: Timestamp) -> [u64; 2] {
    let part = |value: i64| u32::try_from(value).unwrap_or(0);
    let day = part(at.as_second().div_euclid(86_400).rem_euclid(7));
    let hour = part(at.as_second().rem_euclid(86_400) / 3_600);
    [context(Kind::Weekday, &[day]), context(Kind::Hour, &[hour])]
}

/// Returns the keys of what tells whether the next call repeats a tool of the session; the first
/// two are backed off to by the others.
pub(super) fn repeats(trail: &Trail) -> Vec<u64> {
    let Some(last) = trail.last() else {
        return Vec::new();
    };
    let place = u32::try_from(trail.used.len().min(9)).unwrap_or(9);
    let before = trail.changes.iter().rev().nth(1);
    let before = before.map_or(u32::MAX, |slot| slot.0);
    vec![
        context(Kind::RepeatPlace, &[place]),
        context(Kind::RepeatAfter, &[last.0]),
        context(Kind::RepeatRun, &[last.0, trail.run_length.min(6)]),
        context(Kind::RepeatPair, &[before, last.0]),
    ]
}
