//! The server has one subscriber, for any number of sessions.

use crate::scene::Scene;

fn request(id: u32, verb: &str, uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/{verb}","params":{{"uri":"{uri}"}}}}"#
    )
}

/// Returns the last part of the methods that the server got, with the URI.
fn seen_subscriptions(scene: &Scene) -> Vec<(String, String)> {
    let sent = scene.sent_messages();
    let read = |text: String| {
        let message: serde_json::Value = serde_json::from_str(&text).unwrap();
        let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
        let method = text(&message["method"]).replace("resources/", "");
        (method, text(&message["params"]["uri"]))
    };
    sent.into_iter().map(read).collect()
}

fn resource_updated(uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}"}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn identical_subscriptions_share_one_upstream_subscription() {
    let scene = Scene::new();
    let (a, b, c) = (
        scene.session().await,
        scene.session().await,
        scene.session().await,
    );
    scene
        .upstream
        .reply_to("resources/subscribe", r#""result":{"x":1}"#);
    scene
        .upstream
        .reply_to("resources/unsubscribe", r#""result":{}"#);
    a.send(&request(1, "subscribe", "r:1")).await;
    b.send(&request(1, "subscribe", "r:1")).await;
    c.send(&request(1, "subscribe", "r:2")).await;
    let pair = |verb: &str, uri: &str| (verb.to_owned(), uri.to_owned());
    let first = [pair("subscribe", "r:1"), pair("subscribe", "r:2")];
    assert_eq!(seen_subscriptions(&scene), first);
    assert_eq!(
        a.received_messages(),
        [r#"{"jsonrpc":"2.0","id":1,"result":{"x":1}} on 1"#]
    );
    assert_eq!(
        b.received_messages(),
        [r#"{"jsonrpc":"2.0","id":1,"result":{}} on 1"#]
    );
    c.received_messages();

    scene.say(&resource_updated("r:1")).await;
    assert_eq!(
        (a.received_messages(), b.received_messages()),
        (vec![resource_updated("r:1")], vec![resource_updated("r:1")])
    );
    assert_eq!(c.received_messages(), Vec::<String>::new());

    a.send(&request(2, "unsubscribe", "r:1")).await;
    assert_eq!(
        a.received_messages(),
        [r#"{"jsonrpc":"2.0","id":2,"result":{}} on 2"#]
    );
    scene.say(&resource_updated("r:1")).await;
    assert_eq!(
        (a.received_messages().len(), b.received_messages().len()),
        (0, 1)
    );
    assert_eq!(seen_subscriptions(&scene), first);
    b.link.close().await;
    assert_eq!(
        seen_subscriptions(&scene)[2..],
        [pair("unsubscribe", "r:1")]
    );
    c.send(&request(2, "unsubscribe", "r:2")).await;
    assert_eq!(
        seen_subscriptions(&scene)[3..],
        [pair("unsubscribe", "r:2")]
    );
}

#[tokio::test(start_paused = true)]
async fn concurrent_subscribers_get_the_same_answer() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&request(1, "subscribe", "r:1")).await;
    b.send(&request(2, "subscribe", "r:1")).await;
    assert_eq!(b.received_messages(), Vec::<String>::new());
    scene
        .say(r#"{"jsonrpc":"2.0","id":"riglm:s:1","error":{"code":-32002,"message":"no"}}"#)
        .await;
    let refusal = |id: u32| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32002,"message":"no"}}}} on {id}"#)
    };
    assert_eq!(
        (a.received_messages(), b.received_messages()),
        (vec![refusal(1)], vec![refusal(2)])
    );
    b.send(&request(3, "subscribe", "r:1")).await;
    assert_eq!(seen_subscriptions(&scene).len(), 2);
}

#[tokio::test(start_paused = true)]
async fn cancelled_subscriptions_are_requested_again() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&request(1, "subscribe", "r:1")).await;
    a.send(r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    b.send(&request(1, "subscribe", "r:1")).await;
    let methods: Vec<String> = seen_subscriptions(&scene)
        .into_iter()
        .map(|(method, _)| method)
        .collect();
    assert_eq!(
        methods,
        ["subscribe", "notifications/cancelled", "subscribe"]
    );
}
