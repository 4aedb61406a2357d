//! The view of the experts on the learned data and the session.

use super::counts::{ContextKind, NodeReading, context};
use super::memory::PrincipalMemory;
use super::session_history::SessionHistory;
use super::tables::{ScopeReading, ScopeTables, Scopes};
use super::vocabulary::{ToolIx, Vocabulary};
use crate::num::to_f64;

/// All inputs of a prediction. Distributions are over the indices of the vocabulary.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) vocabulary: &'a Vocabulary,
    /// The scopes of the client, the widest first.
    pub(super) scopes: Vec<ScopeReading<'a>>,
    pub(super) memory: Option<&'a PrincipalMemory>,
    /// Factor from stored weights to current weights.
    pub(super) scale: f64,
    pub(super) history: &'a SessionHistory,
    /// Counts of the kind of client alone.
    pub(super) client: Option<ScopeReading<'a>>,
    /// Counts of the principal alone.
    pub(super) own: Option<&'a ScopeTables>,
    /// Frequency of each tool, after anything.
    pub(super) frequency: Vec<f64>,
    /// Frequency of each tool as the first call of a session.
    pub(super) start: Vec<f64>,
}

impl<'a> View<'a> {
    pub(super) fn new(
        vocabulary: &'a Vocabulary,
        scopes: &'a Scopes,
        memory: Option<&'a PrincipalMemory>,
        scale: f64,
        history: &'a SessionHistory,
    ) -> Self {
        let n = vocabulary.len();
        let mut view = Self {
            vocabulary,
            scopes: scopes.of(history.party, scale),
            client: scopes.client(history.party, scale),
            own: scopes.own(history.party),
            memory,
            scale,
            history,
            frequency: Vec::new(),
            start: Vec::new(),
        };
        let mut frequency = view.uniform();
        for (at, node) in view.nodes(context(ContextKind::Call, &[])).enumerate() {
            // In the widest scope a pseudo-count of 0.1 calls for each tool, in others Witten-Bell
            // smoothing.
            let strength = if at == 0 {
                0.1 * to_f64(n)
            } else {
                node.n_different()
            };
            smooth(node, strength, &mut frequency);
        }
        let mut start = frequency.clone();
        view.witten_bell(context(ContextKind::First, &[]), &mut start);
        view.frequency = frequency;
        view.start = start;
        view
    }

    pub(super) fn n(&self) -> usize {
        self.vocabulary.len()
    }

    /// Returns the nodes of a context, of the widest scope first.
    pub(super) fn nodes(&self, key: u64) -> impl Iterator<Item = NodeReading<'a>> + use<'a, '_> {
        (self.scopes.iter()).filter_map(move |scope| scope.node(key))
    }

    /// Replaces a distribution by the counts after a context, smoothed with the distribution itself
    /// as prior: `(n_t + d p_t) / (n + d)` with `d` different outcomes (Witten and Bell 1991,
    /// method C), for one scope after the other.
    pub(super) fn witten_bell(&self, key: u64, p: &mut [f64]) {
        for node in self.nodes(key) {
            smooth(node, node.n_different(), p);
        }
    }

    /// Returns the largest total of a context over the scopes.
    pub(super) fn total(&self, key: u64) -> f64 {
        self.nodes(key).map(NodeReading::total).fold(0.0, f64::max)
    }

    /// Returns the prior distribution, without evidence from the session.
    pub(super) fn base(&self) -> &[f64] {
        if self.history.n_calls() == 0 {
            &self.start
        } else {
            &self.frequency
        }
    }

    /// Returns the number of times that a tool followed a context, and the total of the context, in
    /// the narrowest scope with the context; `None` if the tool never followed it.
    pub(super) fn count_and_total(&self, key: u64, slot: ToolIx) -> Option<(f64, f64)> {
        let mut nodes = self.scopes.iter().rev();
        let node = nodes.find_map(|scope| scope.node(key))?;
        let n = node.count(slot.0);
        (n >= 0.5).then(|| (n, node.total()))
    }

    pub(super) fn name(&self, slot: ToolIx) -> Option<&'a str> {
        let tool = self.vocabulary.tool(slot)?;
        Some(tool.tool.as_str())
    }

    /// Returns the uniform distribution.
    pub(super) fn uniform(&self) -> Vec<f64> {
        vec![1.0 / to_f64(self.n().max(1)); self.n()]
    }
}

/// Replaces `p` by `(n_t + strength * p_t) / (n + strength)`.
pub(super) fn smooth(node: NodeReading<'_>, strength: f64, p: &mut [f64]) {
    let total = node.total() + strength;
    if total <= 0.0 {
        return;
    }
    let share = strength / total;
    for value in p.iter_mut() {
        *value *= share;
    }
    for (outcome, count) in node.each() {
        if let Some(value) = p.get_mut(outcome) {
            *value += count / total;
        }
    }
}

/// Normalises values that are not negative to the sum 1; to equal values if all are 0.
pub(super) fn normalise(p: &mut [f64]) {
    let sum: f64 = p.iter().sum();
    if sum > 0.0 && sum.is_finite() {
        for value in p {
            *value /= sum;
        }
    } else {
        let even = 1.0 / to_f64(p.len().max(1));
        p.fill(even);
    }
}
