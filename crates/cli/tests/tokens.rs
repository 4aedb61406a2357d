//! The tokens of calls, counted with the vocabulary in the program.

use std::sync::Arc;

use riglm_adapters_prediction::O200kTokenCounter;
use riglm_app::clock::SystemClock;
use riglm_app::tracking::{CallDetails, CallTimes, Recorder, RecorderOptions};
use riglm_domain::id::{RunId, SessionId, UpstreamName};
use riglm_domain::privacy::canonical::KeyedHasher;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::{InvocationSummary, Outcome, TokenSize, ToolSource};
use riglm_ports::analytics::{InvocationFilter, InvocationRepository};
use riglm_ports::clock::Clock;
use riglm_ports::fake::MemoryStore;

/// Records one call and returns its final row.
async fn record_call(arguments: Option<&str>, result: Option<&str>) -> InvocationSummary {
    let store = Arc::new(MemoryStore::default());
    let now = SystemClock.now();
    let recorder = Recorder::new(
        store.clone(),
        KeyedHasher::new(&[0; 32]),
        Arc::new(SystemClock),
        RunId::new(now, [0; 10]),
        RecorderOptions::default(),
    );
    let recorder = recorder
        .with_token_counter(Arc::new(O200kTokenCounter))
        .expect("there is a thread to be had");
    let details = CallDetails {
        continues: None,
        session: SessionId::new(now, [0; 10]),
        principal: &Principal::local(),
        upstream: &UpstreamName::parse("notes").expect("it is a name"),
        tool: "add_note".into(),
        arguments,
        started_at: now,
        sequence: 1,
        source: ToolSource::Shown,
        context: None,
        work_session: None,
        list_epoch: None,
        request_bytes: 100,
    };
    let id = recorder.call_opened(details).await.expect("it is recorded");
    let response = (40, result);
    recorder
        .call_closed(id, Outcome::Ok, CallTimes::default(), response)
        .await;
    recorder.close().await;
    let filter = InvocationFilter::default();
    let mut calls = store.invocations(&filter, 1).await.expect("it can be read");
    calls.remove(0)
}

#[tokio::test]
async fn small_texts_are_counted_exactly() {
    let arguments = r#"{"path":"src/main.rs","limit":100}"#;
    let call = record_call(Some(arguments), Some("hello world")).await;
    assert_eq!(call.request_size(), TokenSize::Counted(11));
    assert_eq!(call.response_size(), TokenSize::Counted(2));
}

#[tokio::test]
async fn a_call_without_arguments_has_a_request_of_no_tokens() {
    let call = record_call(None, None).await;
    assert_eq!(call.request_size(), TokenSize::Counted(0));
    assert_eq!(call.response_size(), TokenSize::Estimated(10));
}

#[tokio::test]
async fn large_texts_are_estimated() {
    let result = "x".repeat((16 << 10) + 1);
    let call = record_call(Some("{}"), Some(&result)).await;
    assert_eq!(call.request_size(), TokenSize::Counted(1));
    assert_eq!(call.response_size(), TokenSize::Estimated(10));
}
