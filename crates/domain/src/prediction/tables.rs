//! What is counted, for one principal, one kind of client, or all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::counts::{Counts, Kind, Reading, context};
use super::number::real;
use super::pairs::PairGraph;
use super::trail::{Party, Trail};
use super::vocabulary::{Slot, Vocabulary};

/// The counts of one scope.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Tables {
    pub(super) counts: Counts,
    pub(super) pairs: PairGraph,
}

impl Tables {
    /// The most contexts of one scope.
    const MAX_CONTEXTS: usize = 8_000;
    /// How many contexts there may be above that before some are dropped.
    const SLACK: usize = 1_000;

    fn keep_small(&mut self) {
        if self.counts.len() > Self::MAX_CONTEXTS + Self::SLACK {
            self.counts.shrink_to(Self::MAX_CONTEXTS);
        }
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
    everyone: Tables,
    clients: BTreeMap<u64, Tables>,
    principals: BTreeMap<u64, Tables>,
    /// By principal, then client.
    own_clients: BTreeMap<(u64, u64), Tables>,
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
        let Some(own) = self.principals.get(&party.principal) else {
            let shared = std::iter::once(&self.everyone).chain(self.clients.get(&party.client));
            return shared.map(|tables| scope(tables, f64::INFINITY)).collect();
        };
        let calls = own.counts.node(context(Kind::Call, &[]));
        if calls.is_some_and(|calls| calls.total(scale) >= Self::ENOUGH_CALLS) {
            let with_client = self.own_clients.get(&(party.principal, party.client));
            let present = std::iter::once(own).chain(with_client);
            let present = present.map(|tables| scope(tables, Self::PRESENCE));
            return present.chain([scope(own, f64::INFINITY)]).collect();
        }
        (std::iter::once(&self.everyone).chain(self.clients.get(&party.client)))
            .chain([own])
            .map(|tables| scope(tables, f64::INFINITY))
            .collect()
    }

    /// Returns the counts of one principal.
    pub(super) fn own(&self, party: Party) -> Option<&Tables> {
        self.principals.get(&party.principal)
    }

    /// Returns the counts of the kind of client: of the principal where there are any.
    pub(super) fn client(&self, party: Party, scale: f64) -> Option<Scope<'_>> {
        let own = self.own_clients.get(&(party.principal, party.client));
        let tables = own.or_else(|| self.clients.get(&party.client))?;
        Some(Scope {
            tables,
            cap: f64::INFINITY,
            scale,
        })
    }

    fn all(&self) -> impl Iterator<Item = &Tables> {
        std::iter::once(&self.everyone)
            .chain(self.clients.values())
            .chain(self.principals.values())
            .chain(self.own_clients.values())
    }

    /// Multiplies all weights, drops what is then below `least`, and returns how many contexts
    /// are left.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        let tables = std::iter::once(&mut self.everyone)
            .chain(self.clients.values_mut())
            .chain(self.principals.values_mut())
            .chain(self.own_clients.values_mut());
        for tables in tables {
            tables.counts.rescale(factor, least);
            tables.pairs.rescale(factor, least);
        }
        self.clients.retain(|_, tables| tables.counts.len() > 0);
        self.principals.retain(|_, tables| tables.counts.len() > 0);
        self.own_clients.retain(|_, tables| tables.counts.len() > 0);
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
        let is_known = self.clients.contains_key(&party.client);
        let client = (is_known || self.clients.len() < Self::MAX_CLIENTS)
            .then(|| self.clients.entry(party.client).or_default());
        let both = (party.principal, party.client);
        let of_principal = (party.principal, u64::MIN)..=(party.principal, u64::MAX);
        let is_known = self.own_clients.contains_key(&both);
        let has_room = self.own_clients.range(of_principal).count() < Self::MAX_OWN_CLIENTS;
        let own_client = (is_known || has_room).then(|| self.own_clients.entry(both).or_default());
        let mut writer = Writer {
            own: self.principals.entry(party.principal).or_default(),
            own_client,
            shared: std::iter::once(&mut self.everyone).chain(client).collect(),
            weight,
        };
        writer.call(trail, slot, vocabulary);
        writer.own.keep_small();
        for tables in writer.own_client.into_iter().chain(writer.shared) {
            tables.keep_small();
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
        self.own.counts.add(key, outcome, self.weight);
        let own = self.own.counts.count(key, outcome, 1.0 / self.weight);
        let shared = self.shared_weight(own);
        if let Some(tables) = &mut self.own_client {
            tables.counts.add(key, outcome, self.weight);
        }
        for tables in &mut self.shared {
            tables.counts.add(key, outcome, shared);
        }
    }

    fn session(&mut self, slot: u32) {
        self.own.pairs.add_session(slot, self.weight);
        let shared = self.shared_weight(self.own.pairs.n_sessions(slot, 1.0 / self.weight));
        if let Some(tables) = &mut self.own_client {
            tables.pairs.add_session(slot, self.weight);
        }
        for tables in &mut self.shared {
            tables.pairs.add_session(slot, shared);
        }
    }

    fn pair(&mut self, a: u32, b: u32, distance: f64) {
        self.own.pairs.add_pair(a, b, distance, self.weight);
        let own = self.own.pairs.pair(a, b, 1.0 / self.weight);
        let shared = self.shared_weight(own.map_or(0.0, |(n, _)| n));
        if let Some(tables) = &mut self.own_client {
            tables.pairs.add_pair(a, b, distance, self.weight);
        }
        for tables in &mut self.shared {
            tables.pairs.add_pair(a, b, distance, shared);
        }
    }

    /// Returns the weight of something that the principal did `own` times so far, in what others
    /// share: the `k`-th time counts `1 / k^2`, so that all of them together count less than 1.65.
    /// What is shared is in how many principals do a thing, and one cannot outvote others.
    fn shared_weight(&self, own: f64) -> f64 {
        self.weight / own.max(1.0).powi(2)
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
