//! What followed the last calls: prediction by partial matching of orders 1 to 5 (Cleary and
//! Witten 1984), interpolated with absolute discounting (Ney, Essen and Kneser 1994).

use super::Expert;
use crate::prediction::counts::{Kind, Reading};
use crate::prediction::tables::after;
use crate::prediction::view::View;
use crate::prediction::vocabulary::Slot;

/// What is taken off each count, in calls, for what the shorter context says.
const DISCOUNT: f64 = 0.6;

/// Returns what followed the last call.
pub(super) fn last_call(view: &View<'_>) -> Vec<f64> {
    backed_off(view, Kind::After, &view.trail.last, 1)
}

/// Returns what followed the last one to five calls.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    backed_off(view, Kind::After, &view.trail.last, usize::MAX)
}

/// Returns what was used for the first time after the last one to five different tools: calls of
/// the same tool in a row are one.
pub(super) fn workflow(view: &View<'_>) -> Vec<f64> {
    backed_off(view, Kind::Workflow, &view.trail.changes, usize::MAX)
}

fn backed_off(view: &View<'_>, kind: Kind, calls: &[Slot], most: usize) -> Vec<f64> {
    let mut p = view.base().to_vec();
    for key in after(kind, calls).into_iter().take(most) {
        for node in view.nodes(key) {
            discount(node, &mut p);
        }
    }
    p
}

/// Replaces `p` by `(n_t - d_t + d p_t) / n`, with `d_t = 0.6 min(n_t, 1)`, so that what aged below
/// one call keeps its sign, and `d` the sum of those: the more different things followed a context,
/// the more the shorter one counts.
fn discount(node: Reading<'_>, p: &mut [f64]) {
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

pub(super) fn evidence(expert: Expert, view: &View<'_>, slot: Slot) -> Option<String> {
    let trail = view.trail;
    let last = view.name(trail.last()?)?;
    let (keys, verb) = match expert {
        Expert::Workflow => (after(Kind::Workflow, &trail.changes), "came next after"),
        _ => (after(Kind::After, &trail.last), "followed"),
    };
    let (n, total) = view.known(*keys.first()?, slot)?;
    Some(format!("{verb} `{last}` in {n:.0} of {total:.0} cases"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::prediction::counts::{Counts, context};

    #[test]
    fn what_is_taken_off_goes_where_the_shorter_context_says() {
        let mut counts = Counts::default();
        let key = context(Kind::After, &[7]);
        for (outcome, count) in [(0, 3.0), (1, 1.0), (2, 0.5)] {
            counts.add(key, outcome, count);
        }
        let node = counts.node(key).unwrap();
        let reading = Reading {
            node,
            scale: 1.0,
            cap: f64::INFINITY,
        };
        let mut p = [0.1, 0.2, 0.3, 0.4];
        discount(reading, &mut p);
        // 0.6, 0.6 and 0.3 of 4.5 are taken off.
        let expected = [2.4 + 0.15, 0.4 + 0.3, 0.2 + 0.45, 0.6].map(|n| n / 4.5);
        for (value, expected) in p.iter().zip(expected) {
            assert!((value - expected).abs() < 1e-6, "{p:?}");
        }
    }
}
