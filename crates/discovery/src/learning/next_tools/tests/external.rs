//! Predictions with the scores of an external predictor.

use riglm_domain::prediction::{Engine, PredictionMethod};
use riglm_ports::external_predictor::ScoreResponse;
use riglm_ports::fake::FakeExternalPredictor;

use super::*;
use crate::learning::ExternalAdviser;

/// Returns predictions with an external predictor that replaces the mix.
fn advised() -> (NextTools, Arc<FakeExternalPredictor>) {
    let external = Arc::new(FakeExternalPredictor::default());
    let engine = Engine::new(PredictionMethod::Advice, 30.0);
    let next = NextTools::new(Box::new(FailingPredictor::of(engine)), OPTIONS);
    let adviser = ExternalAdviser {
        predictor: Arc::clone(&external) as _,
        deadline: std::time::Duration::from_millis(50),
        sends_text: false,
    };
    (next.with_external(Some(adviser)), external)
}

fn favour(name: &'static str) -> impl Fn(&ScoreRequest) -> Result<ScoreResponse, ScoreError> {
    move |request| {
        let tools = request.tools.iter();
        let scores = tools.map(|tool| f64::from(u8::from(tool.name == name)));
        Ok(ScoreResponse::new(request.id, scores.collect()))
    }
}

use riglm_ports::external_predictor::{ScoreError, ScoreRequest};

#[tokio::test(start_paused = true)]
async fn scores_count_for_the_situation_that_they_were_given_for() {
    let (next, external) = advised();
    external.answer_with(favour("write"));
    let tools = ["list", "read", "write"].map(tool);
    let principal = Principal::local();
    let view = view(&principal, connection_session(1));
    let before = next.predict(&view, &tools);
    next.consult(&view, &tools).await;
    next.consult(&view, &tools).await;
    assert_eq!(external.n_requests(), 1);
    let after = next.predict(&view, &tools);
    assert_eq!(positions(&after)[0], 2);
    assert!(after.ranked[0].probability > 0.99);
    // Another call is another situation.
    next.record_call(connection_session(1), &tool("read"), START);
    assert_ne!(positions(&next.predict(&view, &tools)), positions(&after));
    external.answer_with(favour("list"));
    next.consult(&view, &tools).await;
    assert_eq!(positions(&next.predict(&view, &tools))[0], 0);
    assert_eq!(before.fallback, None);
}

#[tokio::test(start_paused = true)]
async fn a_failing_external_predictor_is_left_alone_for_a_while() {
    let (next, external) = advised();
    external.be_late();
    let tools = ["list", "read", "write"].map(tool);
    let principal = Principal::local();
    let view = view(&principal, connection_session(1));
    for _ in 0..5 {
        next.consult(&view, &tools).await;
    }
    assert_eq!(external.n_requests(), 1);
    assert_eq!(next.predict(&view, &tools).fallback, None);
    assert_eq!(next.n_failed(), 0);
    external.answer_with(favour("write"));
    tokio::time::advance(std::time::Duration::from_secs(2)).await;
    next.consult(&view, &tools).await;
    assert_eq!(positions(&next.predict(&view, &tools))[0], 2);
    let counts = next.advice_counts().unwrap();
    assert_eq!((counts.answers, counts.failures), (1, 1));
}

#[tokio::test]
async fn a_request_has_the_session_and_the_learned_counts() {
    let external = Arc::new(FakeExternalPredictor::default());
    let adviser = ExternalAdviser {
        predictor: Arc::clone(&external) as _,
        deadline: std::time::Duration::from_secs(5),
        sends_text: true,
    };
    let next = trained_next_tools(Arc::default()).with_external(Some(adviser));
    let seen: Arc<parking_lot::Mutex<Option<ScoreRequest>>> = Arc::default();
    let seen_by_fake = Arc::clone(&seen);
    external.answer_with(move |request| {
        *seen_by_fake.lock() = Some(request.clone());
        Ok(ScoreResponse::new(
            request.id,
            vec![0.0; request.tools.len()],
        ))
    });
    let principal = Principal::local();
    next.record_call(connection_session(1), &tool("read"), START);
    let callable = ["write", "list"].map(tool);
    let intent = Intent {
        text: "write it down",
        fits: &[],
        vector: None,
    };
    let view = SessionView {
        intent: Some(intent),
        ..view(&principal, connection_session(1))
    };
    // The session calls a tool that cannot be called any more.
    next.consult(&view, &["write", "list", "read"].map(tool))
        .await;
    next.consult(&view, &callable).await;
    let request = seen.lock().take().unwrap();
    let names: Vec<&str> = request
        .tools
        .iter()
        .map(|tool| tool.name.as_str())
        .collect();
    assert_eq!(names[..2], ["write", "list"]);
    assert_eq!(request.session.text.as_deref(), Some("write it down"));
    assert_eq!(request.session.client, "client");
    assert!(request.tools[0].callable);
    let counts = request.tools[0].counts;
    assert!(counts.calls > 15.0, "{counts:?}");
}
