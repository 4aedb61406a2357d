//! Calls that wait for input and end: answered, cancelled, lost, abandoned, or over the limit.

use std::time::Duration;

use riglm_domain::mcp::message::RequestId;
use riglm_ports::upstream::{UpstreamError, UpstreamLink as _};

use super::{ACCEPT, FORM, SHORT, parked_call};
use crate::scene::{ALL, Report, Scene};

#[tokio::test(start_paused = true)]
async fn calls_ended_while_parked_answer_the_retry() {
    let scene = Scene::new();
    let (id, state) = parked_call(&scene).await;
    scene
        .answer(&id, r#""result":{"content":[],"n":1.0}"#)
        .await;
    scene.nothing_within(SHORT).await;
    scene.retry("2", &state, "{}").await;
    let report = scene.next().await;
    assert!(
        report
            .text()
            .contains(r#""id":2,"result":{"content":[],"n":1.0,"#),
        "{report:?}"
    );
    assert_eq!(scene.n_sent("tools/call"), 1);
}

#[tokio::test(start_paused = true)]
async fn parked_calls_of_lost_connections_fail_at_the_retry() {
    let scene = Scene::new();
    let (_, state) = parked_call(&scene).await;
    scene
        .upstream
        .lose_connection(UpstreamError::NoAnswer)
        .await;
    scene.nothing_within(SHORT).await;
    scene
        .retry("2", &state, &format!(r#"{{"elicitation-1":{ACCEPT}}}"#))
        .await;
    let id = RequestId::Number("2".into());
    assert_eq!(
        scene.next().await,
        Report::Unanswered(id, UpstreamError::NoAnswer)
    );
}

#[tokio::test(start_paused = true)]
async fn a_parked_call_is_beyond_cancelling_until_its_retry_is_cancelled() {
    let scene = Scene::new();
    let (id, state) = parked_call(&scene).await;
    scene.cancel("1").await;
    assert_eq!(scene.n_sent("notifications/cancelled"), 0);
    scene
        .retry("2", &state, &format!(r#"{{"elicitation-1":{ACCEPT}}}"#))
        .await;
    scene.cancel("2").await;
    let sent = scene.sees("notifications/cancelled").await;
    assert!(
        sent.contains(&format!(r#""requestId":"{id}","reason":"no""#)),
        "{sent}"
    );
    scene.answer(&id, r#""result":{}"#).await;
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn the_question_of_a_cancelled_call_is_refused() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "roots/list", "{}").await;
    scene.cancel("1").await;
    assert!(
        scene
            .last()
            .starts_with(r#"{"jsonrpc":"2.0","id":7,"error""#)
    );
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn parked_calls_expire_without_a_retry() {
    let scene = Scene::with(ALL, |options| {
        options.state_ttl = Duration::from_mins(1);
    });
    let (id, state) = parked_call(&scene).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(scene.n_sent("notifications/cancelled"), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = scene.sent_messages();
    let [.., cancelled, refused] = sent.as_slice() else {
        panic!("{sent:?}");
    };
    assert!(
        cancelled.contains(&format!(r#"{{"requestId":"{id}"}}"#)),
        "{cancelled}"
    );
    assert!(
        refused.starts_with(r#"{"jsonrpc":"2.0","id":7,"error""#),
        "{refused}"
    );
    scene
        .retry("2", &state, &format!(r#"{{"elicitation-1":{ACCEPT}}}"#))
        .await;
    let error = scene.next().await.json()["error"].clone();
    assert_eq!(error["code"], -32602);
    assert!(error["message"].as_str().unwrap().contains("expired"));
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn calls_exceeding_the_round_limit_fail() {
    let scene = Scene::with(ALL, |options| options.max_rounds = 2);
    let (_, mut state) = parked_call(&scene).await;
    scene.retry("2", &state, r#"{"elicitation-1":{}}"#).await;
    scene.ask("8", "elicitation/create", FORM).await;
    (_, state) = scene.input_request().await;
    scene.retry("3", &state, r#"{"elicitation-2":{}}"#).await;
    scene.ask("9", "elicitation/create", FORM).await;
    let error = scene.next().await.json()["error"].clone();
    assert_eq!(error["code"], -31005);
    scene.sees("notifications/cancelled").await;
    assert!(scene.sees(r#""id":9"#).await.contains("error"));
}

#[tokio::test(start_paused = true)]
async fn parked_calls_are_limited_in_number() {
    let scene = Scene::new();
    for n in 0..256 {
        scene.call(&n.to_string()).await;
        scene.ask(&n.to_string(), "roots/list", "{}").await;
        scene.input_request().await;
    }
    scene.call("256").await;
    scene.ask("256", "roots/list", "{}").await;
    assert_eq!(scene.next().await.json()["error"]["code"], -31005);
    let id = scene.legacy_id("tools/call");
    let cancelled = scene.sees("notifications/cancelled").await;
    assert!(cancelled.contains(&id), "{cancelled}");
}

#[tokio::test(start_paused = true)]
async fn a_link_is_needed_while_a_call_waits_for_input() {
    let scene = Scene::new();
    assert!(!scene.link.is_needed());
    let (id, state) = parked_call(&scene).await;
    assert!(scene.link.is_needed());
    scene
        .retry("2", &state, &format!(r#"{{"elicitation-1":{ACCEPT}}}"#))
        .await;
    scene.answer(&id, r#""result":{}"#).await;
    scene.next().await;
    assert!(!scene.link.is_needed());
}
