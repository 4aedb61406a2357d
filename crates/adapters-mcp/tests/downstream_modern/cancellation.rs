//! Cancellation by closing the response.

use reqwest::StatusCode;

use crate::scene::{Scene, read, request, within};

/// Returns the cancellations that were sent to the upstream.
fn cancellations(scene: &Scene) -> Vec<String> {
    let mut sent = scene.sent_texts();
    sent.retain(|text| text.contains("notifications/cancelled"));
    sent
}

fn cancellation(id: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id},"reason":"the client closed the response"}}}}"#
    )
}

/// Waits until the proxy has processed all earlier messages.
async fn settle(scene: &Scene) {
    scene.upstream.reply_to("server/discover", r#""result":{}"#);
    let answer = read(scene.post(request("\"settled\"", "server/discover", ""))).await;
    assert_eq!(answer.status, StatusCode::OK);
}

#[tokio::test]
async fn disconnecting_before_the_response_cancels_the_request() {
    let scene = Scene::new().await;
    let post = scene.post(request("\"a\"", "tools/call", r#""name":"n""#));
    let (response, _) = scene.begin(post).await;
    response.abort();
    scene
        .until(|upstream| upstream.sent_messages().len() == 2)
        .await;
    assert_eq!(cancellations(&scene), [cancellation("\"a\"")]);
    // A response that crossed the cancellation is dropped.
    scene
        .say(r#"{"jsonrpc":"2.0","id":"a","result":{}}"#, "\"a\"")
        .await;
    settle(&scene).await;
    assert_eq!(cancellations(&scene).len(), 1);
}

#[tokio::test]
async fn closing_a_stream_cancels_its_request() {
    let scene = Scene::new().await;
    for (id, method) in [("1", "tools/list"), ("2", "subscriptions/listen")] {
        let response = within(scene.post(request(id, method, "")).send())
            .await
            .unwrap();
        assert_eq!(response.headers()["content-type"], "text/event-stream");
        scene
            .until(|upstream| {
                upstream
                    .sent_messages()
                    .iter()
                    .any(|(_, text)| text.contains(method))
            })
            .await;
        drop(response);
        scene
            .until(|upstream| {
                let sent = upstream.sent_messages();
                sent.last()
                    .is_some_and(|(_, text)| *text == cancellation(id))
            })
            .await;
    }
    settle(&scene).await;
    assert_eq!(cancellations(&scene).len(), 2);
}

#[tokio::test]
async fn answered_requests_are_not_cancelled() {
    let scene = Scene::new().await;
    scene.upstream.reply_to("tools/list", r#""result":{}"#);
    for id in ["1", "2"] {
        let response = within(scene.post(request(id, "tools/list", "")).send()).await;
        drop(response);
    }
    let response = within(scene.post(request("3", "x", "")).send())
        .await
        .unwrap();
    scene
        .say(r#"{"jsonrpc":"2.0","id":3,"result":{}}"#, "3")
        .await;
    drop(response);
    settle(&scene).await;
    assert_eq!(cancellations(&scene), Vec::<String>::new());
}

#[tokio::test]
async fn the_client_may_reuse_the_id_of_a_cancelled_request() {
    let scene = Scene::new().await;
    let list = request("1", "tools/list", "");
    let (response, _) = scene.begin(scene.post(list.as_str())).await;
    response.abort();
    scene
        .until(|upstream| upstream.sent_messages().len() == 2)
        .await;
    let (response, sent) = scene.begin(scene.post(list)).await;
    assert!(sent.contains(r#""id":"riglm.c:1""#), "{sent}");
    // The late response to the first request must not answer the second one.
    scene
        .say(r#"{"jsonrpc":"2.0","id":1,"result":{"late":1}}"#, "1")
        .await;
    let answer = r#"{"jsonrpc":"2.0","id":"riglm.c:1","result":{}}"#;
    scene.say(answer, "\"riglm.c:1\"").await;
    let read = response.end().await;
    assert!(
        read.body
            .contains(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#),
        "{}",
        read.body
    );
    assert!(!read.body.contains("late"), "{}", read.body);
}

#[tokio::test]
async fn posted_cancellation_notifications_are_ignored() {
    let scene = Scene::new().await;
    let (response, _) = scene
        .begin(scene.post(request("1", "tools/list", "")))
        .await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    assert_eq!(read(scene.post(note)).await.status, StatusCode::ACCEPTED);
    let answer = r#"{"jsonrpc":"2.0","id":1,"result":{}}"#;
    scene.say(answer, "1").await;
    assert!(response.end().await.body.contains(answer));
    assert_eq!(cancellations(&scene), Vec::<String>::new());
}
