//! Rounds of a call: requests for input, responses, and concurrent traffic.

use serde_json::json;

use super::{ACCEPT, FORM, SHORT, parked_call};
use crate::scene::{INFO, Scene};

#[tokio::test(start_paused = true)]
async fn elicitations_reach_the_client_and_continue_the_call() {
    let scene = Scene::new();
    scene.call("1").await;
    let id = scene.legacy_id("tools/call");
    scene.ask("7", "elicitation/create", FORM).await;
    let report = scene.next().await;
    assert_eq!(report.related_id(), "1");
    let state = report.json()["result"]["requestState"].to_string();
    assert_eq!(
        report.text(),
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"result":{{"resultType":"input_required","inputRequests":{{"elicitation-1":{{"method":"elicitation/create","params":{FORM}}}}},"requestState":{state},"_meta":{{"io.modelcontextprotocol/serverInfo":{INFO}}}}}}}"#
        )
    );
    let responses = format!(r#"{{"x":{{}},"elicitation-1":{ACCEPT}}}"#);
    scene.retry("2", state.trim_matches('"'), &responses).await;
    let reply = format!(r#"{{"jsonrpc":"2.0","id":7,"result":{ACCEPT}}}"#);
    assert_eq!(scene.sees(r#""id":7"#).await, reply);
    scene.nothing_within(SHORT).await;
    scene.answer(&id, r#""result":{"content":[]}"#).await;
    let done = scene.next().await;
    assert_eq!(
        (done.json()["id"].clone(), done.related_id()),
        (json!(2), "2".into())
    );
    assert_eq!(done.json()["result"]["resultType"], "complete");
    assert_eq!(scene.n_sent("tools/call"), 1);
}

#[tokio::test(start_paused = true)]
async fn questions_at_the_same_time_go_into_one_answer() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "elicitation/create", FORM).await;
    scene
        .ask(r#""s""#, "sampling/createMessage", r#"{"maxTokens":1.0}"#)
        .await;
    let (result, state) = scene.input_request().await;
    assert_eq!(
        result["inputRequests"],
        json!({
            "elicitation-1": {"method": "elicitation/create", "params": {"message": "who?", "requestedSchema": {"n": 1.0}}},
            "sampling-2": {"method": "sampling/createMessage", "params": {"maxTokens": 1.0}},
        })
    );
    let responses = format!(r#"{{"elicitation-1":{ACCEPT},"sampling-2":{{"role":"assistant"}}}}"#);
    scene.retry("2", &state, &responses).await;
    scene
        .sees(r#"{"jsonrpc":"2.0","id":"s","result":{"role":"assistant"}}"#)
        .await;
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"#).await;
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn later_questions_wait_for_the_next_round() {
    let scene = Scene::new();
    let (id, first) = parked_call(&scene).await;
    scene.ask("8", "roots/list", "{}").await;
    scene.nothing_within(SHORT).await;
    scene
        .retry("2", &first, &format!(r#"{{"elicitation-1":{ACCEPT}}}"#))
        .await;
    let (result, second) = scene.input_request().await;
    assert_eq!(
        result["inputRequests"],
        json!({"roots-2": {"method": "roots/list", "params": {}}})
    );
    assert_ne!(first, second);
    scene
        .retry("3", &second, r#"{"roots-2":{"roots":[]}}"#)
        .await;
    scene
        .sees(r#"{"jsonrpc":"2.0","id":8,"result":{"roots":[]}}"#)
        .await;
    scene.answer(&id, r#""result":{}"#).await;
    assert_eq!(scene.next().await.related_id(), "3");
}

#[tokio::test(start_paused = true)]
async fn missing_inputs_are_requested_again() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "elicitation/create", FORM).await;
    scene.ask("8", "roots/list", "{}").await;
    let (_, state) = scene.input_request().await;
    let responses = format!(r#"{{"elicitation-1":{ACCEPT},"roots-2":null}}"#);
    scene.retry("2", &state, &responses).await;
    let (result, again) = scene.input_request().await;
    assert_eq!(
        result["inputRequests"],
        json!({"roots-2": {"method": "roots/list", "params": {}}})
    );
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"#).await;
    scene
        .retry("3", &again, r#"{"roots-2":{"roots":[]}}"#)
        .await;
    scene.sees(r#"{"jsonrpc":"2.0","id":8,"#).await;
    let replies = scene.sent_messages();
    let n_replies = replies
        .iter()
        .filter(|text| text.contains(r#""id":7,"result""#))
        .count();
    assert_eq!(n_replies, 1);
}

#[tokio::test(start_paused = true)]
async fn progress_follows_the_call_to_its_retry() {
    let scene = Scene::new();
    let call = r#""name":"t","arguments":{}"#;
    scene
        .request("1", "tools/call", call, r#","progressToken":"p""#)
        .await;
    scene.ask("7", "roots/list", "{}").await;
    let (_, state) = scene.input_request().await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progress":1.0,"progressToken":"p"}}"#;
    scene.say(progress).await;
    scene.nothing_within(SHORT).await;
    let retry = format!(r#"{call},"requestState":"{state}","inputResponses":{{"roots-1":{{}}}}"#);
    scene
        .request("2", "tools/call", &retry, r#","progressToken":9"#)
        .await;
    scene.say(progress).await;
    let report = scene.next().await;
    assert_eq!(report.text(), progress.replace(r#""p""#, "9"));
    assert_eq!(report.related_id(), "2");
}

#[tokio::test(start_paused = true)]
async fn progress_tokens_of_parked_calls_are_not_reused() {
    let scene = Scene::new();
    let token = r#","progressToken":"p""#;
    scene
        .request("1", "tools/call", r#""name":"t""#, token)
        .await;
    scene.ask("7", "roots/list", "{}").await;
    scene.input_request().await;
    scene
        .request("2", "tools/call", r#""name":"u""#, token)
        .await;
    let sent: serde_json::Value = serde_json::from_str(&scene.last()).unwrap();
    let own = sent["params"]["_meta"]["progressToken"]
        .as_str()
        .unwrap()
        .to_owned();
    assert_ne!(own, "p");
    let progress = |token: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":"{token}"}}}}"#
        )
    };
    scene.say(&progress("p")).await;
    scene.say(&progress(&own)).await;
    let report = scene.next().await;
    assert_eq!(
        (report.text(), report.related_id()),
        (progress("p").as_str(), "2".into())
    );
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn unsupported_requests_of_the_server_are_refused() {
    let scene = Scene::with(r#"{"roots":{},"sampling":null}"#, |_| {});
    scene.call("1").await;
    for method in ["elicitation/create", "sampling/createMessage", "tasks/get"] {
        scene.ask(r#""q""#, method, "{}").await;
        let text = format!("the client does not support {method}");
        let refusal = scene.sees(&text).await;
        let expected = r#"{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"#;
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    scene.nothing_within(SHORT).await;
}
