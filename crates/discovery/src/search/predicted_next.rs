//! Prediction of the tools that a session needs after a search, so that it does not have to search
//! again for them.

use jiff::Timestamp;
use riglm_domain::catalog::tool::ToolRef;

use super::request::SearchRequest;
use crate::learning::{Intent, NextTools, SessionView};

/// The list size at which the confidence of a prediction is measured.
const CONFIDENCE_LIST_SIZE: usize = 20;

#[derive(Debug)]
pub(super) struct PredictedNext {
    /// Position in the catalog.
    pub(super) position: usize,
    pub(super) reason: String,
}

/// Asks the external predictor, if there is one, about the tools that the session needs next.
pub(super) async fn consult_next(
    next_tools: &NextTools,
    call: &SearchRequest,
    intent: Intent<'_>,
    now: Timestamp,
) {
    if may_predict(next_tools, call) {
        next_tools
            .consult(&view(call, intent, now), &refs(call))
            .await;
    }
}

/// Returns whether the session lacks a tool that could be predicted.
fn may_predict(next_tools: &NextTools, call: &SearchRequest) -> bool {
    let n_tools = call.catalog.tools().len();
    next_tools.has_learned(&call.principal) && (0..n_tools).any(|at| call.is_unknown(at))
}

fn refs(call: &SearchRequest) -> Vec<ToolRef> {
    let tools = call.catalog.tools().iter();
    tools.map(|tool| tool.tool.clone()).collect()
}

fn view<'a>(call: &'a SearchRequest, intent: Intent<'a>, now: Timestamp) -> SessionView<'a> {
    SessionView {
        session: call.session_key,
        principal: &call.principal,
        client: &call.client,
        intent: Some(intent),
        now,
    }
}

/// The tools that a search found, by their catalog positions.
#[derive(Clone, Copy, Debug)]
pub(super) struct FoundPositions<'a> {
    /// The best one, if it is a certain match. The session is assumed to call it next.
    pub(super) best: Option<usize>,
    /// All of them, and their duplicates, ascending.
    pub(super) named: &'a [usize],
}

/// Returns at most `n` tools that the session is likely to use after the found one, the most likely
/// first. Leaves out tools that the session knows from its list or from an earlier answer, the
/// found tools, and tools below the mean probability of the catalog. Returns no tools if the
/// predictor has learned nothing, or if the prediction is a fallback or a cold start.
pub(super) fn predict_next(
    next_tools: &NextTools,
    call: &SearchRequest,
    intent: Intent<'_>,
    found: FoundPositions<'_>,
    n: usize,
    now: Timestamp,
) -> Vec<PredictedNext> {
    if n == 0 || !may_predict(next_tools, call) {
        return Vec::new();
    }
    let tools = refs(call);
    let view = view(call, intent, now);
    let prediction = next_tools.predict_after(&view, &tools, found.best);
    if prediction.fallback.is_some() {
        return Vec::new();
    }
    // An answer without predicted tools is also a result of the prediction, so it counts as an
    // exposure.
    next_tools.record_exposure(&view);
    if prediction.confidence(CONFIDENCE_LIST_SIZE).is_cold_start() {
        return Vec::new();
    }
    let mean = u32::try_from(prediction.later.len()).map_or(0.0, |n| 1.0 / f64::from(n.max(1)));
    let likely = prediction.later.iter().filter(|tool| {
        let is_named = found.named.binary_search(&tool.position).is_ok();
        tool.probability >= mean && call.is_unknown(tool.position) && !is_named
    });
    let positions: Vec<usize> = likely.take(n).map(|tool| tool.position).collect();
    let reasons = next_tools.explain(&view, &tools, &positions);
    (positions.into_iter().zip(reasons))
        .map(|(position, reason)| PredictedNext {
            position,
            reason: reason.map_or_else(String::new, |reason| reason.sentence().to_owned()),
        })
        .collect()
}
