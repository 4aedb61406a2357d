//! What was used in earlier sessions that are like this one.

use crate::prediction::memory::Memory;
use crate::prediction::trail::Trail;
use crate::prediction::view::{View, normalise};

/// The share of what is left to the tools of no such session.
const REST: f64 = 0.05;

type Adds = fn(&Memory, &Trail, &[f64], &mut [f64]) -> bool;

/// Returns the tools of the sessions that make those of this one likely.
pub(super) fn similar(view: &View<'_>) -> Vec<f64> {
    from_memory(view, Memory::similar)
}

/// Returns the tools that came next in sessions that went like this one.
pub(super) fn next(view: &View<'_>) -> Vec<f64> {
    from_memory(view, Memory::following)
}

fn from_memory(view: &View<'_>, adds: Adds) -> Vec<f64> {
    let mut p = vec![0.0; view.n()];
    let is_known = !view.trail.used.is_empty()
        && (view.memory).is_some_and(|memory| adds(memory, view.trail, &view.frequency, &mut p));
    if !is_known {
        return view.base().to_vec();
    }
    normalise(&mut p);
    for (value, frequency) in p.iter_mut().zip(&view.frequency) {
        *value = (1.0 - REST) * *value + REST * frequency;
    }
    p
}
