//! What experts look at.

use super::counts::{Kind, Reading, context};
use super::memory::Memory;
use super::number::real;
use super::tables::{Scope, Scopes, Tables};
use super::trail::Trail;
use super::vocabulary::{Slot, Vocabulary};

/// All that a prediction is made from. Distributions are over the slots of the vocabulary.
#[derive(Debug)]
pub(super) struct View<'a> {
    pub(super) vocabulary: &'a Vocabulary,
    /// The scopes of the party, the widest first.
    pub(super) scopes: Vec<Scope<'a>>,
    pub(super) memory: Option<&'a Memory>,
    /// What a stored weight is worth now.
    pub(super) scale: f64,
    pub(super) trail: &'a Trail,
    /// The counts of the kind of client alone.
    pub(super) client: Option<Scope<'a>>,
    /// The counts of the principal alone.
    pub(super) own: Option<&'a Tables>,
    /// How often each tool is called, whatever came before.
    pub(super) frequency: Vec<f64>,
    /// How often each tool is the first one.
    pub(super) start: Vec<f64>,
}

impl<'a> View<'a> {
    pub(super) fn new(
        vocabulary: &'a Vocabulary,
        scopes: &'a Scopes,
        memory: Option<&'a Memory>,
        scale: f64,
        trail: &'a Trail,
    ) -> Self {
        let n = vocabulary.len();
        let mut view = Self {
            vocabulary,
            scopes: scopes.of(trail.party, scale),
            client: scopes.client(trail.party, scale),
            own: scopes.own(trail.party),
            memory,
            scale,
            trail,
            frequency: Vec::new(),
            start: Vec::new(),
        };
        let mut frequency = view.even();
        for (at, node) in view.nodes(context(Kind::Call, &[])).enumerate() {
            // Of the widest scope a tenth of a call for each tool, of others Witten and Bell.
            let strength = if at == 0 {
                0.1 * real(n)
            } else {
                node.n_different()
            };
            fold(node, strength, &mut frequency);
        }
        let mut start = frequency.clone();
        view.witten_bell(context(Kind::First, &[]), &mut start);
        view.frequency = frequency;
        view.start = start;
        view
    }

    pub(super) fn n(&self) -> usize {
        self.vocabulary.len()
    }

    /// Returns the nodes of a context, that of the widest scope first.
    pub(super) fn nodes(&self, key: u64) -> impl Iterator<Item = Reading<'a>> + use<'a, '_> {
        (self.scopes.iter()).filter_map(move |scope| scope.node(key))
    }

    /// Replaces a distribution by what followed a context, with the distribution itself as what
    /// is expected of a context that nothing is known of: `(n_t + d p_t) / (n + d)` with `d`
    /// different outcomes (Witten and Bell 1991, method C), for one scope after the other.
    pub(super) fn witten_bell(&self, key: u64, p: &mut [f64]) {
        for node in self.nodes(key) {
            fold(node, node.n_different(), p);
        }
    }

    /// Returns how much is known of a context, in the scope that knows most.
    pub(super) fn total(&self, key: u64) -> f64 {
        self.nodes(key).map(Reading::total).fold(0.0, f64::max)
    }

    /// Returns what is expected before anything of the session is known to matter.
    pub(super) fn base(&self) -> &[f64] {
        if self.trail.n_calls() == 0 {
            &self.start
        } else {
            &self.frequency
        }
    }

    /// Returns how often a tool followed a context and how often anything did, in the narrowest
    /// scope that knows the context; `None` where the tool never did.
    pub(super) fn known(&self, key: u64, slot: Slot) -> Option<(f64, f64)> {
        let mut nodes = self.scopes.iter().rev();
        let node = nodes.find_map(|scope| scope.node(key))?;
        let n = node.count(slot.0);
        (n >= 0.5).then(|| (n, node.total()))
    }

    /// Returns the name of a tool.
    pub(super) fn name(&self, slot: Slot) -> Option<&'a str> {
        let tool = self.vocabulary.tool(slot)?;
        Some(tool.tool.as_str())
    }

    /// Returns the distribution of somebody who knows nothing.
    pub(super) fn even(&self) -> Vec<f64> {
        vec![1.0 / real(self.n().max(1)); self.n()]
    }
}

/// Replaces `p` by `(n_t + strength * p_t) / (n + strength)`.
pub(super) fn fold(node: Reading<'_>, strength: f64, p: &mut [f64]) {
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

/// Makes values that are not negative sum to one; equal ones where all are zero.
pub(super) fn normalise(p: &mut [f64]) {
    let sum: f64 = p.iter().sum();
    if sum > 0.0 && sum.is_finite() {
        for value in p {
            *value /= sum;
        }
    } else {
        let even = 1.0 / real(p.len().max(1));
        p.fill(even);
    }
}
