//! Requests that a modern server answers only after it got input.

use std::sync::Arc;

use riglm_ports::upstream::UpstreamError;

use crate::scene::{
    DISCOVERED, Event, Exchanging, HELLO, META, REFUSED, Scene, number, result, scripted_upstream,
    text,
};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","n":1.0,"_meta":{"progressToken":7}}}"#;
const ASK_NAME: &str = r#""who":{"method":"elicitation/create","params":{"message":"m","n":1.0}}"#;
const ASK_MODEL: &str = r#""m\"x":{"method":"sampling/createMessage","params":{"maxTokens":1e2}}"#;

/// Returns a result that requests these inputs.
fn asks(id: &str, inputs: &str, state: &str) -> String {
    let result_text =
        format!(r#"{{"resultType":"input_required","inputRequests":{{{inputs}}}{state}}}"#);
    result(id, &result_text)
}

fn retry(n: u32, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"riglm:retry:{n}","method":"tools/call","params":{{"name":"t","n":1.0,"_meta":{{"progressToken":7,{META}}}{more}}}}}"#
    )
}

fn question(n: u32, method: &str, params: &str) -> Event {
    let text = format!(
        r#"{{"jsonrpc":"2.0","id":"riglm:input:{n}","method":"{method}","params":{params}}}"#
    );
    Event::Received(text, Some(number(1)))
}

fn withdrawn(n: u32) -> Event {
    let text = format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"riglm:input:{n}","reason":"the request that needed this input has ended"}}}}"#
    );
    Event::Received(text, Some(number(1)))
}

/// Returns a client with two requests for input.
async fn scene_with_input_requests() -> Scene {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    let inputs = format!("{ASK_NAME},{ASK_MODEL}");
    scene
        .say(&asks("1", &inputs, r#","requestState":"a\u0041\/""#))
        .await;
    scene
}

fn cancel(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"r"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn input_is_asked_for_and_handed_over_round_by_round() {
    let scene = scene_with_input_requests().await;
    let events = scene.events.all();
    let expected = [
        question(1, "elicitation/create", r#"{"message":"m","n":1.0}"#),
        question(2, "sampling/createMessage", r#"{"maxTokens":1e2}"#),
    ];
    assert_eq!(events[1..], expected);
    let n_sent = scene.sent_messages().len();
    scene
        .send(&result(
            "\"riglm:input:2\"",
            r#"{"k":18446744073709551616}"#,
        ))
        .await;
    assert_eq!(scene.sent_messages().len(), n_sent);
    scene
        .send(&result("\"riglm:input:1\"", r#"{ "a": 1.0}"#))
        .await;
    let answers = r#","inputResponses":{"who":{ "a": 1.0},"m\"x":{"k":18446744073709551616}},"requestState":"a\u0041\/""#;
    assert_eq!(scene.last_sent(), retry(3, answers));
    // The second round has neither the answers nor the state of the first.
    scene.say(&asks("\"riglm:retry:3\"", ASK_NAME, "")).await;
    scene.send(&result("\"riglm:input:4\"", "{}")).await;
    assert_eq!(
        scene.last_sent(),
        retry(5, r#","inputResponses":{"who":{}}"#)
    );
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1}}"#;
    scene
        .upstream
        .send_to_client(progress, Some(text("riglm:retry:5")))
        .await;
    let passed = Event::Received(progress.into(), Some(number(1)));
    assert_eq!(scene.last_event(), passed);
    scene
        .say(&result("\"riglm:retry:5\"", r#"{"n":1.0}"#))
        .await;
    let answered = Event::Received(result("1", r#"{"n":1.0}"#), Some(number(1)));
    assert_eq!(scene.last_event(), answered);
}

#[tokio::test(start_paused = true)]
async fn retries_over_exchanges_are_driven_by_the_bridge() {
    let upstream = scripted_upstream();
    let inner = Arc::new(Exchanging(upstream.clone()));
    let replies = [("initialize", REFUSED), ("server/discover", DISCOVERED)];
    let scene = Scene::over(upstream, inner, &replies).await;
    scene.send(HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    scene.send(CALL).await;
    scene.say(&asks("1", ASK_NAME, "")).await;
    scene.send(&result("\"riglm:input:1\"", "{}")).await;
    scene
        .until(|scene| scene.last_sent().contains("riglm:retry:2"))
        .await;
    scene.say(&result("\"riglm:retry:2\"", "{}")).await;
    assert_eq!(scene.last_told(), result("1", "{}"));
}

#[tokio::test(start_paused = true)]
async fn rounds_without_questions_are_retried_up_to_a_limit() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    let wait = r#"{"resultType":"input_required","requestState":"s"}"#;
    scene.say(&result("1", wait)).await;
    for n in 1..=16 {
        let sent = retry(n, r#","requestState":"s""#);
        scene.until(|scene| scene.last_sent() == sent).await;
        scene
            .say(&result(&format!("\"riglm:retry:{n}\""), wait))
            .await;
    }
    let error = scene.last_told();
    assert!(
        error.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-31005"#),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn failed_elicitations_count_as_cancelled() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene.say(&asks("1", ASK_NAME, "")).await;
    scene
        .send(r#"{"jsonrpc":"2.0","id":"riglm:input:1","error":{"code":-32603,"message":"m"}}"#)
        .await;
    let sent = retry(2, r#","inputResponses":{"who":{"action":"cancel"}}"#);
    assert_eq!(scene.last_sent(), sent);
}

#[tokio::test(start_paused = true)]
async fn refused_input_other_than_elicitation_ends_the_request() {
    let scene = scene_with_input_requests().await;
    let n_sent = scene.sent_messages().len();
    let error = r#"{"code":-1,"message":"no","data":1.0}"#;
    let refused = format!(r#"{{"jsonrpc":"2.0","id":"riglm:input:2","error":{error}}}"#);
    scene.send(&refused).await;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
    let expected = [withdrawn(1), Event::Received(answer, Some(number(1)))];
    assert_eq!(scene.events.all()[3..], expected);
    scene.send(&result("\"riglm:input:1\"", "{}")).await;
    assert_eq!(scene.sent_messages().len(), n_sent);
}

#[tokio::test(start_paused = true)]
async fn unsupported_input_requests_fail_the_call() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene
        .say(&asks("1", r#""r":{"method":"roots/list"}"#, ""))
        .await;
    let error = scene.last_told();
    assert!(
        error.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021"#),
        "{error}"
    );
    assert!(
        error.contains(r#""data":{"requiredCapabilities":{"roots":{}}}"#),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_can_be_cancelled_while_the_client_is_asked() {
    let scene = scene_with_input_requests().await;
    let n_sent = scene.sent_messages().len();
    scene.send(&cancel("1")).await;
    assert_eq!(scene.events.all()[3..].len(), 2);
    assert!(
        [withdrawn(1), withdrawn(2)]
            .iter()
            .all(|event| scene.events.all().contains(event))
    );
    // Late answers are dropped.
    scene.send(&result("\"riglm:input:1\"", "{}")).await;
    scene.send(&result("\"riglm:input:2\"", "{}")).await;
    assert_eq!(scene.sent_messages().len(), n_sent);
}

#[tokio::test(start_paused = true)]
async fn requests_can_be_cancelled_during_a_retry() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene.say(&asks("1", ASK_NAME, "")).await;
    scene.send(&result("\"riglm:input:1\"", "{}")).await;
    scene.send(&cancel("1")).await;
    assert_eq!(scene.last_sent(), cancel("\"riglm:retry:2\""));
    let n_events = scene.events.all().len();
    scene.say(&result("\"riglm:retry:2\"", "{}")).await;
    let late = UpstreamError::NoAnswer;
    scene
        .upstream
        .leave_unanswered(text("riglm:retry:2"), late)
        .await;
    assert_eq!(scene.events.all().len(), n_events);
}

#[tokio::test(start_paused = true)]
async fn requests_can_be_cancelled_before_a_retry() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    let wait = r#"{"resultType":"input_required","requestState":"s"}"#;
    scene.say(&result("1", wait)).await;
    scene.send(&cancel("1")).await;
    let n_sent = scene.sent_messages().len();
    tokio::time::sleep(std::time::Duration::from_mins(1)).await;
    assert_eq!(scene.sent_messages().len(), n_sent);
}

#[tokio::test(start_paused = true)]
async fn failed_retries_fail_the_request() {
    let scene = Scene::with_bridge().await;
    let error = UpstreamError::Unreachable { reason: "down" };
    scene.send(CALL).await;
    scene.say(&asks("1", ASK_NAME, "")).await;
    scene.upstream.refuse_message(error.clone());
    scene.send(&result("\"riglm:input:1\"", "{}")).await;
    let unanswered = Event::Unanswered(number(1), error);
    assert_eq!(scene.last_event(), unanswered);
    scene.send(CALL).await;
    scene.say(&asks("1", ASK_NAME, "")).await;
    scene.send(&result("\"riglm:input:3\"", "{}")).await;
    let garbled = UpstreamError::Garbled { reason: "x" };
    let id = text("riglm:retry:4");
    scene.upstream.leave_unanswered(id, garbled.clone()).await;
    assert_eq!(scene.last_event(), Event::Unanswered(number(1), garbled));
}

#[tokio::test(start_paused = true)]
async fn questions_are_withdrawn_when_the_connection_is_lost() {
    let scene = scene_with_input_requests().await;
    let error = UpstreamError::Lost { reason: "x".into() };
    scene.upstream.lose_connection(error.clone()).await;
    let events = scene.events.all();
    assert!(
        [withdrawn(1), withdrawn(2)]
            .iter()
            .all(|event| events.contains(event))
    );
    assert_eq!(scene.last_event(), Event::Lost(error));
}

#[tokio::test(start_paused = true)]
async fn inputs_of_concurrent_requests_are_kept_apart() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene
        .send(r#"{"jsonrpc":"2.0","id":"1","method":"prompts/get"}"#)
        .await;
    scene.say(&asks("\"1\"", ASK_NAME, "")).await;
    assert!(matches!(scene.last_event(), Event::Received(_, Some(owner)) if owner == text("1")));
    scene.say(&result("1", r#"{"first":1}"#)).await;
    assert_eq!(scene.last_told(), result("1", r#"{"first":1}"#));
    scene.send(&result("\"riglm:input:1\"", "{}")).await;
    assert!(scene.last_sent().contains(r#""method":"prompts/get""#));
    scene
        .say(&result("\"riglm:retry:2\"", r#"{"second":2}"#))
        .await;
    assert_eq!(scene.last_told(), result("\"1\"", r#"{"second":2}"#));
}
