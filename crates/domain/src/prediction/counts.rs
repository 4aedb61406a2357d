//! How often something followed a context.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::number::{mixed, real, short};

/// What kind of context a count belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Calls, whatever came before.
    Call,
    /// First calls of sessions.
    First,
    /// Calls after the last one to five calls.
    After,
    /// Tools of the session that are used for the first time, after the last one to five
    /// different tools.
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
    /// The same, by the last tool and how often it was called in a row.
    RepeatRun,
    /// The same, by how many different tools were used.
    RepeatPlace,
    /// The same, by the last two tools.
    RepeatPair,
}

/// Returns the key of a context.
pub(super) fn context(kind: Kind, parts: &[u32]) -> u64 {
    parts.iter().fold(mixed(0, kind as u64), |key, part| {
        mixed(key, u64::from(*part) + 1)
    })
}

/// What followed one context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Node {
    total: f32,
    /// Outcomes with their weights, by outcome.
    of: Vec<(u32, f32)>,
}

impl Node {
    /// Returns how much followed, at this scale.
    pub(super) fn total(&self, scale: f64) -> f64 {
        f64::from(self.total) * scale
    }

    /// Returns how many different things followed.
    pub(super) fn n_different(&self) -> f64 {
        real(self.of.len())
    }

    /// Returns how much of an outcome followed.
    pub(super) fn count(&self, outcome: u32, scale: f64) -> f64 {
        (self
            .of
            .binary_search_by_key(&outcome, |(outcome, _)| *outcome))
        .map_or(0.0, |at| f64::from(self.of[at].1) * scale)
    }

    pub(super) fn each(&self, scale: f64) -> impl Iterator<Item = (usize, f64)> + use<'_> {
        (self.of.iter()).map(move |(outcome, count)| (*outcome as usize, f64::from(*count) * scale))
    }

    fn add(&mut self, outcome: u32, weight: f64) {
        let weight = short(weight);
        self.total += weight;
        match (self.of).binary_search_by_key(&outcome, |(outcome, _)| *outcome) {
            Ok(at) => self.of[at].1 += weight,
            Err(at) => self.of.insert(at, (outcome, weight)),
        }
    }
}

/// A node as it is read: at the scale of now, and no count above a cap.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading<'a> {
    pub(super) node: &'a Node,
    pub(super) scale: f64,
    pub(super) cap: f64,
}

impl<'a> Reading<'a> {
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

/// Counts of outcomes by context. Weights are stored as [`super::aging::Aging`] has them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Counts {
    nodes: BTreeMap<u64, Node>,
}

impl Counts {
    pub(super) fn node(&self, context: u64) -> Option<&Node> {
        self.nodes.get(&context)
    }

    pub(super) fn count(&self, context: u64, outcome: u32, scale: f64) -> f64 {
        self.node(context)
            .map_or(0.0, |node| node.count(outcome, scale))
    }

    pub(super) fn add(&mut self, context: u64, outcome: u32, weight: f64) {
        self.nodes.entry(context).or_default().add(outcome, weight);
    }

    /// Returns how many contexts are known.
    pub(super) fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Multiplies all weights, and drops what is then below `least`; outcomes first, then contexts
    /// without any.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        self.nodes.retain(|_, node| {
            for (_, count) in &mut node.of {
                *count = short(f64::from(*count) * factor);
            }
            node.of.retain(|(_, count)| f64::from(*count) >= least);
            node.total = node.of.iter().map(|(_, count)| *count).sum();
            !node.of.is_empty()
        });
    }

    /// Drops contexts with the smallest totals until at most `most` are left; of equal ones those
    /// with the smallest keys.
    pub(super) fn shrink_to(&mut self, most: usize) {
        let Some(n_dropped) = self.nodes.len().checked_sub(most).filter(|n| *n > 0) else {
            return;
        };
        let mut totals: Vec<f32> = self.nodes.values().map(|node| node.total).collect();
        let (_, limit, _) = totals.select_nth_unstable_by(n_dropped - 1, f32::total_cmp);
        let limit = *limit;
        let n_below = self
            .nodes
            .values()
            .filter(|node| node.total < limit)
            .count();
        let mut n_equal = n_dropped - n_below;
        self.nodes.retain(|_, node| {
            let is_dropped = node.total < limit || (n_equal > 0 && node.total <= limit);
            if is_dropped && node.total >= limit {
                n_equal -= 1;
            }
            !is_dropped
        });
    }

    /// Returns whether all numbers are finite and not negative, and outcomes in order.
    pub(super) fn is_sound(&self) -> bool {
        self.nodes.values().all(|node| {
            let is_weight = |count: f32| count.is_finite() && count >= 0.0;
            is_weight(node.total)
                && node.of.iter().all(|(_, count)| is_weight(*count))
                && node.of.is_sorted_by(|a, b| a.0 < b.0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_followed_a_context_is_counted_and_fades() {
        let mut counts = Counts::default();
        let key = context(Kind::After, &[1, 2]);
        for (outcome, weight) in [(7, 1.0), (3, 1.0), (7, 2.0)] {
            counts.add(key, outcome, weight);
        }
        let node = counts.node(key).unwrap();
        assert!((node.total(1.0) - 4.0).abs() < 1e-9 && (node.count(7, 0.5) - 1.5).abs() < 1e-9);
        assert_ne!(key, context(Kind::After, &[2, 1]));
        assert_ne!(key, context(Kind::Workflow, &[1, 2]));
        counts.rescale(0.25, 0.5);
        let node = counts.node(key).unwrap();
        assert!((node.total(1.0) - 0.75).abs() < 1e-9 && node.count(3, 1.0) < 1e-9);
        counts.rescale(0.1, 0.5);
        assert_eq!(counts.len(), 0);
    }

    #[test]
    fn the_contexts_that_count_least_are_dropped_first() {
        let mut counts = Counts::default();
        for (key, weight) in [(1, 5.0), (2, 1.0), (3, 1.0), (4, 3.0), (5, 1.0)] {
            counts.add(key, 0, weight);
        }
        counts.shrink_to(3);
        let left: Vec<u64> = counts.nodes.keys().copied().collect();
        assert_eq!(left, [1, 4, 5]);
        counts.shrink_to(3);
        assert_eq!(counts.len(), 3);
    }
}
