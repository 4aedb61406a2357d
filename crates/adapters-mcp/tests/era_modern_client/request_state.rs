//! Invalid and expired request states.

use std::time::Duration;

use serde_json::Value;

use crate::scene::Scene;

/// Makes a call wait for input, and returns its state.
async fn parked_state(scene: &Scene) -> String {
    scene.call("1").await;
    scene.ask("7", "roots/list", "{}").await;
    scene.input_request().await.1
}

/// Asserts that the next report refuses a state for this reason.
async fn assert_refused(scene: &Scene, id: u32, reason: &str) {
    let report: Value = scene.next().await.json();
    assert_eq!(
        (&report["id"], &report["error"]["code"]),
        (&id.into(), &(-32602).into())
    );
    let message = report["error"]["message"].as_str().unwrap();
    assert!(message.contains(reason), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_forged_state_is_refused_and_the_call_stays_parked() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    let (payload, seal) = state.split_once('.').unwrap();
    let changed: String = payload.chars().rev().collect();
    for forged in ["", "x", payload, &format!("{changed}.{seal}")] {
        scene.retry("2", forged, "{}").await;
        assert_refused(&scene, 2, "forged").await;
    }
    let number = r#""name":"t","arguments":{"a":1.0},"requestState":5"#;
    scene.request("2", "tools/call", number, "").await;
    assert_refused(&scene, 2, "forged").await;
    scene.retry("3", &state, r#"{"roots-1":{}}"#).await;
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
}

#[tokio::test(start_paused = true)]
async fn request_states_are_valid_for_one_retry() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    scene.retry("2", &state, r#"{"roots-1":{}}"#).await;
    scene.retry("3", &state, r#"{"roots-1":{}}"#).await;
    assert_refused(&scene, 3, "already used").await;
    scene
        .answer(&scene.legacy_id("tools/call"), r#""result":{}"#)
        .await;
    assert_eq!(scene.next().await.related_id(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_state_of_another_caller_is_refused() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    let other = scene.of_principal("you");
    other.retry("2", &state, r#"{"roots-1":{}}"#).await;
    assert_refused(&other, 2, "another caller").await;
}

#[tokio::test(start_paused = true)]
async fn states_of_calls_parked_before_a_restart_are_unknown() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    let restarted = scene.of_principal("me");
    restarted.retry("2", &state, r#"{"roots-1":{}}"#).await;
    assert_refused(&restarted, 2, "is unknown, expired").await;
    assert_eq!(scene.upstream.connections().0, 1);
}

#[tokio::test(start_paused = true)]
async fn a_state_of_another_request_is_refused() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    for (method, params) in [
        ("tools/call", r#""name":"u","arguments":{"a":1.0}"#),
        ("tools/call", r#""name":"t","arguments":{"a":2}"#),
        ("tools/call", r#""name":"t""#),
        ("prompts/get", r#""name":"t","arguments":{"a":1.0}"#),
    ] {
        let params = format!(r#"{params},"requestState":"{state}""#);
        scene.request("2", method, &params, "").await;
        assert_refused(&scene, 2, "another request").await;
    }
    let same = format!(
        r#""arguments":{{"a":1}},"name":"\u0074","requestState":"{state}","inputResponses":{{"roots-1":{{}}}}"#
    );
    scene.request("3", "tools/call", &same, "").await;
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
}

#[tokio::test(start_paused = true)]
async fn retries_with_fewer_capabilities_are_refused() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    let params = format!(
        r#""name":"t","arguments":{{"a":1.0}},"requestState":"{state}","inputResponses":{{"roots-1":{{}}}}"#
    );
    scene
        .request_as(r#"{"roots":{}}"#, "2", "tools/call", &params, "")
        .await;
    assert_refused(&scene, 2, "capabilities must not change").await;
    // The call still waits for its client.
    scene.retry("3", &state, r#"{"roots-1":{}}"#).await;
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#).await;
}

#[tokio::test(start_paused = true)]
async fn a_state_expires() {
    let scene = Scene::new();
    let state = parked_state(&scene).await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    scene.retry("2", &state, r#"{"roots-1":{}}"#).await;
    assert_refused(&scene, 2, "has expired").await;
}

#[tokio::test(start_paused = true)]
async fn the_key_is_not_printed() {
    let options = riglm_adapters_mcp::upstream::era::BridgeOptions::new([77; 32]);
    let printed = format!("{options:?} {:?}", Scene::new().link);
    assert!(
        !printed.contains("77") && printed.contains("max_rounds: 16"),
        "{printed}"
    );
}
