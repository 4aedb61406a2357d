//! What was called lately in the session.

use crate::prediction::trail::Trail;
use crate::prediction::view::{View, normalise};
use crate::prediction::vocabulary::Slot;

/// The share of what is left to tools that the session did not use.
const REST: f64 = 0.03;

/// Returns the used tools by the sum of `0.7^age` over their calls, ages in calls.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let trail: &Trail = view.trail;
    if trail.used.is_empty() {
        return view.start.clone();
    }
    let mut p = vec![0.0; view.n()];
    for used in &trail.used {
        if let Some(value) = p.get_mut(used.slot.index()) {
            *value = trail.recency(used);
        }
    }
    normalise(&mut p);
    for (value, frequency) in p.iter_mut().zip(&view.frequency) {
        *value = (1.0 - REST) * *value + REST * frequency;
    }
    p
}

pub(super) fn evidence(view: &View<'_>, slot: Slot) -> Option<String> {
    let used = view.trail.used.iter().find(|used| used.slot == slot)?;
    let ago = view.trail.n_calls().saturating_sub(used.last_call);
    Some(match ago {
        0 | 1 => "was the last call".into(),
        ago => format!("was called {ago} calls ago"),
    })
}
