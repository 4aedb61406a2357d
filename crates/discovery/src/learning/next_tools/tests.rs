use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use riglm_domain::id::{InvocationId, SessionId, UpstreamName};
use riglm_domain::prediction::ConfidenceBand;
use riglm_domain::usage::invocation::{Outcome, PastCall};
use riglm_ports::fake::FailingPredictor;

use super::*;

const START: Timestamp = Timestamp::constant(1_800_000_000, 0);

const OPTIONS: NextToolsOptions = NextToolsOptions {
    measure: ConfidenceMeasure::Mass,
    bands: ConfidenceBands::MASS,
    shows_all: false,
};

fn tool(name: &str) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse("notes").unwrap(),
        tool: name.into(),
    }
}

fn session(n: u8) -> SessionId {
    SessionId::new(START, [n; 10])
}

/// Returns predictions where `write` always follows `read`.
fn trained_next_tools(is_failing: Arc<AtomicBool>) -> NextTools {
    let next = NextTools::new(Box::new(FailingPredictor::new(is_failing)), OPTIONS);
    let mut learner = next.learner().write();
    learner.add_known_tools(&["list", "read", "write"].map(tool));
    for n in 0..40_u8 {
        let ToolRef { upstream, tool } = tool(["read", "write"][usize::from(n % 2)]);
        let started_at = START - jiff::SignedDuration::from_secs(300 - i64::from(n));
        learner.learn_call(
            &PastCall {
                id: InvocationId::new(started_at, [n; 10]),
                session: session(200),
                work_session: None,
                principal: Principal::local(),
                client: Some("client".into()),
                upstream,
                tool,
                started_at,
                continues: None,
                context: None,
                outcome: Some(Outcome::Ok),
            },
            None,
            START,
        );
    }
    drop(learner);
    next
}

fn connection_session(n: u8) -> SessionKey {
    SessionKey::Connection(session(n))
}

fn view(principal: &Principal, session: SessionKey) -> SessionView<'_> {
    SessionView {
        session,
        principal,
        client: "client",
        intent: None,
        now: START,
    }
}

fn positions(prediction: &Prediction) -> Vec<usize> {
    prediction.ranked.iter().map(|it| it.position).collect()
}

#[test]
fn a_call_affects_the_next_prediction_at_once() {
    let next = trained_next_tools(Arc::default());
    let principal = Principal::local();
    let tools = ["write", "list", "read"].map(tool);
    next.record_call(connection_session(1), &tool("read"), START);
    let after_read = next.predict(&view(&principal, connection_session(1)), &tools);
    assert_eq!(positions(&after_read)[0], 0);
    next.record_call(connection_session(1), &tool("write"), START);
    let after_write = next.predict(&view(&principal, connection_session(1)), &tools);
    assert_eq!(positions(&after_write)[0], 2);
    assert_eq!(after_write.fallback, None);
    assert!((after_write.confidence(3).value - 1.0).abs() < 1e-9);
    assert_eq!(after_write.confidence(0).band, ConfidenceBand::ShowAll);
    // A session without calls in this process continues with its history from the store.
    let known = next.predict(&view(&principal, connection_session(200)), &tools);
    assert_eq!(positions(&known), positions(&after_write));
}

#[test]
fn a_found_tool_counts_as_called_in_its_answer_alone() {
    let next = trained_next_tools(Arc::default());
    let principal = Principal::local();
    let tools = ["write", "list", "read"].map(tool);
    let session = connection_session(1);
    next.record_call(session, &tool("write"), START);
    let found = |at| next.predict_after(&view(&principal, session), &tools, at);
    assert_eq!(positions(&found(Some(2)))[0], 0);
    assert_eq!(positions(&found(Some(0)))[0], 2);
    // A position outside the catalog is no tool.
    assert_eq!(found(Some(9)), found(None));
    // The search is no call.
    let after = next.predict(&view(&principal, session), &tools);
    assert_eq!(after, found(None));
    // This predictor predicts nothing but the next call.
    assert_eq!(after.later, after.ranked);
}

#[test]
fn only_requested_tools_are_predicted_including_new_ones() {
    let next = trained_next_tools(Arc::default());
    let principal = Principal::local();
    let tools = ["brand_new", "read", "brand_new"].map(tool);
    let prediction = next.predict(&view(&principal, connection_session(1)), &tools);
    let mut found = positions(&prediction);
    found.sort_unstable();
    assert_eq!(found, [0, 1]);
    let sum: f64 = prediction.ranked.iter().map(|it| it.probability).sum();
    assert!((sum - 1.0).abs() < 1e-9);
    let why = next.explain(&view(&principal, connection_session(1)), &tools, &[1, 9]);
    assert!(why[0].is_some() && why[1].is_none());
    let none = next.predict(&view(&principal, connection_session(1)), &[]);
    assert!(none.ranked.is_empty() && none.confidence(5).value.abs() < 1e-9);
}

#[test]
fn a_failed_prediction_falls_back_and_is_counted() {
    let is_failing: Arc<AtomicBool> = Arc::default();
    let next = trained_next_tools(Arc::clone(&is_failing));
    let principal = Principal::local();
    let tools = ["write", "list", "read"].map(tool);
    is_failing.store(true, Ordering::SeqCst);
    for n in 1..=2 {
        let prediction = next.predict(&view(&principal, connection_session(1)), &tools);
        assert_eq!(prediction.fallback, Some(Fallback::Failed));
        assert_eq!(positions(&prediction), [0, 1, 2]);
        assert_eq!(prediction.confidence(3).band, ConfidenceBand::ShowAll);
        assert_eq!(next.n_failed(), n);
    }
    let why = next.explain(&view(&principal, connection_session(1)), &tools, &[0]);
    assert_eq!((why, next.n_failed()), (vec![None], 3));
    is_failing.store(false, Ordering::SeqCst);
    let again = next.predict(&view(&principal, connection_session(1)), &tools);
    assert_eq!(again.fallback, None);
}

#[test]
fn predictions_use_the_current_options() {
    let next = trained_next_tools(Arc::default());
    let tools = ["list", "read", "write"].map(tool);
    let principal = Principal::local();
    let view = SessionView {
        session: connection_session(1),
        principal: &principal,
        client: "client",
        intent: None,
        now: START,
    };
    let band = || next.predict(&view, &tools).confidence(3).band;
    assert_eq!(band(), ConfidenceBand::Filter);
    assert!(!next.set_options(OPTIONS));
    let strict = NextToolsOptions {
        bands: ConfidenceBands {
            show_all_below: 2.0,
            search_prominent_below: 2.0,
        },
        ..OPTIONS
    };
    assert!(next.set_options(strict));
    assert_eq!(band(), ConfidenceBand::ShowAll);
}

mod arms;
mod external;
