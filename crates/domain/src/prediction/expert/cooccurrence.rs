//! The expert for co-occurrence: tools that are used in the same sessions.

use crate::num::to_f64;
use crate::prediction::counts::{ContextKind, context};
use crate::prediction::session_history::ToolUsage;
use crate::prediction::softmax::log_normalise;
use crate::prediction::tables::ScopeTables;
use crate::prediction::view::{View, normalise};
use crate::prediction::vocabulary::ToolIx;

/// Weight of the prior for a tool, in sessions.
const SMOOTHING: f64 = 4.0;
/// Number of tools of the session that are used as evidence, the newest ones.
const MAX_USED: usize = 16;

/// Returns the tools by `p_b prod_a (p(b later | a) / p_b)^(1 / sqrt(k))` over the `k` tools `a` of
/// the session: naive Bayes, with an exponent because the evidence of the tools is not independent.
/// `p(b later | a) = (n_ab + 4 p_b) / (n_a + 4)`, with `n_a` the sessions that used `a` and `n_ab`
/// the sessions that used `b` after it. Each scope is smoothed by the wider one.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    if view.history.used.is_empty() {
        return view.start.clone();
    }
    let mut z: Vec<f64> = view.frequency.iter().map(|p| p.ln()).collect();
    let used: Vec<&ToolUsage> = view.history.used.iter().rev().take(MAX_USED).collect();
    let exponent = 1.0 / to_f64(used.len()).sqrt();
    let mut above = vec![0.0; view.n()];
    let mut touched: Vec<usize> = Vec::new();
    for used in used {
        // p(b | a) = (above_b + below * p_b) / total
        let (mut below, mut total) = (1.0, 1.0);
        for scope in &view.scopes {
            let Some(node) = scope.node(context(ContextKind::Later, &[used.slot.0])) else {
                continue;
            };
            let share = SMOOTHING / total;
            below *= share;
            for slot in &touched {
                above[*slot] *= share;
            }
            for (slot, n) in node.each() {
                if let Some(value) = above.get_mut(slot) {
                    if *value <= 0.0 {
                        touched.push(slot);
                    }
                    *value += n;
                }
            }
            total = scope.n_sessions(used.slot) + SMOOTHING;
        }
        for slot in touched.drain(..) {
            // Relative to tools without evidence: the omitted factor is the same for all tools.
            z[slot] += exponent * (1.0 + above[slot] / (below * view.frequency[slot])).ln();
            above[slot] = 0.0;
        }
    }
    log_normalise(&mut z);
    for value in &mut z {
        *value = value.exp();
    }
    z
}

/// Returns the tools by `sum_a n_ab / n_a` over the tools `a` of the session, with `n_ab` the
/// sessions that used both in any order. Tools without co-occurrence, and all tools at the start of
/// a session, are ranked by frequency.
pub(in crate::prediction) fn cooccurrence_with_frequency(view: &View<'_>) -> Vec<f64> {
    let mut p: Vec<f64> = view.base().to_vec();
    let Some(tables) = view.scopes.last().map(|scope| scope.tables) else {
        return p;
    };
    // The frequency only ranks the tools without co-occurrence.
    if !view.history.used.is_empty() {
        for value in &mut p {
            *value *= 1e-3;
        }
    }
    for used in &view.history.used {
        for (slot, share) in shares(tables, used.slot, view.scale) {
            if let Some(value) = p.get_mut(slot) {
                *value += share;
            }
        }
    }
    normalise(&mut p);
    p
}

fn shares(tables: &ScopeTables, slot: ToolIx, scale: f64) -> impl Iterator<Item = (usize, f64)> {
    let n = tables
        .pairs
        .n_sessions(slot.0, scale)
        .max(f64::MIN_POSITIVE);
    let partners = tables.pairs.partners(slot.0, scale);
    partners.map(move |(other, both)| (other, (both / n).min(1.0)))
}

pub(super) fn evidence(view: &View<'_>, slot: ToolIx) -> Option<String> {
    let tables = view.scopes.last()?.tables;
    let pair = |used: &ToolUsage| {
        let (n, distance) = tables.pairs.pair(used.slot.0, slot.0, view.scale)?;
        let total = tables.pairs.n_sessions(used.slot.0, view.scale);
        Some((n / total.max(1.0), used.slot, n, total, distance))
    };
    let pairs = view.history.used.iter().filter(|used| used.slot != slot);
    let (_, with, n, total, distance) =
        (pairs.filter_map(pair)).max_by(|a, b| a.0.total_cmp(&b.0))?;
    let name = view.name(with)?;
    Some(format!(
        "used with `{name}` in {n:.0} of {total:.0} sessions, about {distance:.0} calls apart"
    ))
}
