//! What was used after similar texts (k nearest neighbours).

use crate::prediction::view::{View, normalise};

/// The share of what is left to the tools that were used after none of them.
const REST: f64 = 0.05;

/// Returns the tools of the nearest earlier texts; without a text, or where none is near, an even
/// distribution, which says nothing.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let mut p = vec![0.0; view.n()];
    let text = view.trail.text();
    let is_known =
        text.is_some_and(|text| (view.memory).is_some_and(|memory| memory.nearest(text, &mut p)));
    if !is_known {
        return view.even();
    }
    normalise(&mut p);
    for (value, frequency) in p.iter_mut().zip(&view.frequency) {
        *value = (1.0 - REST) * *value + REST * frequency;
    }
    p
}
