//! What followed the last calls: prediction by partial matching of orders 1 to 3 (Cleary and
//! Witten 1984) with the back-off of Witten and Bell (1991, method C).

use super::Expert;
use crate::prediction::counts::Kind;
use crate::prediction::tables::after;
use crate::prediction::view::View;
use crate::prediction::vocabulary::Slot;

/// Returns what followed the last call.
pub(super) fn last_call(view: &View<'_>) -> Vec<f64> {
    backed_off(view, Kind::After, &view.trail.last, 1)
}

/// Returns what followed the last one to three calls.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    backed_off(view, Kind::After, &view.trail.last, usize::MAX)
}

/// Returns what was used for the first time after the last one to three different tools: calls of
/// the same tool in a row are one.
pub(super) fn workflow(view: &View<'_>) -> Vec<f64> {
    backed_off(view, Kind::Workflow, &view.trail.changes, usize::MAX)
}

fn backed_off(view: &View<'_>, kind: Kind, calls: &[Slot], most: usize) -> Vec<f64> {
    let mut p = view.base().to_vec();
    for key in after(kind, calls).into_iter().take(most) {
        view.witten_bell(key, &mut p);
    }
    p
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
