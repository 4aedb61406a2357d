//! What a legacy server asks during a call.

use std::time::Duration;

use riglm_domain::message::RequestId;
use riglm_ports::upstream::UpstreamError;
use serde_json::json;

use crate::scene::{INFO, Report, Scene, asking};

const SHORT: Duration = Duration::from_secs(1);
const FORM: &str = r#"{"message":"who?","requestedSchema":{"n":1.0}}"#;
const ACCEPT: &str = r#"{"action":"accept","content":{"n":1e3}}"#;

/// A call that waits for the answer to an elicitation, and its state.
async fn parked(scene: &Scene) -> (String, String) {
    scene.call("1").await;
    let id = scene.legacy_id("tools/call");
    scene.ask("7", "elicitation/create", FORM).await;
    let (_, state) = scene.asked().await;
    (id, state)
}

#[tokio::test(start_paused = true)]
async fn an_elicitation_is_put_to_the_client_and_the_call_goes_on_with_the_answer() {
    let scene = Scene::new();
    scene.call("1").await;
    let id = scene.legacy_id("tools/call");
    scene.ask("7", "elicitation/create", FORM).await;
    let report = scene.next().await;
    assert_eq!(report.related(), "1");
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
        (done.json()["id"].clone(), done.related()),
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
    let (result, state) = scene.asked().await;
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
    let (id, first) = parked(&scene).await;
    scene.ask("8", "roots/list", "{}").await;
    scene.nothing_within(SHORT).await;
    scene
        .retry("2", &first, &format!(r#"{{"elicitation-1":{ACCEPT}}}"#))
        .await;
    let (result, second) = scene.asked().await;
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
    assert_eq!(scene.next().await.related(), "3");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_is_asked_for_again() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "elicitation/create", FORM).await;
    scene.ask("8", "roots/list", "{}").await;
    let (_, state) = scene.asked().await;
    let responses = format!(r#"{{"elicitation-1":{ACCEPT},"roots-2":null}}"#);
    scene.retry("2", &state, &responses).await;
    let (result, again) = scene.asked().await;
    assert_eq!(
        result["inputRequests"],
        json!({"roots-2": {"method": "roots/list", "params": {}}})
    );
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"#).await;
    scene
        .retry("3", &again, r#"{"roots-2":{"roots":[]}}"#)
        .await;
    scene.sees(r#"{"jsonrpc":"2.0","id":8,"#).await;
    let replies = scene.sent();
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
    let (_, state) = scene.asked().await;
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
    assert_eq!(report.related(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_token_that_a_parked_call_reports_under_is_not_used_twice() {
    let scene = Scene::new();
    let token = r#","progressToken":"p""#;
    scene
        .request("1", "tools/call", r#""name":"t""#, token)
        .await;
    scene.ask("7", "roots/list", "{}").await;
    scene.asked().await;
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
        (report.text(), report.related()),
        (progress("p").as_str(), "2".into())
    );
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn what_the_client_cannot_do_is_refused_to_the_server() {
    let scene = Scene::with(r#"{"roots":{},"sampling":null}"#, |_| {});
    scene.call("1").await;
    for method in ["elicitation/create", "sampling/createMessage", "tasks/get"] {
        scene.ask(r#""q""#, method, "{}").await;
        let text = format!("the client does not take {method}");
        let refusal = scene.sees(&text).await;
        let expected = r#"{"jsonrpc":"2.0","id":"q","error":{"code":-32601,"#;
        assert!(refusal.starts_with(expected), "{refusal}");
    }
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn a_question_goes_to_the_call_it_came_for_or_else_to_the_newest() {
    let scene = Scene::new();
    scene.call("1").await;
    let first = scene.legacy_id("tools/call");
    scene.call("2").await;
    scene.request("3", "tools/list", "", "").await;
    scene
        .say_for(&first, &asking("7", "roots/list", "{}"))
        .await;
    assert_eq!(scene.next().await.related(), "1");
    scene.say(&asking("8", "roots/list", "{}")).await;
    assert_eq!(scene.next().await.related(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_question_goes_rather_to_a_call_that_runs_than_to_one_that_waits_for_input() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.call("2").await;
    let newest = scene.legacy_id("tools/call");
    scene
        .say_for(&newest, &asking("7", "roots/list", "{}"))
        .await;
    assert_eq!(scene.next().await.related(), "2");
    scene.ask("8", "roots/list", "{}").await;
    assert_eq!(scene.next().await.related(), "1");
}

#[tokio::test(start_paused = true)]
async fn what_a_client_left_open_of_a_call_that_ended_is_asked_with_the_next_call() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.ask("7", "elicitation/create", FORM).await;
    scene.ask("8", "roots/list", "{}").await;
    let (_, state) = scene.asked().await;
    let id = scene.legacy_id("tools/call");
    scene.answer(&id, r#""result":{}"#).await;
    let responses = format!(r#"{{"elicitation-1":{ACCEPT}}}"#);
    scene.retry("2", &state, &responses).await;
    assert_eq!(scene.next().await.related(), "2");
    scene.sees(r#"{"jsonrpc":"2.0","id":7,"result""#).await;
    scene.call("3").await;
    let (result, _) = scene.asked().await;
    assert_eq!(
        result["inputRequests"],
        json!({"roots-1": {"method": "roots/list", "params": {}}})
    );
}

#[tokio::test(start_paused = true)]
async fn roots_that_are_asked_for_right_after_the_handshake_wait_for_a_call() {
    let scene = Scene::new();
    scene.request("1", "tools/list", "", "").await;
    scene.ask("7", "roots/list", "{}").await;
    scene.nothing_within(SHORT).await;
    scene.call("2").await;
    let (result, state) = scene.asked().await;
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
async fn a_question_that_no_call_comes_for_is_refused() {
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
async fn a_question_whose_call_is_answered_first_waits_for_the_next_call() {
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
    let (result, _) = scene.asked().await;
    assert_eq!(result["inputRequests"]["roots-1"]["method"], "roots/list");
}

#[tokio::test(start_paused = true)]
async fn a_question_that_is_taken_back_is_asked_no_longer() {
    let scene = Scene::new();
    let back = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}"#;
    scene.call("1").await;
    scene.ask("7", "roots/list", "{}").await;
    scene.say(back).await;
    scene.nothing_within(SHORT).await;
    scene.ask("7", "roots/list", "{}").await;
    let (_, state) = scene.asked().await;
    scene.say(back).await;
    scene
        .retry("2", &state, r#"{"roots-1":{"roots":[]}}"#)
        .await;
    scene.nothing_within(SHORT).await;
    assert!(!scene.sent().iter().any(|text| text.contains(r#""id":7"#)));
    scene
        .answer(&scene.legacy_id("tools/call"), r#""result":{}"#)
        .await;
    assert_eq!(scene.next().await.related(), "2");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_ends_while_it_is_parked_keeps_its_answer_for_the_retry() {
    let scene = Scene::new();
    let (id, state) = parked(&scene).await;
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
async fn a_call_whose_connection_is_lost_while_it_is_parked_fails_at_the_retry() {
    let scene = Scene::new();
    let (_, state) = parked(&scene).await;
    scene.upstream.lose(UpstreamError::NoAnswer).await;
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
    let (id, state) = parked(&scene).await;
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
async fn a_parked_call_that_nobody_comes_back_for_is_freed() {
    let scene = Scene::with(crate::scene::ALL, |options| {
        options.state_ttl = Duration::from_mins(1);
    });
    let (id, state) = parked(&scene).await;
    tokio::time::sleep(Duration::from_secs(59)).await;
    assert_eq!(scene.n_sent("notifications/cancelled"), 0);
    tokio::time::sleep(Duration::from_secs(2)).await;
    let sent = scene.sent();
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
async fn a_call_that_asks_too_often_is_given_up() {
    let scene = Scene::with(crate::scene::ALL, |options| options.max_rounds = 2);
    let (_, mut state) = parked(&scene).await;
    scene.retry("2", &state, r#"{"elicitation-1":{}}"#).await;
    scene.ask("8", "elicitation/create", FORM).await;
    (_, state) = scene.asked().await;
    scene.retry("3", &state, r#"{"elicitation-2":{}}"#).await;
    scene.ask("9", "elicitation/create", FORM).await;
    let error = scene.next().await.json()["error"].clone();
    assert_eq!(error["code"], -31005);
    scene.sees("notifications/cancelled").await;
    assert!(scene.sees(r#""id":9"#).await.contains("error"));
}

#[tokio::test(start_paused = true)]
async fn only_so_many_calls_are_parked() {
    let scene = Scene::new();
    for n in 0..256 {
        scene.call(&n.to_string()).await;
        scene.ask(&n.to_string(), "roots/list", "{}").await;
        scene.asked().await;
    }
    scene.call("256").await;
    scene.ask("256", "roots/list", "{}").await;
    assert_eq!(scene.next().await.json()["error"]["code"], -31005);
    let id = scene.legacy_id("tools/call");
    let cancelled = scene.sees("notifications/cancelled").await;
    assert!(cancelled.contains(&id), "{cancelled}");
}
