//! Calls that a modern server runs as tasks, for a legacy client.

use riglm_ports::upstream::UpstreamError;

use crate::scene::{Event, Scene, number, result, text};

const CALL: &str = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"t","n":1.0,"_meta":{"progressToken":7}}}"#;
const NEEDS_TASKS: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32021,"message":"m","data":{"requiredCapabilities":{"extensions":{"io.modelcontextprotocol/tasks":{}}}}}}"#;
const HANDLE: &str = r#"{"resultType":"task","taskId":"a\u00e4","status":"working","ttlMs":null,"pollIntervalMs":2e3}"#;

const ASKS: &str =
    r#","inputRequests":{"who":{"method":"elicitation/create","params":{"message":"m"}}}"#;

/// Returns a state of the task with these further members.
fn state(status: &str, more: &str) -> String {
    format!(
        r#"{{"resultType":"complete","taskId":"a\u00e4","status":"{status}","ttlMs":null,"pollIntervalMs":2e3{more}}}"#
    )
}

/// Returns the id of a message, as JSON text.
fn id_of(message: &str) -> String {
    let id = message.split(r#""id":"#).nth(1).unwrap();
    id.split_once(',').unwrap().0.to_owned()
}

/// Answers the newest request of the bridge about the task.
async fn answer(scene: &Scene, method: &str, answer: &str) -> String {
    let method = format!(r#""method":"{method}""#);
    scene
        .until(|scene| scene.last_sent().contains(&method))
        .await;
    let sent = scene.last_sent();
    scene.say(&result(&id_of(&sent), answer)).await;
    sent
}

/// Leaves the last message to the server unanswered.
async fn leave_unanswered(scene: &Scene) {
    let id = id_of(&scene.last_sent());
    let id = text(id.trim_matches('"'));
    let upstream = &scene.upstream;
    upstream.leave_unanswered(id, UpstreamError::NoAnswer).await;
}

/// Returns a client whose call the server runs as a task.
async fn scene_with_task() -> Scene {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene.say(NEEDS_TASKS).await;
    let sent = scene.last_sent();
    assert!(
        sent.contains(r#""extensions":{"io.modelcontextprotocol/tasks":{}}"#)
            && sent.contains(r#""name":"t","n":1.0"#),
        "{sent}"
    );
    scene.say(&result("\"riglm:retry:1\"", HANDLE)).await;
    scene
}

#[tokio::test(start_paused = true)]
async fn a_call_gets_the_result_of_its_task_and_progress_meanwhile() {
    let scene = scene_with_task().await;
    let n_sent = scene.sent_messages().len();
    tokio::time::sleep(std::time::Duration::from_millis(1_900)).await;
    assert_eq!(
        scene.sent_messages().len(),
        n_sent,
        "the server proposed to ask every 2 s"
    );
    let busy = state("working", r#","statusMessage":"bus\u0079""#);
    let sent = answer(&scene, "tasks/get", &busy).await;
    assert!(sent.contains(r#""taskId":"aä""#), "{sent}");
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":7,"progress":1,"statusMessage":"bus\u0079"}}"#;
    let progress = progress.replace(r#""statusMessage""#, r#""message""#);
    assert_eq!(
        scene.last_event(),
        Event::Received(progress, Some(number(1)))
    );
    tokio::time::sleep(std::time::Duration::from_secs(2)).await;
    scene.until(|scene| scene.n_sent("tasks/get") == 2).await;
    let done = state("completed", r#","result":{"content":[],"n":1.0}"#);
    answer(&scene, "tasks/get", &done).await;
    let answered = result("1", r#"{"content":[],"n":1.0}"#);
    assert_eq!(
        scene.last_event(),
        Event::Received(answered, Some(number(1)))
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_that_a_task_repeats_is_asked_once() {
    let scene = scene_with_task().await;
    let asks = state("input_required", ASKS);
    answer(&scene, "tasks/get", &asks).await;
    let n_questions = || {
        let told = scene.received_messages();
        told.iter()
            .filter(|text| text.contains("elicitation/create"))
            .count()
    };
    assert_eq!(n_questions(), 1);
    let question = id_of(&scene.last_told());
    let given = r#"{"action":"accept"}"#;
    scene.send(&result(&question, given)).await;
    let sent = answer(&scene, "tasks/update", r#"{"resultType":"complete"}"#).await;
    assert!(
        sent.contains(r#""inputResponses":{"who":{"action":"accept"}}"#),
        "{sent}"
    );
    // The server has not processed the answer yet, for longer than the rounds of input may be.
    for n in 0..20 {
        scene
            .until(|scene| scene.n_sent("tasks/get") == n + 2)
            .await;
        answer(&scene, "tasks/get", &asks).await;
    }
    assert_eq!(n_questions(), 1);
    scene.until(|scene| scene.n_sent("tasks/get") == 22).await;
    answer(&scene, "tasks/get", &state("completed", r#","result":{}"#)).await;
    assert_eq!(scene.last_told(), result("1", "{}"));
}

#[tokio::test(start_paused = true)]
async fn a_question_for_a_task_that_gets_no_answer_is_repeated() {
    let scene = scene_with_task().await;
    for n in 0..6 {
        scene
            .until(|scene| scene.n_sent("tasks/get") == n + 1)
            .await;
        leave_unanswered(&scene).await;
        let has_failed = matches!(scene.last_event(), Event::Unanswered(..));
        assert_eq!(has_failed, n == 5, "after {n} attempts");
    }
    assert_eq!(
        scene.last_event(),
        Event::Unanswered(number(1), UpstreamError::NoAnswer)
    );
}

#[tokio::test(start_paused = true)]
async fn ends_of_tasks_are_errors_of_the_call() {
    for (status, more, expected) in [
        (
            "failed",
            r#","error":{"code":-32603,"message":"m","data":1.0}"#,
            r#"{"code":-32603,"message":"m","data":1.0}"#,
        ),
        (
            "cancelled",
            r#","statusMessage":"at night""#,
            r#"{"code":-31001,"message":"the server cancelled the task of the call: at night"}"#,
        ),
    ] {
        let scene = scene_with_task().await;
        answer(&scene, "tasks/get", &state(status, more)).await;
        let answered = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{expected}}}"#);
        assert_eq!(scene.last_told(), answered);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_requires_tasks_again_gets_no_third_call() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene.say(NEEDS_TASKS).await;
    let again = NEEDS_TASKS.replace(r#""id":1"#, r#""id":"riglm:retry:1""#);
    scene.say(&again).await;
    assert_eq!(scene.last_told(), NEEDS_TASKS);
    assert_eq!(scene.n_sent("tools/call"), 2);
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_call_cancels_its_task() {
    let scene = scene_with_task().await;
    scene
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    scene.until(|scene| scene.n_sent("tasks/cancel") == 1).await;
    let sent = scene.last_sent();
    assert!(sent.contains(r#""taskId":"aä""#), "{sent}");
    assert_eq!(scene.n_sent("notifications/cancelled"), 0);
    tokio::time::sleep(std::time::Duration::from_secs(10)).await;
    assert_eq!(scene.n_sent("tasks/get"), 0, "nobody waits for it");
}

#[tokio::test(start_paused = true)]
async fn answers_of_the_client_are_sent_until_the_server_has_them() {
    let scene = scene_with_task().await;
    let asks = state("input_required", ASKS);
    answer(&scene, "tasks/get", &asks).await;
    let question = id_of(&scene.last_told());
    let given = r#"{"action":"accept"}"#;
    scene.send(&result(&question, given)).await;
    scene.until(|scene| scene.n_sent("tasks/update") == 1).await;
    leave_unanswered(&scene).await;
    scene.until(|scene| scene.n_sent("tasks/update") == 2).await;
    assert!(scene.last_sent().contains(r#""who":{"action":"accept"}"#));
    answer(&scene, "tasks/update", r#"{"resultType":"complete"}"#).await;
    answer(&scene, "tasks/get", &state("completed", r#","result":{}"#)).await;
    assert_eq!(scene.last_told(), result("1", "{}"));
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_comes_after_a_cancellation_is_cancelled() {
    let scene = Scene::with_bridge().await;
    scene.send(CALL).await;
    scene.say(NEEDS_TASKS).await;
    scene
        .send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    let n_told = scene.received_messages().len();
    scene.say(&result("\"riglm:retry:1\"", HANDLE)).await;
    scene.until(|scene| scene.n_sent("tasks/cancel") == 1).await;
    assert_eq!(scene.received_messages().len(), n_told);
}

#[tokio::test(start_paused = true)]
async fn the_extension_is_declared_only_for_tools_that_need_it() {
    let scene = scene_with_task().await;
    for (id, name, expected) in [(5, "other", false), (6, "t", true)] {
        let call = format!(
            r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{name}"}}}}"#
        );
        scene.send(&call).await;
        let sent = scene.last_sent();
        let is_declared = sent.contains("io.modelcontextprotocol/tasks");
        assert_eq!(is_declared, expected, "{sent}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_handle_that_comes_twice_cancels_nothing() {
    let scene = scene_with_task().await;
    scene.say(&result("\"riglm:retry:1\"", HANDLE)).await;
    answer(&scene, "tasks/get", &state("completed", r#","result":{}"#)).await;
    assert_eq!(scene.last_told(), result("1", "{}"));
    assert_eq!(scene.n_sent("tasks/cancel"), 0);
}
