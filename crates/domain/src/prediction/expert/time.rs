//! The expert for time: calls at this hour and on this weekday.

use crate::prediction::tables::time_keys;
use crate::prediction::view::{View, smooth};

/// Weight of the prior (any time), in calls, for each scope.
const SMOOTHING: f64 = 20.0;

/// Returns the frequency of tools by weekday and then by hour (UTC). Without a time, returns the
/// uniform distribution, which is no evidence.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let Some(now) = view.history.now else {
        return view.uniform();
    };
    let mut p = view.frequency.clone();
    for key in time_keys(now) {
        for node in view.nodes(key) {
            smooth(node, SMOOTHING, &mut p);
        }
    }
    p
}
