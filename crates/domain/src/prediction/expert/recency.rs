//! The expert for recency: recent calls in the session.

use crate::prediction::session_history::SessionHistory;
use crate::prediction::view::{View, normalise};
use crate::prediction::vocabulary::ToolIx;

/// Share of the distribution that follows the frequency of calls, for tools that the session has
/// not used.
const REST: f64 = 0.03;

/// Returns the used tools by the sum of `0.7^age` over their calls; ages are in calls.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let history: &SessionHistory = view.history;
    if history.used.is_empty() {
        return view.start.clone();
    }
    let mut p = vec![0.0; view.n()];
    for used in &history.used {
        if let Some(value) = p.get_mut(used.slot.index()) {
            *value = history.recency(used);
        }
    }
    normalise(&mut p);
    for (value, frequency) in p.iter_mut().zip(&view.frequency) {
        *value = (1.0 - REST) * *value + REST * frequency;
    }
    p
}

pub(super) fn evidence(view: &View<'_>, slot: ToolIx) -> Option<String> {
    let used = view.history.used.iter().find(|used| used.slot == slot)?;
    let ago = view.history.n_calls().saturating_sub(used.last_call);
    Some(match ago {
        0 | 1 => "was the last call".into(),
        ago => format!("was called {ago} calls ago"),
    })
}
