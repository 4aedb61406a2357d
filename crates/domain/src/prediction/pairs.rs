//! Co-occurrence of tools in sessions.

use petgraph::graph::{NodeIndex, UnGraph};
use petgraph::visit::EdgeRef;
use serde::{Deserialize, Serialize};

use super::numeric::{SmallestCut, to_f32};

/// The statistics of two tools that were used in the same sessions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct PairStatistics {
    /// Weighted number of sessions that used both.
    pub(super) n_sessions: f32,
    /// Sum of the numbers of calls between their first uses, with the same weights.
    pub(super) distance: f32,
}

/// A graph with tools as nodes, weighted by the sessions that used them, and edges between tools
/// that were used in the same session. Node indices are indices of the vocabulary.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct PairGraph {
    graph: UnGraph<f32, PairStatistics, u32>,
}

impl PairGraph {
    /// Returns the weighted number of sessions that used a tool.
    pub(super) fn n_sessions(&self, slot: u32, scale: f64) -> f64 {
        (self.graph.node_weight(NodeIndex::new(slot as usize)))
            .map_or(0.0, |n| f64::from(*n) * scale)
    }

    /// Returns the other tools of the sessions that used a tool, with the number of sessions that
    /// used both.
    pub(super) fn partners(&self, slot: u32, scale: f64) -> impl Iterator<Item = (usize, f64)> {
        let node = NodeIndex::new(slot as usize);
        (self.graph.edges(node)).map(move |edge| {
            let other = if edge.source() == node {
                edge.target()
            } else {
                edge.source()
            };
            (other.index(), f64::from(edge.weight().n_sessions) * scale)
        })
    }

    /// Returns the number of sessions that used both tools, and the mean number of calls between
    /// their first uses.
    pub(super) fn pair(&self, a: u32, b: u32, scale: f64) -> Option<(f64, f64)> {
        let edge =
            (self.graph).find_edge(NodeIndex::new(a as usize), NodeIndex::new(b as usize))?;
        let pair = self.graph.edge_weight(edge)?;
        let n = f64::from(pair.n_sessions);
        (n > 0.0).then(|| (n * scale, f64::from(pair.distance) / n))
    }

    pub(super) fn n_pairs(&self) -> usize {
        self.graph.edge_count()
    }

    /// Returns a copy of the tools and their sessions, without pairs.
    pub(super) fn without_pairs(&self) -> Self {
        let mut graph = UnGraph::with_capacity(self.graph.node_count(), 0);
        for n in self.graph.node_weights() {
            graph.add_node(*n);
        }
        Self { graph }
    }

    /// Counts a session that used a tool. Returns the new stored number of its sessions.
    pub(super) fn add_session(&mut self, slot: u32, weight: f64) -> f64 {
        let node = self.node(slot);
        (self.graph.node_weight_mut(node)).map_or(0.0, |n| {
            *n += to_f32(weight);
            f64::from(*n)
        })
    }

    /// Counts a session that used both tools, `distance` calls apart. Returns the new stored number
    /// of their sessions.
    pub(super) fn add_pair(&mut self, a: u32, b: u32, distance: f64, weight: f64) -> f64 {
        let (a, b) = (self.node(a), self.node(b));
        let edge = (self.graph.find_edge(a, b)).unwrap_or_else(|| {
            // Grows by a quarter and not by doubling, to save memory.
            if self.graph.edge_count() == self.graph.capacity().1 {
                let n_more = self.graph.edge_count() / 4 + 4;
                self.graph.reserve_exact_edges(n_more);
            }
            self.graph.add_edge(a, b, PairStatistics::default())
        });
        (self.graph.edge_weight_mut(edge)).map_or(0.0, |pair| {
            pair.n_sessions += to_f32(weight);
            pair.distance += to_f32(weight * distance);
            f64::from(pair.n_sessions)
        })
    }

    /// Drops the pairs with the fewest sessions until at most `most` are left. The order of equal
    /// pairs depends only on the counted data.
    pub(super) fn shrink_to(&mut self, most: usize) {
        let counts = (self.graph.raw_edges().iter()).map(|edge| edge.weight.n_sessions);
        if let Some(mut cut) = SmallestCut::new(counts, most) {
            (self.graph).retain_edges(|graph, edge| {
                graph
                    .edge_weight(edge)
                    .is_some_and(|pair| !cut.drops(pair.n_sessions))
            });
        }
    }

    /// Multiplies all weights, and drops the pairs that are then below `least`.
    pub(super) fn rescale(&mut self, factor: f64, least: f64) {
        for n in self.graph.node_weights_mut() {
            *n = to_f32(f64::from(*n) * factor);
        }
        for pair in self.graph.edge_weights_mut() {
            pair.n_sessions = to_f32(f64::from(pair.n_sessions) * factor);
            pair.distance = to_f32(f64::from(pair.distance) * factor);
        }
        (self.graph).retain_edges(|graph, edge| {
            graph
                .edge_weight(edge)
                .is_some_and(|pair| f64::from(pair.n_sessions) >= least)
        });
    }

    /// Returns whether all numbers are finite and not negative.
    pub(super) fn is_sound(&self) -> bool {
        let is_weight = |n: f32| n.is_finite() && n >= 0.0;
        self.graph.node_weights().all(|n| is_weight(*n))
            && (self.graph.edge_weights())
                .all(|pair| is_weight(pair.n_sessions) && is_weight(pair.distance))
    }

    fn node(&mut self, slot: u32) -> NodeIndex<u32> {
        while self.graph.node_count() <= slot as usize {
            self.graph.add_node(0.0);
        }
        NodeIndex::new(slot as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_counted_for_tools_and_pairs_with_their_distance() {
        let mut pairs = PairGraph::default();
        for distance in [1.0, 3.0] {
            pairs.add_session(4, 1.0);
            pairs.add_session(2, 1.0);
            pairs.add_pair(4, 2, distance, 1.0);
        }
        assert!((pairs.n_sessions(2, 1.0) - 2.0).abs() < 1e-9);
        let (n, distance) = pairs.pair(2, 4, 0.5).unwrap();
        assert!((n - 1.0).abs() < 1e-9 && (distance - 2.0).abs() < 1e-9);
        assert_eq!(
            pairs
                .partners(2, 1.0)
                .map(|(other, _)| other)
                .collect::<Vec<_>>(),
            [4]
        );
        assert_eq!(
            pairs
                .partners(4, 1.0)
                .map(|(other, _)| other)
                .collect::<Vec<_>>(),
            [2]
        );
        assert_eq!(pairs.pair(2, 3, 1.0), None);
        assert_eq!(pairs.partners(9, 1.0).count(), 0);
    }

    #[test]
    fn faded_pairs_are_dropped() {
        let mut pairs = PairGraph::default();
        pairs.add_pair(0, 1, 1.0, 4.0);
        pairs.add_pair(0, 2, 1.0, 1.0);
        pairs.rescale(0.5, 1.0);
        assert!(pairs.pair(0, 1, 1.0).is_some() && pairs.pair(0, 2, 1.0).is_none());
    }

    #[test]
    fn the_pairs_with_the_fewest_sessions_are_dropped_first() {
        let mut pairs = PairGraph::default();
        for (other, weight) in [(1, 3.0), (2, 1.0), (3, 2.0), (4, 1.0)] {
            pairs.add_session(other, 1.0);
            pairs.add_pair(0, other, 1.0, weight);
        }
        pairs.shrink_to(2);
        assert_eq!(pairs.n_pairs(), 2);
        assert!(pairs.pair(0, 1, 1.0).is_some() && pairs.pair(0, 3, 1.0).is_some());
        assert_eq!(pairs.without_pairs().n_pairs(), 0);
        assert!((pairs.without_pairs().n_sessions(4, 1.0) - 1.0).abs() < 1e-9);
    }
}
