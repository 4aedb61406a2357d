//! Tables of counts for each scope: a principal, a kind of client, or all.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::counts::{ContextKind, NodeReading, OutcomeCounts, context};
use super::pairs::PairGraph;
use super::partitioned_counts::PartitionedCounts;
use super::session_history::{ClientKey, SessionHistory};
use super::vocabulary::{ToolIx, Vocabulary};
use crate::num::to_f64;

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct ScopeTables {
    pub(super) counts: OutcomeCounts,
    pub(super) pairs: PairGraph,
}

/// Maximum sizes of one scope.
#[derive(Clone, Copy, Debug)]
struct TableLimits {
    contexts: usize,
    outcomes: usize,
    pairs: usize,
}

impl TableLimits {
    /// Limits of a principal.
    const OWN: Self = Self {
        contexts: 8_000,
        outcomes: 60_000,
        pairs: 8_000,
    };
    /// Limits of the shared counts, and of each client of a principal: much of their data is also
    /// in the counts of the principal.
    const OTHER: Self = Self {
        contexts: 8_000,
        outcomes: 30_000,
        pairs: 4_000,
    };

    /// Returns the number of entries above a limit that are allowed before some are dropped. It
    /// makes drops rare.
    const fn slack(most: usize) -> usize {
        most / 8
    }
}

impl ScopeTables {
    fn enforce_limits(&mut self, most: TableLimits) {
        let is_over = |n: usize, most: usize| n > most + TableLimits::slack(most);
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

    /// Returns a copy without the counts of pairs.
    fn without_pairs(&self) -> Self {
        Self {
            counts: self.counts.clone(),
            pairs: self.pairs.without_pairs(),
        }
    }

    /// Multiplies all weights, and drops entries that are then below `least`.
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
pub(super) struct ScopeReading<'a> {
    pub(super) tables: &'a ScopeTables,
    /// Upper limit of each count.
    cap: f64,
    scale: f64,
}

impl<'a> ScopeReading<'a> {
    pub(super) fn node(self, key: u64) -> Option<NodeReading<'a>> {
        Some(NodeReading {
            node: self.tables.counts.node(key)?,
            scale: self.scale,
            cap: self.cap,
        })
    }

    /// Returns the weighted number of sessions that used a tool.
    pub(super) fn n_sessions(self, slot: ToolIx) -> f64 {
        self.tables
            .pairs
            .n_sessions(slot.0, self.scale)
            .min(self.cap)
    }
}

/// The counts of all scopes: shared by all, of each kind of client, of each principal, and of each
/// principal with each kind of client.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Scopes {
    /// Shared counts of all principals, by kind of client.
    shared: PartitionedCounts,
    /// Counts of each principal, by kind of client. Pairs of tools are counted for all its clients
    /// together only.
    principals: BTreeMap<u64, PartitionedCounts>,
}

impl Scopes {
    /// Maximum number of kinds of clients with separate counts. A limit is needed, because clients
    /// choose their names.
    const MAX_CLIENTS: usize = 64;
    /// Maximum number of kinds of clients of one principal with separate counts.
    const MAX_OWN_CLIENTS: usize = 8;
    /// Maximum number of principals with separate counts.
    pub(super) const MAX_PRINCIPALS: usize = 4_096;

    /// Number of own calls from which on a principal is predicted from its own data alone. From
    /// then on other principals cannot change its predictions.
    const ENOUGH_CALLS: f64 = 500.0;
    /// Upper limit of a count in the scopes that measure presence and not frequency. About the
    /// weight of the repetitions of one principal in the shared counts.
    const PRESENCE: f64 = 1.5;

    /// Returns the scopes of a client, the widest first, and the principal's own counts last.
    /// `scale` is the factor from stored weights to current weights.
    ///
    /// Shared counts measure the presence of a behaviour, not its frequency. A principal with
    /// enough calls is predicted from its own counts, which are read in the same two ways: for
    /// presence and for frequency.
    pub(super) fn of(&self, party: ClientKey, scale: f64) -> Vec<ScopeReading<'_>> {
        let scope = |tables, cap| ScopeReading { tables, cap, scale };
        let shared = std::iter::once(&self.shared.all).chain(self.shared.part(party.client));
        let Some(own) = self.principals.get(&party.principal) else {
            return shared.map(|tables| scope(tables, f64::INFINITY)).collect();
        };
        let calls = own.all.counts.node(context(ContextKind::Call, &[]));
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
    pub(super) fn own(&self, party: ClientKey) -> Option<&ScopeTables> {
        let own = self.principals.get(&party.principal)?;
        Some(&own.all)
    }

    /// Returns the counts of the kind of client: of the principal's own if there are any, else of
    /// all.
    pub(super) fn client(&self, party: ClientKey, scale: f64) -> Option<ScopeReading<'_>> {
        let own = self.principals.get(&party.principal);
        let own = own.and_then(|own| own.part(party.client));
        let tables = own.or_else(|| self.shared.part(party.client))?;
        Some(ScopeReading {
            tables,
            cap: f64::INFINITY,
            scale,
        })
    }

    fn all(&self) -> impl Iterator<Item = &ScopeTables> {
        let own = self.principals.values().flat_map(PartitionedCounts::each);
        self.shared.each().chain(own)
    }

    /// Multiplies all weights, and drops entries that are then below `least`.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        self.shared.rescale(factor, least);
        for own in self.principals.values_mut() {
            own.rescale(factor, least);
        }
        self.principals.retain(|_, own| !own.all.is_empty());
    }

    /// Returns the number of contexts in all scopes.
    pub(super) fn n_contexts(&self) -> usize {
        self.all().map(|tables| tables.counts.len()).sum()
    }

    pub(super) fn is_sound(&self) -> bool {
        self.all()
            .all(|tables| tables.counts.is_sound() && tables.pairs.is_sound())
    }

    /// Learns that a tool was called after the session history. `weight` is the weight to store.
    /// New principals above the maximum number are ignored.
    pub(super) fn learn(
        &mut self,
        history: &SessionHistory,
        slot: ToolIx,
        vocabulary: &Vocabulary,
        weight: f64,
    ) {
        let party = history.party;
        let is_known = self.principals.contains_key(&party.principal);
        if !is_known && self.principals.len() >= Self::MAX_PRINCIPALS {
            return;
        }
        (self.shared).ensure_part(party.client, Self::MAX_CLIENTS, ScopeTables::clone);
        let own = self.principals.entry(party.principal).or_default();
        own.ensure_part(
            party.client,
            Self::MAX_OWN_CLIENTS,
            ScopeTables::without_pairs,
        );
        let (own, own_client) = own.total_and_part_mut(party.client);
        let (everyone, client) = self.shared.total_and_part_mut(party.client);
        let mut writer = CountWriter {
            own,
            own_client,
            shared: std::iter::once(everyone).chain(client).collect(),
            weight,
        };
        writer.call(history, slot, vocabulary);
        writer.own.enforce_limits(TableLimits::OWN);
        for tables in writer.own_client.into_iter().chain(writer.shared) {
            tables.enforce_limits(TableLimits::OTHER);
        }
    }
}

struct CountWriter<'a> {
    own: &'a mut ScopeTables,
    own_client: Option<&'a mut ScopeTables>,
    shared: Vec<&'a mut ScopeTables>,
    weight: f64,
}

impl CountWriter<'_> {
    fn call(&mut self, history: &SessionHistory, slot: ToolIx, vocabulary: &Vocabulary) {
        let outcome = slot.0;
        let is_new = !history.has_used(slot);
        self.count(context(ContextKind::Call, &[]), outcome);
        if history.n_calls() == 0 {
            self.count(context(ContextKind::First, &[]), outcome);
        }
        for key in context_keys(ContextKind::After, &history.last) {
            self.count(key, outcome);
        }
        if let Some(server) = vocabulary.server(slot) {
            self.count(server_context_key(history, vocabulary), server);
        }
        for key in history.now.into_iter().flat_map(time_keys) {
            self.count(key, outcome);
        }
        if is_new {
            self.first_use(history, slot, vocabulary);
        } else if (history.used.iter()).any(|used| used.slot == slot && used.n_calls == 1) {
            // A pair of a tool with itself: once per session, at its second call.
            self.pair(outcome, outcome, 0.0);
        }
        for key in repeat_keys(history) {
            self.count(key, u32::from(!is_new));
        }
    }

    fn first_use(&mut self, history: &SessionHistory, slot: ToolIx, vocabulary: &Vocabulary) {
        let outcome = slot.0;
        if let Some(server) = vocabulary.server(slot) {
            let last = history.last_on_server(server, vocabulary);
            self.count(on_server_key(server, last), outcome);
        }
        for key in context_keys(ContextKind::Workflow, &history.changes) {
            self.count(key, outcome);
        }
        for used in history.used.iter().rev().take(SessionHistory::MAX_PARTNERS) {
            let distance = to_f64(history.n_calls().saturating_sub(used.first_call));
            self.pair(used.slot.0, outcome, distance);
            self.count(context(ContextKind::Later, &[used.slot.0]), outcome);
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

    /// Returns the weight of an event in the shared counts; `own` is the stored count of the
    /// principal. The `k`-th time counts `1 / k^2`, so that all repetitions together count less
    /// than 1.65. Shared counts thus measure how many principals do something, and one principal
    /// cannot outvote others.
    fn shared_weight(&self, own: f64) -> f64 {
        let times = own * (1.0 / self.weight);
        self.weight / times.max(1.0).powi(2)
    }
}

// Agents repeat sequences of more than three calls. A sixth call gains little, for more state.
const MAX_ORDER: usize = 5;

/// Returns the keys of the contexts of the last calls, the shortest first: the last one to five
/// calls, and the whole session while it is shorter than that.
pub(super) fn context_keys(kind: ContextKind, calls: &[ToolIx]) -> Vec<u64> {
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

/// Returns the key of the context for the next server: the server of the last call.
pub(super) fn server_context_key(history: &SessionHistory, vocabulary: &Vocabulary) -> u64 {
    let last = history.last().and_then(|last| vocabulary.server(last));
    context(ContextKind::Server, &[last.unwrap_or(u32::MAX)])
}

/// Returns the key of the context for the next new tool of a server: the last tool of this server
/// that the session called, if it called any.
pub(super) fn on_server_key(server: u32, last: Option<ToolIx>) -> u64 {
    let last = last.map_or(u32::MAX, |slot| slot.0);
    context(ContextKind::OnServer, &[server, last])
}

/// Returns the keys of a time: its weekday and its hour, in UTC.
pub(super) fn time_keys(at: Timestamp) -> [u64; 2] {
    let part = |value: i64| u32::try_from(value).unwrap_or(0);
    let day = part(at.as_second().div_euclid(86_400).rem_euclid(7));
    let hour = part(at.as_second().rem_euclid(86_400) / 3_600);
    [
        context(ContextKind::Weekday, &[day]),
        context(ContextKind::Hour, &[hour]),
    ]
}

/// Returns the keys of the contexts for a repetition. The first two are back-off estimates for the
/// others.
pub(super) fn repeat_keys(history: &SessionHistory) -> Vec<u64> {
    let Some(last) = history.last() else {
        return Vec::new();
    };
    let place = u32::try_from(history.used.len().min(9)).unwrap_or(9);
    let before = history.changes.iter().rev().nth(1);
    let before = before.map_or(u32::MAX, |slot| slot.0);
    vec![
        context(ContextKind::RepeatPlace, &[place]),
        context(ContextKind::RepeatAfter, &[last.0]),
        context(ContextKind::RepeatRun, &[last.0, history.run_length.min(6)]),
        context(ContextKind::RepeatPair, &[before, last.0]),
    ]
}
