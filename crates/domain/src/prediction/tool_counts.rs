//! The learned counts of a tool, for predictors outside of the engine.

use serde::{Deserialize, Serialize};

use super::counts::{ContextKind, context};
use super::tables::context_keys;
use super::view::View;
use super::vocabulary::ToolIx;

/// The learned counts of one tool in the situation of a session. Counts decay with the half-life of
/// the learned data, so they are not integers. Each is the largest count over the scopes that a
/// prediction for the client reads: its own, those of its kind, and those of all.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ToolCounts {
    /// Number of calls.
    pub calls: f64,
    /// Number of sessions that called the tool first.
    pub first_calls: f64,
    /// Number of calls right after the last call of the session; 0 before the first call.
    pub after_last: f64,
    /// Number of calls right after the last two calls of the session. With one call so far, the number
    /// of calls right after it as the first call of a session; 0 before the first call.
    pub after_last_two: f64,
}

impl ToolCounts {
    /// Returns the counts of a tool.
    pub(super) fn of(view: &View<'_>, tool: ToolIx) -> Self {
        let count = |key: u64| {
            let nodes = view.nodes(key);
            nodes.map(|node| node.count(tool.0)).fold(0.0, f64::max)
        };
        let after = context_keys(ContextKind::After, &view.history.last);
        let after = |order: usize| after.get(order).map_or(0.0, |key| count(*key));
        Self {
            calls: count(context(ContextKind::Call, &[])),
            first_calls: count(context(ContextKind::First, &[])),
            after_last: after(0),
            after_last_two: after(1),
        }
    }
}
