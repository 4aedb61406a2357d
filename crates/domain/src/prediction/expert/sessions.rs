//! The experts for sessions: tools of earlier sessions that are similar to this one.

use crate::prediction::memory::PrincipalMemory;
use crate::prediction::session_history::SessionHistory;
use crate::prediction::view::{View, normalise};

/// Share of the distribution that follows the frequency of calls, for tools in no such session.
const REST: f64 = 0.05;

type AddFromMemory = fn(&PrincipalMemory, &SessionHistory, &[f64], &mut [f64]) -> bool;

/// Returns the tools of the sessions in which the tools of this one are likely.
pub(super) fn similar(view: &View<'_>) -> Vec<f64> {
    from_memory(view, PrincipalMemory::add_similar)
}

/// Returns the tools that came next in sessions with a similar course.
pub(super) fn next(view: &View<'_>) -> Vec<f64> {
    from_memory(view, PrincipalMemory::add_following)
}

fn from_memory(view: &View<'_>, adds: AddFromMemory) -> Vec<f64> {
    let mut p = vec![0.0; view.n()];
    let is_known = !view.history.used.is_empty()
        && (view.memory).is_some_and(|memory| adds(memory, view.history, &view.frequency, &mut p));
    if !is_known {
        return view.base().to_vec();
    }
    normalise(&mut p);
    for (value, frequency) in p.iter_mut().zip(&view.frequency) {
        *value = (1.0 - REST) * *value + REST * frequency;
    }
    p
}
