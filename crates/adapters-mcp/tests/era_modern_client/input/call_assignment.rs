//! Assignment of a server request to a call, also if there is no call.

use std::time::Duration;

use serde_json::json;

use super::{ACCEPT, FORM, SHORT};
use crate::scene::{Scene, asking};

#[tokio::test(start_paused = true)]
async fn questions_go_to_the_related_or_newest_call() {
    let scene = Scene::new();
    scene.call("1").await;
    let first = scene.legacy_id("tools/call");
    scene.call("2").await;
    scene.request("3", "tools/list", "", "").await;
    scene
        .say_for(&first, &asking("7", "roots/list", "{}"))
        .await;
    assert_eq!(scene.next().await.related_id(), "1");
    scene.say(&asking("8", "roots/list", "{}")).await;
    assert_eq!(scene.next().await.related_id(), "2");
}

#[tokio::test(start_paused = true)]
async fn questions_prefer_running_calls_over_parked_ones() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.call("2").await;
    let newest = scene.legacy_id("tools/call");
    scene
        .say_for(&newest, &asking("7", "roots/list", "{}"))
        .await;
    assert_eq!(scene.next().await.related_id(), "2");
    scene.ask("8", "roots/list", "{}").await;
    assert_eq!(scene.next().await.related_id(), "1");
}

#[tokio::test(start_paused = true)]
async fn unanswered_input_requests_move_to_the_next_call() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "elicitation/create", FORM).await;
    scene.ask("8", "roots/list", "{}").await;
    let (_, state) = scene.input_request().await;
    let id = scene.legacy_id("tools/call");
    scene.answer(&id, r#""result":{}"#).await;
    let responses = format!(r#"{{"elicitation-1":{ACCEPT}}}"#);
    scene.retry("2", &state, &responses).await;
    assert_eq!(scene.next().await.related_id(), "2");
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"result""#).await;
    scene.call("3").await;
    let (result, _) = scene.input_request().await;
    assert_eq!(
        result["inputRequests"],
        json!({"roots-1": {"method": "roots/list", "params": {}}})
    );
}

#[tokio::test(start_paused = true)]
async fn roots_questions_after_the_handshake_wait_for_a_call() {
    let scene = Scene::new();
    scene.request("1", "tools/list", "", "").await;
    scene.ask("7", "roots/list", "{}").await;
    scene.nothing_within(SHORT).await;
    scene.call("2").await;
    let (result, state) = scene.input_request().await;
    assert_eq!(result["inputRequests"]["roots-1"]["method"], "roots/list");
    scene
        .answer(&scene.legacy_id("tools/call"), r#""result":{"content":[]}"#)
        .await;
    scene.nothing_within(SHORT).await;
    scene
        .retry("3", &state, r#"{"roots-1":{"roots":[]}}"#)
        .await;
    assert_eq!(
        scene.next().await.json()["result"]["resultType"],
        "complete"
    );
    scene
        .sees(r#"{"jsonrpc":"2.0","id":7,"result":{"roots":[]}}"#)
        .await;
}

#[tokio::test(start_paused = true)]
async fn questions_without_a_call_are_refused() {
    let scene = Scene::new();
    scene.request("1", "tools/list", "", "").await;
    scene.ask("7", "roots/list", "{}").await;
    tokio::time::sleep(Duration::from_secs(29)).await;
    assert_eq!(scene.n_sent("tools/list"), 1);
    assert!(!scene.last().contains(r#""id":7"#));
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert!(
        scene
            .last()
            .starts_with(r#"{"jsonrpc":"2.0","id":7,"error""#),
        "{}",
        scene.last()
    );
    scene.call("2").await;
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn questions_of_answered_calls_wait_for_the_next_call() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "roots/list", "{}").await;
    scene
        .answer(&scene.legacy_id("tools/call"), r#""result":{}"#)
        .await;
    assert_eq!(
        scene.next().await.json()["result"]["resultType"],
        "complete"
    );
    scene.nothing_within(SHORT).await;
    scene.call("2").await;
    let (result, _) = scene.input_request().await;
    assert_eq!(result["inputRequests"]["roots-1"]["method"], "roots/list");
}

#[tokio::test(start_paused = true)]
async fn cancelled_input_requests_are_withdrawn() {
    let scene = Scene::new();
    let back = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    scene.call("1").await;
    scene.ask("7", "roots/list", "{}").await;
    scene.say(back).await;
    scene.nothing_within(SHORT).await;
    scene.ask("7", "roots/list", "{}").await;
    let (_, state) = scene.input_request().await;
    scene.say(back).await;
    scene
        .retry("2", &state, r#"{"roots-1":{"roots":[]}}"#)
        .await;
    scene.nothing_within(SHORT).await;
    assert!(
        !scene
            .sent_messages()
            .iter()
            .any(|text| text.contains(r#""id":7"#))
    );
    scene
        .answer(&scene.legacy_id("tools/call"), r#""result":{}"#)
        .await;
    assert_eq!(scene.next().await.related_id(), "2");
}
