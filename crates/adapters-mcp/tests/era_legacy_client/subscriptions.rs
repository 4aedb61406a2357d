//! Notifications to a legacy client.

use std::time::Duration;

use riglm_ports::upstream::UpstreamError;

use crate::scene::{Event, INITIALIZED, META, Scene, number, result, text};

const LISTEN: &str = "subscriptions/listen";

fn listen(n: usize, filter: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"riglm:listen:{n}","method":"subscriptions/listen","params":{{"_meta":{{{META}}},"notifications":{filter}}}}}"#
    )
}

fn notice(n: usize, method: &str, more: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/{method}","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":"riglm:listen:{n}"}}{more}}}}}"#
    )
}

fn acknowledgement(n: usize, filter: &str) -> String {
    let filter = format!(r#","notifications":{filter}"#);
    notice(n, "subscriptions/acknowledged", &filter)
}

fn cancellation(n: usize) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":"riglm:listen:{n}"}}}}"#
    )
}

fn change(id: u32, what: &str, uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"resources/{what}","params":{{"uri":"{uri}"}}}}"#
    )
}

const TOOLS: &str = r#"{"toolsListChanged":true}"#;
const WITH_A: &str = r#"{"toolsListChanged":true,"resourceSubscriptions":["a"]}"#;

/// Returns a client that is subscribed to all notifications of the server.
async fn listening() -> Scene {
    let scene = Scene::with_bridge().await;
    scene.send(INITIALIZED).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 1).await;
    scene.say(&acknowledgement(1, TOOLS)).await;
    scene.rest().await;
    scene
}

#[tokio::test(start_paused = true)]
async fn declared_notifications_reach_the_client() {
    let scene = listening().await;
    assert_eq!(scene.last_sent(), listen(1, TOOLS));
    let changed = notice(1, "tools/list_changed", r#","n":1.0"#);
    scene
        .upstream
        .send_to_client(&changed, Some(text("riglm:listen:1")))
        .await;
    let plain =
        r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"n":1.0}}"#;
    assert_eq!(scene.last_event(), Event::Received(plain.into(), None));
    // The acknowledgement is for the bridge, and so are messages of another stream.
    scene.say(&notice(9, "tools/list_changed", "")).await;
    assert_eq!(scene.received_messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn changed_subscriptions_replace_the_listen_stream() {
    let scene = listening().await;
    scene.send(&change(1, "subscribe", "a")).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 2).await;
    assert_eq!(scene.last_sent(), listen(2, WITH_A));
    let n_told = scene.received_messages().len();
    // Until then the first stream is in use.
    scene.say(&notice(1, "tools/list_changed", "")).await;
    assert_eq!(scene.received_messages().len(), n_told + 1);
    scene.say(&acknowledgement(2, WITH_A)).await;
    scene
        .until(|scene| scene.last_sent() == cancellation(1))
        .await;
    let done = Event::Received(result("1", "{}"), Some(number(1)));
    assert_eq!(scene.last_event(), done);
    scene.say(&notice(1, "tools/list_changed", "")).await;
    assert_eq!(scene.last_event(), done);
    scene
        .say(&notice(2, "resources/updated", r#","uri":"a""#))
        .await;
    assert!(scene.last_told().contains(r#""params":{"uri":"a"}"#));
    // The end of the first stream has no effect.
    scene
        .upstream
        .leave_unanswered(text("riglm:listen:1"), UpstreamError::NoAnswer)
        .await;
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(scene.n_sent(LISTEN), 2);
    scene.send(&change(2, "unsubscribe", "a")).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 3).await;
    assert_eq!(scene.last_sent(), listen(3, TOOLS));
    scene.say(&acknowledgement(3, TOOLS)).await;
    scene
        .until(|scene| scene.last_sent() == cancellation(2))
        .await;
    assert_eq!(scene.last_told(), result("2", "{}"));
}

#[tokio::test(start_paused = true)]
async fn subscriptions_to_unreported_resources_are_refused() {
    let scene = listening().await;
    scene.send(&change(1, "subscribe", "b")).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 2).await;
    scene.say(&acknowledgement(2, TOOLS)).await;
    scene
        .until(|scene| scene.last_sent() == cancellation(1))
        .await;
    let error = scene.last_told();
    assert!(
        error.starts_with(r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32602"#),
        "{error}"
    );
    assert!(error.contains(r#""data":{"uri":"b"}"#), "{error}");
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(scene.n_sent(LISTEN), 2);
}

#[tokio::test(start_paused = true)]
async fn refusals_and_silence_are_reported_to_subscribers() {
    let scene = listening().await;
    scene.send(&change(1, "subscribe", "b")).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 2).await;
    let error = r#"{"code":-32603,"message":"m","data":1.0}"#;
    scene
        .say(&format!(
            r#"{{"jsonrpc":"2.0","id":"riglm:listen:2","error":{error}}}"#
        ))
        .await;
    let answer = format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#);
    scene.until(|scene| scene.last_told() == answer).await;
    scene.send(&change(2, "subscribe", "c")).await;
    scene
        .until(|scene| scene.last_sent() == cancellation(3))
        .await;
    let unanswered = Event::Unanswered(number(2), UpstreamError::NoAnswer);
    assert_eq!(scene.last_event(), unanswered);
    // The current stream continues.
    scene.say(&notice(1, "tools/list_changed", "")).await;
    assert!(scene.last_told().contains("list_changed"));
}

#[tokio::test(start_paused = true)]
async fn requests_without_effect_are_answered_at_once() {
    let scene = listening().await;
    scene.send(&change(1, "unsubscribe", "never")).await;
    assert_eq!(scene.last_told(), result("1", "{}"));
    scene
        .send(r#"{"jsonrpc":"2.0","id":2,"method":"resources/subscribe"}"#)
        .await;
    assert!(scene.last_told().contains(r#""code":-32602"#));
    assert_eq!(scene.n_sent(LISTEN), 1);
}

#[tokio::test(start_paused = true)]
async fn ended_streams_are_reopened_with_back_off() {
    let scene = listening().await;
    let ends: [&(dyn Fn(usize) -> String + Sync); 3] = [
        &cancellation,
        &|n| result(&format!("\"riglm:listen:{n}\""), "{}"),
        &cancellation,
    ];
    let mut waits = Vec::new();
    for (n, end) in (2..).zip(ends) {
        let ended = tokio::time::Instant::now();
        scene.say(&end(n - 1)).await;
        scene.until(|scene| scene.n_sent(LISTEN) == n).await;
        waits.push(ended.elapsed());
        scene.say(&acknowledgement(n, TOOLS)).await;
        scene.rest().await;
    }
    assert!(waits.is_sorted_by(|a, b| *a + *a / 2 < *b), "{waits:?}");
    assert_eq!(scene.received_messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn servers_without_listen_streams_are_asked_once() {
    let scene = Scene::with_bridge().await;
    scene.send(INITIALIZED).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 1).await;
    scene
        .say(r#"{"jsonrpc":"2.0","id":"riglm:listen:1","error":{"code":-32601,"message":"m"}}"#)
        .await;
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(scene.n_sent(LISTEN), 1);
}

#[tokio::test(start_paused = true)]
async fn unacknowledged_streams_are_retried_up_to_a_limit() {
    let scene = Scene::with_bridge().await;
    scene.send(INITIALIZED).await;
    tokio::time::sleep(Duration::from_hours(24)).await;
    assert_eq!(scene.n_sent(LISTEN), 10);
    assert_eq!(scene.n_sent("notifications/cancelled"), 10);
}

#[tokio::test(start_paused = true)]
async fn no_stream_is_opened_for_servers_without_notifications() {
    let silent = r#""result":{"capabilities":{"tools":{},"resources":{}}}"#;
    let replies = [
        ("initialize", crate::scene::REFUSED),
        ("server/discover", silent),
    ];
    let scene = Scene::new(&replies).await;
    scene.send(crate::scene::HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    scene.send(INITIALIZED).await;
    scene.send(&change(1, "subscribe", "a")).await;
    assert!(scene.last_told().contains(r#""code":-32601"#));
    tokio::time::sleep(Duration::from_mins(1)).await;
    assert_eq!(scene.n_sent(LISTEN), 0);
}

#[tokio::test(start_paused = true)]
async fn the_last_unsubscription_closes_the_stream() {
    let quiet = r#""result":{"capabilities":{"resources":{"subscribe":true}}}"#;
    let replies = [
        ("initialize", crate::scene::REFUSED),
        ("server/discover", quiet),
    ];
    let scene = Scene::new(&replies).await;
    scene.send(crate::scene::HELLO).await;
    scene
        .until(|scene| !scene.received_messages().is_empty())
        .await;
    scene.send(&change(1, "subscribe", "a")).await;
    scene.until(|scene| scene.n_sent(LISTEN) == 1).await;
    scene
        .say(&acknowledgement(1, r#"{"resourceSubscriptions":["a"]}"#))
        .await;
    scene
        .until(|scene| scene.last_told() == result("1", "{}"))
        .await;
    scene.send(&change(2, "unsubscribe", "a")).await;
    scene
        .until(|scene| scene.last_told() == result("2", "{}"))
        .await;
    assert_eq!(scene.last_sent(), cancellation(1));
    assert_eq!(scene.n_sent(LISTEN), 1);
}
