//! The expert for texts: tools that were used after similar texts (k nearest neighbours).

use crate::prediction::view::{View, normalise};

/// Share of the distribution that follows the frequency of calls, for tools used after none of the
/// texts.
const REST: f64 = 0.05;

/// Returns the tools of the nearest earlier texts. Without a text, or without a near one, returns
/// the uniform distribution, which is no evidence.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let mut p = vec![0.0; view.n()];
    let text = view.history.text();
    let is_known = text
        .is_some_and(|text| (view.memory).is_some_and(|memory| memory.add_nearest(text, &mut p)));
    if !is_known {
        return view.uniform();
    }
    normalise(&mut p);
    for (value, frequency) in p.iter_mut().zip(&view.frequency) {
        *value = (1.0 - REST) * *value + REST * frequency;
    }
    p
}
