//! What is called at this hour and on this weekday.

use crate::prediction::tables::times;
use crate::prediction::view::{View, fold};

/// How many calls what is expected at any time counts, for each scope.
const SMOOTHING: f64 = 20.0;

/// Returns how often tools are called, by weekday and then by hour (UTC); without a time an even
/// distribution, which says nothing.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let Some(now) = view.trail.now else {
        return view.even();
    };
    let mut p = view.frequency.clone();
    for key in times(now) {
        for node in view.nodes(key) {
            fold(node, SMOOTHING, &mut p);
        }
    }
    p
}
