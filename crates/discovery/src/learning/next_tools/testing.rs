//! Predictions for tests of code that uses them.

#![expect(
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "a fixture that cannot be made fails its test"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::usage::invocation::{Outcome, PastCall};
use riglm_ports::fake::FailingPredictor;

use super::{
    ConfidenceBands, ConfidenceMeasure, NextTools, NextToolsOptions, Principal, Timestamp, ToolRef,
};

/// Returns predictions trained with these sessions of the local principal. Each is an hour after
/// the one before, and the last one an hour before `now`. They fail while `is_failing` is set.
pub fn trained_next_tools(
    sessions: &[Vec<ToolRef>],
    now: Timestamp,
    is_failing: Arc<AtomicBool>,
) -> NextTools {
    let options = NextToolsOptions {
        measure: ConfidenceMeasure::Mass,
        bands: ConfidenceBands::MASS,
        shows_all: false,
    };
    let next = NextTools::new(Box::new(FailingPredictor::new(is_failing)), options);
    let mut learner = next.learner().write();
    let mut known: Vec<ToolRef> = sessions.iter().flatten().cloned().collect();
    known.sort();
    known.dedup();
    learner.add_known_tools(&known);
    let n_sessions = i64::try_from(sessions.len()).unwrap();
    for (number, session) in (0_i64..).zip(sessions) {
        let began = now - jiff::SignedDuration::from_hours(n_sessions - number);
        for (n, tool) in (0_u8..).zip(session) {
            let at = began + jiff::SignedDuration::from_secs(i64::from(n));
            let call = PastCall {
                id: InvocationId::new(at, [n; 10]),
                session: SessionId::new(began, [0; 10]),
                work_session: None,
                principal: Principal::local(),
                client: Some("client".into()),
                upstream: tool.upstream.clone(),
                tool: tool.tool.clone(),
                started_at: at,
                continues: None,
                context: None,
                outcome: Some(Outcome::Ok),
            };
            learner.learn_call(&call, None, at);
        }
    }
    drop(learner);
    next.set_ready();
    next
}
