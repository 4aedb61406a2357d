//! Tasks of a legacy server, for modern clients with and without the tasks extension.

use std::time::Duration;

use riglm_ports::upstream::UpstreamLink as _;
use serde_json::Value;

use crate::scene::{ALL, Scene};

const WELCOME: &str = r#""result":{"protocolVersion":"2025-11-25","capabilities":{"tools":{},"tasks":{"requests":{"tools":{"call":{}}}}},"serverInfo":{"name":"s","version":"1"}}"#;
const WITH_TASKS: &str = r#"{"elicitation":{},"extensions":{"io.modelcontextprotocol/tasks":{}}}"#;
const ONLY_AS_TASK: &str = r#""error":{"code":-32601,"message":"requires a task"}"#;
const HANDLE: &str =
    r#""result":{"task":{"taskId":"a","status":"working","ttl":6e4,"pollInterval":5.0}}"#;

fn scene(capabilities: &'static str) -> Scene {
    let scene = Scene::with(capabilities, |_| {});
    scene.upstream.reply_to("initialize", WELCOME);
    scene
}

/// Calls a tool that the server runs only as a task, until the server has created the task.
async fn create(scene: &Scene, id: &str) {
    scene.call(id).await;
    scene
        .answer(&scene.legacy_id("tools/call"), ONLY_AS_TASK)
        .await;
    let sent = scene.sees(r#""task":{}"#).await;
    assert!(
        sent.contains(r#""name":"t","arguments":{"a":1.0}"#),
        "{sent}"
    );
    scene.answer(&scene.legacy_id("tools/call"), HANDLE).await;
}

async fn until_sent(scene: &Scene, method: &str, n: usize) {
    for _ in 0..10_000 {
        if scene.n_sent(method) >= n {
            return;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    panic!("{method} was not sent: {:?}", scene.sent_messages());
}

/// Answers the next request of the bridge with this method.
async fn answer_next(scene: &Scene, method: &str, n: usize, member: &str) {
    until_sent(scene, method, n).await;
    scene.answer(&scene.legacy_id(method), member).await;
}

fn task(status: &str) -> String {
    format!(r#""result":{{"taskId":"a","status":"{status}"}}"#)
}

#[tokio::test(start_paused = true)]
async fn a_client_without_tasks_gets_the_result() {
    let scene = scene(ALL);
    create(&scene, "1").await;
    answer_next(
        &scene,
        "tasks/result",
        1,
        r#""result":{"content":[],"n":1.0}"#,
    )
    .await;
    let report = scene.next().await;
    assert!(report.text().contains(r#""content":[],"n":1.0"#));
    assert_eq!(report.json()["id"], 1);
    assert_eq!(report.json()["result"]["resultType"], "complete");
    // The tool is known now.
    scene.call("2").await;
    let last = scene.last();
    assert!(last.contains(r#""task":{}"#), "{last}");
}

#[tokio::test(start_paused = true)]
async fn ids_of_the_requests_of_one_call_differ() {
    let scene = scene(ALL);
    create(&scene, "1").await;
    scene.sees("tasks/result").await;
    let mut ids: Vec<Value> = scene
        .sent_messages()
        .iter()
        .map(|text| serde_json::from_str::<Value>(text).unwrap()["id"].clone())
        .filter(|id| !id.is_null())
        .collect();
    let n = ids.len();
    ids.sort_by_key(ToString::to_string);
    ids.dedup();
    assert_eq!(ids.len(), n, "{:?}", scene.sent_messages());
}

#[tokio::test(start_paused = true)]
async fn a_client_with_tasks_gets_the_handle_and_then_the_result() {
    let scene = scene(WITH_TASKS);
    create(&scene, "1").await;
    let handle = scene.next().await.json()["result"].clone();
    assert_eq!(handle["resultType"], "task");
    assert_eq!(
        (&handle["ttlMs"], &handle["pollIntervalMs"]),
        (&Value::from(6e4), &Value::from(5.0))
    );
    assert!(scene.link.is_needed(), "the task is at this connection");
    scene.request("2", "tasks/get", r#""taskId":"a""#, "").await;
    answer_next(&scene, "tasks/get", 1, &task("failed")).await;
    answer_next(&scene, "tasks/result", 1, r#""result":{"isError":true}"#).await;
    let state = scene.next().await.json()["result"].clone();
    assert_eq!(state["status"], "completed", "isError is no JSON-RPC error");
    assert_eq!(state["result"]["isError"], true);
    assert_eq!(state["ttlMs"], Value::Null);
    assert!(!scene.link.is_needed());
}

#[tokio::test(start_paused = true)]
async fn the_questions_of_a_task_are_answered_by_updates() {
    let scene = scene(WITH_TASKS);
    create(&scene, "1").await;
    scene.next().await;
    scene.request("2", "tasks/get", r#""taskId":"a""#, "").await;
    answer_next(&scene, "tasks/get", 1, &task("input_required")).await;
    until_sent(&scene, "tasks/result", 1).await;
    let related =
        r#"{"message":"m","_meta":{"io.modelcontextprotocol/related-task":{"taskId":"a"}}}"#;
    scene.ask("77", "elicitation/create", related).await;
    let state = scene.next().await.json()["result"].clone();
    assert_eq!(state["status"], "input_required");
    let asked = &state["inputRequests"]["elicitation-1"];
    assert_eq!(asked["method"], "elicitation/create");
    // The same question is there until it is answered.
    scene.request("3", "tasks/get", r#""taskId":"a""#, "").await;
    answer_next(&scene, "tasks/get", 2, &task("input_required")).await;
    let again = scene.next().await.json()["result"]["inputRequests"].clone();
    assert_eq!(again, state["inputRequests"]);
    let responses = r#""taskId":"a","inputResponses":{"elicitation-1":{"action":"accept"}}"#;
    scene.request("4", "tasks/update", responses, "").await;
    assert_eq!(
        scene.next().await.json()["result"]["resultType"],
        "complete"
    );
    let answered = scene.sees(r#""id":77"#).await;
    assert!(
        answered.contains(r#""result":{"action":"accept"}"#),
        "{answered}"
    );
    assert_eq!(scene.n_sent("tasks/result"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_asks_nothing_in_time_is_working() {
    let scene = scene(WITH_TASKS);
    create(&scene, "1").await;
    scene.next().await;
    scene.request("2", "tasks/get", r#""taskId":"a""#, "").await;
    answer_next(&scene, "tasks/get", 1, &task("input_required")).await;
    let state = scene.next().await.json()["result"].clone();
    assert_eq!(state["status"], "working");
    assert_eq!(state.get("inputRequests"), None);
}

#[tokio::test(start_paused = true)]
async fn requests_about_tasks_need_the_extension_and_a_name() {
    let scene = scene(ALL);
    scene.request("1", "tasks/get", r#""taskId":"a""#, "").await;
    let error = scene.next().await.json()["error"].clone();
    assert_eq!(error["code"], -32021);
    let extensions = &error["data"]["requiredCapabilities"]["extensions"];
    assert!(extensions["io.modelcontextprotocol/tasks"].is_object());
    scene
        .request_as(WITH_TASKS, "2", "tasks/cancel", r#""taskId":7"#, "")
        .await;
    assert_eq!(scene.next().await.json()["error"]["code"], -32602);
}

#[tokio::test(start_paused = true)]
async fn a_task_that_nobody_asks_for_is_forgotten() {
    let scene = scene(WITH_TASKS);
    create(&scene, "1").await;
    scene.next().await;
    scene.nothing_within(Duration::from_mins(11)).await;
    assert!(!scene.link.is_needed());
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_cancels_its_task() {
    let scene = scene(ALL);
    create(&scene, "1").await;
    scene.sees("tasks/result").await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.cancel("1").await;
    let cancelled = scene.sees("tasks/cancel").await;
    assert!(cancelled.contains(r#""taskId":"a""#), "{cancelled}");
}

#[tokio::test(start_paused = true)]
async fn an_unknown_tool_is_called_as_a_task_once() {
    let scene = scene(ALL);
    scene.call("1").await;
    scene
        .answer(&scene.legacy_id("tools/call"), ONLY_AS_TASK)
        .await;
    scene.sees(r#""task":{}"#).await;
    scene
        .answer(&scene.legacy_id("tools/call"), ONLY_AS_TASK)
        .await;
    assert_eq!(scene.next().await.json()["error"]["code"], -32601);
    assert_eq!(scene.n_sent("tools/call"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_tool_that_needs_no_task_any_more_is_called_without_one() {
    let scene = scene(ALL);
    create(&scene, "1").await;
    answer_next(&scene, "tasks/result", 1, r#""result":{}"#).await;
    scene.next().await;
    scene.call("2").await;
    assert!(scene.last().contains(r#""task":{}"#));
    scene
        .answer(&scene.legacy_id("tools/call"), ONLY_AS_TASK)
        .await;
    until_sent(&scene, "tools/call", 4).await;
    let last = scene.last();
    assert!(!last.contains(r#""task""#), "{last}");
    // It is not tried a third time.
    scene
        .answer(&scene.legacy_id("tools/call"), ONLY_AS_TASK)
        .await;
    assert_eq!(scene.next().await.json()["error"]["code"], -32601);
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_comes_after_a_cancellation_is_cancelled() {
    let scene = scene(WITH_TASKS);
    scene.call("1").await;
    scene
        .answer(&scene.legacy_id("tools/call"), ONLY_AS_TASK)
        .await;
    scene.sees(r#""task":{}"#).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    scene.cancel("1").await;
    scene.answer(&scene.legacy_id("tools/call"), HANDLE).await;
    let cancelled = scene.sees("tasks/cancel").await;
    assert!(cancelled.contains(r#""taskId":"a""#), "{cancelled}");
}

#[tokio::test(start_paused = true)]
async fn a_lost_state_of_an_ended_task_can_be_asked_for_again() {
    let scene = scene(WITH_TASKS);
    create(&scene, "1").await;
    scene.next().await;
    for n in 1..3 {
        let id = (n + 1).to_string();
        // The log level would lead to another session.
        let meta = r#","io.modelcontextprotocol/logLevel":"error""#;
        let meta = if n == 2 { meta } else { "" };
        scene
            .request(&id, "tasks/get", r#""taskId":"a""#, meta)
            .await;
        answer_next(&scene, "tasks/get", n, &task("completed")).await;
        answer_next(&scene, "tasks/result", n, r#""result":{"n":1.0}"#).await;
        let state = scene.next().await.json()["result"].clone();
        assert_eq!(state["result"]["n"], 1.0);
    }
    assert_eq!(scene.n_sent("initialize"), 1);
}
