//! Two clients of one session with the same ids and tokens.

use crate::scene::{Scene, read, request, with_meta, within};

#[tokio::test]
async fn two_clients_may_use_the_same_id_and_token() {
    let scene = Scene::new().await;
    let call = |name: &str| {
        with_meta(
            "1",
            "tools/call",
            r#","progressToken":5"#,
            &format!(r#""name":"{name}""#),
        )
    };
    let (first, sent) = scene.begin(scene.post(call("a"))).await;
    assert_eq!(sent, call("a"), "bytes pass untouched without a collision");
    let (second, sent) = scene.begin(scene.post(call("b"))).await;
    let inner = call("b")
        .replace("\"id\":1", r#""id":"riglm.c:1""#)
        .replace("\"progressToken\":5", r#""progressToken":"riglm.c:2""#);
    assert_eq!(sent, inner);
    assert_eq!(scene.upstream.connections(), (1, 0));
    let progress = |token: &str, n: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":{n}}}}}"#
        )
    };
    let answer =
        |id: &str, n: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"n":{n}}}}}"#);
    let inner_id = "\"riglm.c:1\"";
    scene.say(&progress("\"riglm.c:2\"", "2.0"), inner_id).await;
    scene.say(&progress("5", "1.0"), "1").await;
    scene.say(&answer(inner_id, "2"), inner_id).await;
    scene.say(&answer("1", "1"), "1").await;
    for (response, n) in [(first, "1"), (second, "2")] {
        let expected = format!(
            "data: {}\n\ndata: {}\n\n",
            progress("5", &format!("{n}.0")),
            answer("1", n)
        );
        assert_eq!(response.end().await.events(), expected);
    }
}

#[tokio::test]
async fn a_subscription_under_another_id_keeps_its_own_towards_the_client() {
    let scene = Scene::new().await;
    let (first, _) = scene
        .begin(scene.post(request("1", "tools/list", "")))
        .await;
    let listen = request("1", "subscriptions/listen", r#""notifications":{}"#);
    let response = within(scene.post(listen).send()).await.unwrap();
    scene
        .until(|upstream| upstream.sent_messages().len() == 2)
        .await;
    let inner_id = "\"riglm.c:1\"";
    let meta = |id: &str| format!(r#""_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}"#);
    let note = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{{},"uri":"a:b"}}}}"#,
            meta(id)
        )
    };
    let end = |id: &str| {
        format!(
            r#"{{"jsonrpc":"2.0","id":{id},"result":{{"resultType":"complete",{}}}}}"#,
            meta(id)
        )
    };
    scene.say(&note(inner_id), inner_id).await;
    scene.say(&end(inner_id), inner_id).await;
    let body = within(response.text()).await.unwrap();
    assert_eq!(
        body,
        format!(":\n\ndata: {}\n\ndata: {}\n\n", note("1"), end("1"))
    );
    first.abort();
}

#[tokio::test]
async fn request_ids_like_internal_ones_are_restored_in_answers() {
    let scene = Scene::new().await;
    scene.upstream.reply_to("tools/list", r#""result":{}"#);
    let answer = read(scene.post(request("\"riglm:u:1\"", "tools/list", ""))).await;
    assert_eq!(
        answer.body,
        r#"{"jsonrpc":"2.0","id":"riglm:u:1","result":{}}"#
    );
    let sent = scene.sent_texts().pop().unwrap();
    assert!(!sent.contains(r#""id":"riglm:u:1""#), "{sent}");
}
