//! The Markov experts: prediction by partial matching of orders 1 to 5 (Cleary and Witten 1984)
//! from the last calls, interpolated with absolute discounting (Ney, Essen and Kneser 1994).

use super::Expert;
use crate::prediction::counts::{ContextKind, NodeReading};
use crate::prediction::tables::context_keys;
use crate::prediction::view::View;
use crate::prediction::vocabulary::ToolIx;

/// Discount of each count, in calls. The discounted mass goes to the shorter context. Absolute
/// discounting and not Witten-Bell: that would make long contexts worse with few sessions.
const DISCOUNT: f64 = 0.6;

/// Returns the distribution after the last call.
pub(super) fn last_call(view: &View<'_>) -> Vec<f64> {
    back_off(view, ContextKind::After, &view.history.last, 1)
}

/// Returns the distribution after the last one to five calls.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    back_off(view, ContextKind::After, &view.history.last, usize::MAX)
}

/// Returns the distribution of first uses after the last one to five different tools. Consecutive
/// calls of the same tool count as one.
pub(super) fn workflow(view: &View<'_>) -> Vec<f64> {
    back_off(
        view,
        ContextKind::Workflow,
        &view.history.changes,
        usize::MAX,
    )
}

fn back_off(view: &View<'_>, kind: ContextKind, calls: &[ToolIx], most: usize) -> Vec<f64> {
    let mut p = view.base().to_vec();
    for key in context_keys(kind, calls).into_iter().take(most) {
        for node in view.nodes(key) {
            discount(node, &mut p);
        }
    }
    p
}

/// Replaces `p` by `(n_t - d_t + d p_t) / n`. Here `d_t = 0.6 min(n_t, 1)`, so that counts that
/// have aged below one call stay positive, and `d` is the sum of all `d_t`. The more different
/// outcomes a context has, the more the shorter context counts.
fn discount(node: NodeReading<'_>, p: &mut [f64]) {
    let total = node.total();
    if total <= 0.0 {
        return;
    }
    let off = |count: f64| DISCOUNT * count.min(1.0);
    let taken: f64 = node.each().map(|(_, count)| off(count)).sum();
    let share = taken / total;
    for value in p.iter_mut() {
        *value *= share;
    }
    for (outcome, count) in node.each() {
        if let Some(value) = p.get_mut(outcome) {
            *value += (count - off(count)) / total;
        }
    }
}

pub(super) fn evidence(expert: Expert, view: &View<'_>, slot: ToolIx) -> Option<String> {
    let history = view.history;
    let last = view.name(history.last()?)?;
    let (keys, verb) = match expert {
        Expert::Workflow => (
            context_keys(ContextKind::Workflow, &history.changes),
            "came next after",
        ),
        _ => (context_keys(ContextKind::After, &history.last), "followed"),
    };
    let (n, total) = view.count_and_total(*keys.first()?, slot)?;
    Some(format!("{verb} `{last}` in {n:.0} of {total:.0} cases"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::counts::{OutcomeCounts, context};

    #[test]
    fn discounted_mass_is_distributed_by_the_shorter_context() {
        let mut counts = OutcomeCounts::default();
        let key = context(ContextKind::After, &[7]);
        for (outcome, count) in [(0, 3.0), (1, 1.0), (2, 0.5)] {
            counts.add(key, outcome, count);
        }
        let node = counts.node(key).unwrap();
        let reading = NodeReading {
            node,
            scale: 1.0,
            cap: f64::INFINITY,
        };
        let mut p = [0.1, 0.2, 0.3, 0.4];
        discount(reading, &mut p);
        // 0.6, 0.6 and 0.3 of 4.5 are discounted.
        let expected = [2.4 + 0.15, 0.4 + 0.3, 0.2 + 0.45, 0.6].map(|n| n / 4.5);
        for (value, expected) in p.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{p:?}");
        }
    }
}
