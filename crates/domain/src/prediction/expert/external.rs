//! The expert of a predictor outside of the engine.

use crate::prediction::view::View;
use crate::prediction::vocabulary::ToolIx;

/// Returns the shares of the advice; without advice, the distribution that needs no evidence.
pub(super) fn distribution(view: &View<'_>) -> Vec<f64> {
    let Some(advice) = view.history.advice() else {
        return view.base().to_vec();
    };
    let mut p = vec![0.0; view.n()];
    for (tool, share) in advice.shares() {
        if let Some(value) = p.get_mut(tool.index()) {
            *value = *share;
        }
    }
    p
}

pub(super) fn evidence(view: &View<'_>, tool: ToolIx) -> Option<String> {
    let advice = view.history.advice()?;
    let reason = advice
        .reason(tool)
        .unwrap_or("the external predictor finds it likely");
    Some(reason.to_owned())
}
