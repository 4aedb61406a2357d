//! Counts of outcomes after contexts.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::context_node::ContextNode;
use super::numeric::{SmallestCut, mix_hash, to_f32};

/// The kind of a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum ContextKind {
    /// Calls after anything.
    Call,
    /// First calls of sessions.
    First,
    /// Calls after the last one to five calls.
    After,
    /// First uses of tools in a session, after the last one to five different tools.
    Workflow,
    /// Servers after servers.
    Server,
    /// Calls by hour of the day.
    Hour,
    /// Calls by day of the week.
    Weekday,
    /// First uses after any use of a tool in the same session.
    Later,
    /// Whether a call repeats a tool of the session, by the last tool.
    RepeatAfter,
    /// Whether a call repeats a tool, by the last tool and the length of its run of calls.
    RepeatRun,
    /// Whether a call repeats a tool, by the number of different tools so far.
    RepeatPlace,
    /// Whether a call repeats a tool, by the last two tools.
    RepeatPair,
    /// First uses of the tools of a server in a session, after the last call to this server.
    OnServer,
}

/// Returns the key of a context.
pub(super) fn context(kind: ContextKind, parts: &[u32]) -> u64 {
    parts.iter().fold(mix_hash(0, kind as u64), |key, part| {
        mix_hash(key, u64::from(*part) + 1)
    })
}

/// A node as it is read: current weights, with an upper limit of each count.
#[derive(Clone, Copy, Debug)]
pub(super) struct NodeReading<'a> {
    pub(super) node: &'a ContextNode,
    pub(super) scale: f64,
    pub(super) cap: f64,
}

impl<'a> NodeReading<'a> {
    pub(super) fn total(self) -> f64 {
        if self.cap.is_finite() {
            self.each().map(|(_, count)| count).sum()
        } else {
            self.node.total(self.scale)
        }
    }

    pub(super) fn n_different(self) -> f64 {
        self.node.n_different()
    }

    pub(super) fn count(self, outcome: u32) -> f64 {
        self.node.count(outcome, self.scale).min(self.cap)
    }

    pub(super) fn each(self) -> impl Iterator<Item = (usize, f64)> + use<'a> {
        let counts = self.node.each(self.scale);
        counts.map(move |(outcome, count)| (outcome, count.min(self.cap)))
    }
}

/// Counts of outcomes by context. Weights are stored as in [`super::aging::Aging`].
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct OutcomeCounts {
    nodes: BTreeMap<u64, ContextNode>,
    n_outcomes: usize,
}

impl OutcomeCounts {
    pub(super) fn node(&self, context: u64) -> Option<&ContextNode> {
        self.nodes.get(&context)
    }

    /// Adds to the count of an outcome. Returns the new stored count.
    pub(super) fn add(&mut self, context: u64, outcome: u32, weight: f64) -> f64 {
        let weight = to_f32(weight);
        match self.nodes.entry(context) {
            Entry::Vacant(place) => {
                place.insert(ContextNode::new(outcome, weight));
                self.n_outcomes += 1;
                f64::from(weight)
            }
            Entry::Occupied(mut node) => {
                let (count, is_new) = node.get_mut().add(outcome, weight);
                self.n_outcomes += usize::from(is_new);
                f64::from(count)
            }
        }
    }

    /// Returns the number of contexts.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Returns the number of outcomes of all contexts together.
    pub(super) fn n_outcomes(&self) -> usize {
        self.n_outcomes
    }

    /// Multiplies all weights. Drops outcomes whose weight is then below `least`, then contexts
    /// without outcomes.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        self.nodes.retain(|_, node| {
            for (_, count) in node.outcomes_mut() {
                *count = to_f32(f64::from(*count) * factor);
            }
            node.retain(|count| f64::from(count) >= least)
        });
        self.count_outcomes();
    }

    /// Drops contexts with the smallest totals until at most `most` are left; of equal totals, the
    /// smallest keys first.
    pub(super) fn shrink_to(&mut self, most: usize) {
        let totals = self.nodes.values().map(ContextNode::stored_total);
        if let Some(mut cut) = SmallestCut::new(totals, most) {
            self.nodes.retain(|_, node| !cut.drops(node.stored_total()));
            self.count_outcomes();
        }
    }

    /// Drops outcomes with the smallest counts until at most `most` are left, and contexts without
    /// outcomes; of equal counts, the smallest keys first.
    pub(super) fn shrink_outcomes_to(&mut self, most: usize) {
        let outcomes = self.nodes.values().flat_map(ContextNode::outcomes);
        if let Some(mut cut) = SmallestCut::new(outcomes.map(|(_, count)| *count), most) {
            self.nodes
                .retain(|_, node| node.retain(|count| !cut.drops(count)));
            self.count_outcomes();
        }
    }

    fn count_outcomes(&mut self) {
        self.n_outcomes = self.nodes.values().map(|node| node.outcomes().len()).sum();
    }

    /// Returns whether all numbers are finite and not negative, and outcomes are sorted.
    pub(super) fn is_sound(&self) -> bool {
        self.nodes.values().all(ContextNode::is_sound)
    }
}

/// Contexts are serialized in the order of their keys.
impl Serialize for OutcomeCounts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(&self.nodes)
    }
}

impl<'de> Deserialize<'de> for OutcomeCounts {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let nodes: Vec<(u64, ContextNode)> = Deserialize::deserialize(deserializer)?;
        let mut counts = Self {
            // A tree that is built from sorted input at once has no unused space.
            nodes: nodes.into_iter().collect(),
            n_outcomes: 0,
        };
        counts.count_outcomes();
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcomes_of_a_context_are_counted_and_decay() {
        let mut counts = OutcomeCounts::default();
        let key = context(ContextKind::After, &[1, 2]);
        for (outcome, weight) in [(7, 1.0), (3, 1.0), (7, 2.0)] {
            counts.add(key, outcome, weight);
        }
        let node = counts.node(key).unwrap();
        assert!((node.total(1.0) - 4.0).abs() < 1e-9 && (node.count(7, 0.5) - 1.5).abs() < 1e-9);
        assert_ne!(key, context(ContextKind::After, &[2, 1]));
        assert_ne!(key, context(ContextKind::Workflow, &[1, 2]));
        counts.rescale(0.25, 0.5);
        let node = counts.node(key).unwrap();
        assert!((node.total(1.0) - 0.75).abs() < 1e-9 && node.count(3, 1.0) < 1e-9);
        counts.rescale(0.1, 0.5);
        assert_eq!(counts.len(), 0);
    }

    #[test]
    fn contexts_with_the_lowest_counts_are_dropped_first() {
        let mut counts = OutcomeCounts::default();
        for (key, weight) in [(1, 5.0), (2, 1.0), (3, 1.0), (4, 3.0), (5, 1.0)] {
            counts.add(key, 0, weight);
        }
        counts.shrink_to(3);
        let left: Vec<u64> = counts.nodes.keys().copied().collect();
        assert_eq!((left, counts.n_outcomes()), (vec![1, 4, 5], 3));
        counts.shrink_to(3);
        assert_eq!(counts.len(), 3);
    }

    #[test]
    fn outcomes_with_the_lowest_counts_are_dropped_first() {
        let mut counts = OutcomeCounts::default();
        for (key, outcome, weight) in [(1, 0, 5.0), (1, 1, 1.0), (2, 0, 1.0), (3, 7, 1.0)] {
            counts.add(key, outcome, weight);
        }
        counts.shrink_outcomes_to(2);
        assert_eq!((counts.len(), counts.n_outcomes()), (2, 2));
        let node = counts.node(1).unwrap();
        assert!((node.total(1.0) - 5.0).abs() < 1e-9 && node.count(1, 1.0) < 1e-9);
        assert!(counts.node(3).is_some());
    }

    #[test]
    fn counts_survive_serialization() {
        let mut counts = OutcomeCounts::default();
        for at in 0..40 {
            counts.add(u64::from(at % 7), at, f64::from(at) + 0.3);
        }
        let bytes = postcard::to_allocvec(&counts).unwrap();
        assert_eq!(
            postcard::from_bytes::<OutcomeCounts>(&bytes).unwrap(),
            counts
        );
    }
}
