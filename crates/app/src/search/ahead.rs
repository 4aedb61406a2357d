//! What is needed after what was searched for, so that it need not be searched for too.

use jiff::Timestamp;
use riglm_domain::tool::ToolRef;

use super::request::SearchCall;
use crate::learning::{Intent, NextTools, SessionView};

/// What is less likely than this to be called next is not told.
const LEAST: f64 = 0.01;
/// How many times as likely as if nothing were known a tool has to be to be told.
const TIMES_EVEN: f64 = 2.0;
/// How many tools a list has that the prediction is trusted for or not.
const LIST: usize = 20;

/// A tool that is likely to be needed.
#[derive(Debug)]
pub(super) struct Ahead {
    /// Its position in the offer.
    pub(super) position: usize,
    /// Why, in words.
    pub(super) reason: String,
}

/// Returns the tools that the session is likely to need next, at most `n`, the most likely first:
/// of those that it does not know from its list or from an answer before, without those that are
/// named already; none where nothing was learned, or too little is known of what comes next. `named` has
/// positions, ascending.
pub(super) fn ahead(
    next_tools: &NextTools,
    call: &SearchCall,
    intent: Intent<'_>,
    named: &[usize],
    (n, now): (usize, Timestamp),
) -> Vec<Ahead> {
    let offered = call.offer.tools();
    let has_unknown = (0..offered.len()).any(|at| call.is_unknown(at));
    if n == 0 || !has_unknown || !next_tools.has_learned() {
        return Vec::new();
    }
    let tools: Vec<ToolRef> = offered.iter().map(|tool| tool.tool.clone()).collect();
    let view = SessionView {
        session: call.together,
        principal: &call.principal,
        client: &call.client,
        intent: Some(intent),
        now,
    };
    let prediction = next_tools.predict(&view, &tools);
    if prediction.fallback.is_some() {
        return Vec::new();
    }
    // That nothing is told follows from the prediction, too.
    next_tools.exposed(&view);
    if prediction.confidence(LIST).is_cold_start() {
        return Vec::new();
    }
    let even = u32::try_from(prediction.ranked.len()).map_or(0.0, |n| 1.0 / f64::from(n.max(1)));
    let least = f64::max(LEAST, TIMES_EVEN * even);
    let likely = prediction.ranked.iter().filter(|tool| {
        let is_named = named.binary_search(&tool.position).is_ok();
        tool.probability >= least && call.is_unknown(tool.position) && !is_named
    });
    let positions: Vec<usize> = likely.take(n).map(|tool| tool.position).collect();
    let reasons = next_tools.explain(&view, &tools, &positions);
    (positions.into_iter().zip(reasons))
        .map(|(position, reason)| Ahead {
            position,
            reason: reason.map_or_else(String::new, |reason| reason.sentence),
        })
        .collect()
}
