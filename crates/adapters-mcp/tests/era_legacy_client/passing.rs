//! Messages between a legacy client and a modern server, and local answers of the bridge.

use riglm_ports::upstream::UpstreamError;

use crate::scene::{Event, INITIALIZED, META, Scene, number, result};

#[tokio::test(start_paused = true)]
async fn requests_are_signed_without_other_changes() {
    let scene = Scene::with_bridge().await;
    scene
        .send(r#"{"id":1, "method":"tools/call","jsonrpc":"2.0","params":{"n":1.0,"k":18446744073709551616,"_meta":{"progressToken":1e3}}}"#)
        .await;
    let signed = format!(
        r#"{{"id":1, "method":"tools/call","jsonrpc":"2.0","params":{{"n":1.0,"k":18446744073709551616,"_meta":{{"progressToken":1e3,{META}}}}}}}"#
    );
    assert_eq!(scene.last_sent(), signed);
    scene
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
        .await;
    let signed = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{"_meta":{{{META}}}}}}}"#
    );
    assert_eq!(scene.last_sent(), signed);
}

#[tokio::test(start_paused = true)]
async fn answers_progress_and_logs_pass_as_they_are() {
    let scene = Scene::with_bridge().await;
    scene
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#)
        .await;
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":1,"progress":1.0}}"#;
    let log = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info"}}"#;
    let answer =
        r#"{"jsonrpc":"2.0","id":1,"result":{"resultType":"complete","ttlMs":1e3,"content":[]}}"#;
    for text in [progress, log, answer] {
        scene.upstream.send_to_client(text, Some(number(1))).await;
        let passed = Event::Received(text.into(), Some(number(1)));
        assert_eq!(scene.last_event(), passed);
    }
    scene.say(log).await;
    assert_eq!(scene.last_event(), Event::Received(log.into(), None));
}

#[tokio::test(start_paused = true)]
async fn the_bridge_answers_messages_unknown_to_modern_servers() {
    let scene = Scene::with_bridge().await;
    let n_sent = scene.sent_messages().len();
    scene
        .send(r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#)
        .await;
    assert_eq!(scene.last_told(), result("\"p\"", "{}"));
    for ends_here in [
        r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#,
        r#"{"jsonrpc":"2.0","id":"riglm:input:9","result":{}}"#,
        r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":77}}"#,
    ] {
        scene.send(ends_here).await;
    }
    assert_eq!(scene.sent_messages().len(), n_sent);
    let own = r#"{"jsonrpc":"2.0","method":"x/own","params":{"n":1.0}}"#;
    scene.send(own).await;
    assert_eq!(scene.last_sent(), own);
}

#[tokio::test(start_paused = true)]
async fn a_log_level_goes_with_every_later_request() {
    let scene = Scene::with_bridge().await;
    scene
        .send(
            r#"{"jsonrpc":"2.0","id":1,"method":"logging/setLevel","params":{"level":"warning"}}"#,
        )
        .await;
    assert_eq!(scene.last_told(), result("1", "{}"));
    scene
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"tools/list"}"#)
        .await;
    let level = r#""io.modelcontextprotocol/logLevel":"warning""#;
    assert!(scene.last_sent().contains(level));
    scene
        .send(r#"{"jsonrpc":"2.0","id":3,"method":"logging/setLevel","params":{"level":"loud"}}"#)
        .await;
    assert!(scene.last_told().contains(r#""code":-32602"#));
    scene
        .send(r#"{"jsonrpc":"2.0","id":4,"method":"tools/list"}"#)
        .await;
    assert!(scene.last_sent().contains(level));
}

#[tokio::test(start_paused = true)]
async fn missing_resources_have_the_legacy_error_code() {
    let scene = Scene::with_bridge().await;
    let error = |code: &str, data: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":1,"error":{{"message":"m", "code":{code},"data":{data}}}}}"#
        )
    };
    let uri = r#"{"uri":"file:///x","n":1.0}"#;
    for (method, code, data, expected) in [
        ("resources/read", "-32602", uri, "-32002"),
        ("resources/read", "-32602", "{}", "-32602"),
        ("resources/read", "-32603", uri, "-32603"),
        ("tools/call", "-32602", uri, "-32602"),
    ] {
        let request = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"{method}"}}"#);
        scene.send(&request).await;
        scene.say(&error(code, data)).await;
        assert_eq!(scene.last_told(), error(expected, data), "{method}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_members_of_a_batch_are_requests_of_their_own() {
    let scene = Scene::with_bridge().await;
    scene
        .send(r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}, {"jsonrpc":"2.0","id":2,"method":"tools/list"}]"#)
        .await;
    assert_eq!(scene.last_told(), result("1", "{}"));
    let signed = format!(
        r#"{{"jsonrpc":"2.0","id":2,"method":"tools/list","params":{{"_meta":{{{META}}}}}}}"#
    );
    assert_eq!(scene.last_sent(), signed);
    scene.say(&result("2", "[]")).await;
    assert_eq!(scene.last_told(), result("2", "[]"));
}

#[tokio::test(start_paused = true)]
async fn a_cancelled_request_is_cancelled_upstream() {
    let scene = Scene::with_bridge().await;
    scene
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#)
        .await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1,"reason":"r"}}"#;
    scene.send(cancel).await;
    assert_eq!(scene.last_sent(), cancel);
    let n_sent = scene.sent_messages().len();
    scene.send(cancel).await;
    assert_eq!(scene.sent_messages().len(), n_sent);
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_reported_once() {
    let scene = Scene::with_bridge().await;
    let error = UpstreamError::Unreachable { reason: "down" };
    scene.upstream.refuse_message(error.clone());
    let call = r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#;
    assert_eq!(scene.try_send(call).await, Err(error));
    scene.send(call).await;
    let n_events = scene.events.all().len();
    let garbled = UpstreamError::Garbled { reason: "x" };
    scene
        .upstream
        .leave_unanswered(number(1), garbled.clone())
        .await;
    assert_eq!(scene.last_event(), Event::Unanswered(number(1), garbled));
    assert_eq!(scene.events.all().len(), n_events + 1);
}

#[tokio::test(start_paused = true)]
async fn lost_connections_are_reported_to_the_client() {
    let scene = Scene::with_bridge().await;
    scene.send(INITIALIZED).await;
    scene
        .until(|scene| scene.n_sent("subscriptions/listen") == 1)
        .await;
    scene
        .send(r#"{"jsonrpc":"2.0","id":1,"method":"tools/call"}"#)
        .await;
    let error = UpstreamError::Lost { reason: "x".into() };
    scene.upstream.lose_connection(error.clone()).await;
    assert_eq!(scene.last_event(), Event::Lost(error));
    let n_sent = scene.sent_messages().len();
    tokio::time::sleep(std::time::Duration::from_mins(10)).await;
    assert_eq!(scene.sent_messages().len(), n_sent);
}
