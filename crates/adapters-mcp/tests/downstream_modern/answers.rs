//! The forms of responses: JSON bodies and event streams.

use reqwest::StatusCode;

use crate::scene::{Scene, read, request, with_meta, within};

#[tokio::test]
async fn an_answer_at_once_is_one_body_of_json() {
    let scene = Scene::new().await;
    scene.upstream.reply_to(
        "tools/list",
        r#""result":{"resultType":"complete","tools":[],"n":1e3}"#,
    );
    let post = scene
        .post(request("7", "tools/list", ""))
        .header("Mcp-Session-Id", "gone")
        .header("Last-Event-ID", "1-1");
    let answer = read(post).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.header("content-type"), "application/json");
    assert_eq!(answer.header("mcp-session-id"), "");
    assert_eq!(
        answer.body,
        r#"{"jsonrpc":"2.0","id":7,"result":{"resultType":"complete","tools":[],"n":1e3}}"#
    );
    assert_eq!(scene.sent_texts(), [request("7", "tools/list", "")]);
}

#[tokio::test]
async fn errors_have_the_http_status_of_their_code() {
    let scene = Scene::new().await;
    for (code, status) in [
        (-32601, StatusCode::NOT_FOUND),
        (-32020, StatusCode::BAD_REQUEST),
        (-32021, StatusCode::BAD_REQUEST),
        (-32022, StatusCode::BAD_REQUEST),
        (-31005, StatusCode::SERVICE_UNAVAILABLE),
        (-32602, StatusCode::OK),
        (-32000, StatusCode::OK),
    ] {
        let error = format!(r#""error":{{"code":{code},"message":"no","data":null}}"#);
        scene.upstream.reply_to("x/y", &error);
        let answer = read(scene.post(request("7", "x/y", ""))).await;
        assert_eq!(answer.status, status, "{code}");
        assert_eq!(
            answer.body,
            format!(r#"{{"jsonrpc":"2.0","id":7,{error}}}"#)
        );
        let is_busy = status == StatusCode::SERVICE_UNAVAILABLE;
        assert_eq!(answer.header("retry-after"), if is_busy { "1" } else { "" });
    }
}

#[tokio::test]
async fn a_message_before_the_response_starts_a_stream() {
    let scene = Scene::new().await;
    let text = with_meta(
        "7",
        "tools/call",
        r#","progressToken":"t""#,
        r#""name":"n""#,
    );
    let (response, sent) = scene.begin(scene.post(text.as_str())).await;
    assert_eq!(sent, text);
    let progress = r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":"t","progress":1.0}}"#;
    scene.say(progress, "7").await;
    // None of these messages belongs in the response.
    let asked = r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"}"#;
    scene.say(asked, "7").await;
    let other = r#"{"jsonrpc":"2.0","id":99,"result":{}}"#;
    scene.say(other, "7").await;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;
    scene.upstream.send_to_client(changed, None).await;
    let answer = r#"{"jsonrpc":"2.0","id":7,"error":{"code":-32601,"message":"no"}}"#;
    scene.say(answer, "7").await;
    let read = response.end().await;
    assert_eq!(read.status, StatusCode::OK);
    assert_eq!(read.header("content-type"), "text/event-stream");
    assert_eq!(read.header("x-accel-buffering"), "no");
    assert_eq!(
        read.events(),
        format!("data: {progress}\n\ndata: {answer}\n\n")
    );
}

#[tokio::test]
async fn slow_answers_are_streamed() {
    let scene = Scene::new().await;
    let post = scene.post(request("7", "tools/list", ""));
    // The headers arrive before the response message.
    let response = within(post.send()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    let answer = r#"{"jsonrpc":"2.0","id":7,"result":{}}"#;
    scene.say(answer, "7").await;
    let body = within(response.text()).await.unwrap();
    assert_eq!(body, format!(":\n\ndata: {answer}\n\n"));
}

#[tokio::test]
async fn a_subscription_is_a_stream_from_the_start() {
    let scene = Scene::new().await;
    let text = request(
        "1",
        "subscriptions/listen",
        r#""notifications":{"toolsListChanged":true}"#,
    );
    let mut response = within(scene.post(text).send()).await.unwrap();
    assert_eq!(response.headers()["content-type"], "text/event-stream");
    assert_eq!(within(response.chunk()).await.unwrap().unwrap(), ":\n\n");
    scene
        .until(|upstream| upstream.sent_messages().len() == 1)
        .await;
    let note = |method: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":1}}}}}}"#
        )
    };
    let acknowledged = note("subscriptions/acknowledged");
    let changed = note("tools/list_changed");
    scene.say(&acknowledged, "1").await;
    scene.say(&changed, "1").await;
    let ended = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    scene.say(ended, "1").await;
    let body = within(response.text()).await.unwrap();
    let expected = format!("data: {acknowledged}\n\ndata: {changed}\n\ndata: {ended}\n\n");
    assert_eq!(body, expected);
    assert_eq!(scene.sent_texts().len(), 1, "the server ended it by itself");
}

#[tokio::test]
async fn a_notification_is_accepted_and_passed_on() {
    let scene = Scene::new().await;
    let note = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"n":1.0}}"#;
    let answer = read(scene.post(note)).await;
    assert_eq!(
        (answer.status, answer.body.as_str()),
        (StatusCode::ACCEPTED, "")
    );
    assert_eq!(scene.sent_texts(), [note]);
    let wrong = scene
        .post_text(note)
        .header("Mcp-Method", "notifications/y");
    let answer = read(wrong.header("MCP-Protocol-Version", "2026-07-28")).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST);
    assert_eq!(answer.error(), (-32020, "null".into()));
    assert_eq!(scene.sent_texts().len(), 1);
}

#[tokio::test]
async fn headers_of_arguments_reach_the_upstream_side() {
    let scene = Scene::new().await;
    scene.upstream.reply_to("tools/call", r#""result":{}"#);
    let call = request("1", "tools/call", r#""name":"n""#);
    let post = scene
        .post(call.as_str())
        .header("Mcp-Param-Region", "us-west1")
        .header("Mcp-Param-Unknown", "=?base64?not base64?=")
        .header("Mcp-Other", "x");
    assert_eq!(read(post).await.status, StatusCode::OK);
    let mut headers = scene.last_headers().unwrap();
    headers.sort();
    let expected = [
        ("mcp-param-region".into(), "us-west1".into()),
        ("mcp-param-unknown".into(), "=?base64?not base64?=".into()),
    ];
    assert_eq!(headers, expected);
    assert_eq!(read(scene.post(call)).await.status, StatusCode::OK);
    assert_eq!(scene.last_headers(), Some(Vec::new()));
}
