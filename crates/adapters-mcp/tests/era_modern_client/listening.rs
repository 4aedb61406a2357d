//! `subscriptions/listen` over the notifications of legacy servers.

use std::time::Duration;

use riglm_domain::mcp::message::RequestId;
use riglm_ports::upstream::UpstreamError;
use serde_json::json;

use crate::scene::{Report, Scene};

const SHORT: Duration = Duration::from_secs(1);
const TOOLS_CHANGED: &str = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed"}"#;

fn resource_updated(uri: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{{"uri":"{uri}","n":1.0}}}}"#
    )
}

async fn listen(scene: &Scene, id: &str, filter: &str) -> Report {
    scene
        .upstream
        .reply_to("resources/unsubscribe", r#""result":{}"#);
    let params = format!(r#""notifications":{filter}"#);
    scene.request(id, "subscriptions/listen", &params, "").await;
    scene.next().await
}

#[tokio::test(start_paused = true)]
async fn the_supported_filter_is_acknowledged_first() {
    let scene = Scene::new();
    scene
        .upstream
        .reply_to("resources/subscribe", r#""result":{}"#);
    let all = r#"{"toolsListChanged":true,"promptsListChanged":true,"resourcesListChanged":true,"resourceSubscriptions":["b","a"]}"#;
    let report = listen(&scene, r#""l""#, all).await;
    assert_eq!(
        report.text(),
        r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":"l"},"notifications":{"toolsListChanged":true,"resourceSubscriptions":["b","a"]}}}"#
    );
    assert_eq!(report.related_id(), r#""l""#);
    assert_eq!(scene.n_sent("resources/subscribe"), 2);
}

#[tokio::test(start_paused = true)]
async fn refused_subscriptions_are_not_acknowledged() {
    let scene = Scene::new();
    scene.upstream.reply_to(
        "resources/subscribe",
        r#""error":{"code":-1,"message":"m"}"#,
    );
    let report = listen(&scene, "1", r#"{"resourceSubscriptions":["a"]}"#).await;
    let honoured = report.json()["params"]["notifications"].clone();
    assert_eq!(honoured, json!({"resourceSubscriptions": []}));
    scene.say(&resource_updated("a")).await;
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn changes_reach_every_subscribed_listener() {
    let scene = Scene::new();
    scene
        .upstream
        .reply_to("resources/subscribe", r#""result":{}"#);
    listen(
        &scene,
        "1",
        r#"{"toolsListChanged":true,"resourceSubscriptions":["a"]}"#,
    )
    .await;
    listen(&scene, "2", r#"{"toolsListChanged":true}"#).await;
    scene.say(TOOLS_CHANGED).await;
    let mut told = [scene.next().await, scene.next().await];
    told.sort_by_key(Report::related_id);
    for (report, id) in told.iter().zip(["1", "2"]) {
        assert_eq!(
            report.text(),
            format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{{"_meta":{{"io.modelcontextprotocol/subscriptionId":{id}}}}}}}"#
            )
        );
        assert_eq!(report.related_id(), id);
    }
    scene.say(&resource_updated("a")).await;
    assert_eq!(
        scene.next().await.text(),
        r#"{"jsonrpc":"2.0","method":"notifications/resources/updated","params":{"uri":"a","n":1.0,"_meta":{"io.modelcontextprotocol/subscriptionId":1}}}"#
    );
    scene.say(&resource_updated("z")).await;
    let prompts = TOOLS_CHANGED.replace("tools", "prompts");
    scene.say(&prompts).await;
    scene.nothing_within(SHORT).await;
}

#[tokio::test(start_paused = true)]
async fn a_change_before_the_acknowledgement_comes_after_it() {
    let scene = Scene::new();
    let filter = r#""notifications":{"toolsListChanged":true,"resourceSubscriptions":["a"]}"#;
    let text = crate::scene::request(crate::scene::ALL, "1", "subscriptions/listen", filter, "");
    let opening = scene.send(&text);
    let serving = async {
        let sent = scene.sees("resources/subscribe").await;
        scene.say(TOOLS_CHANGED).await;
        let sent: serde_json::Value = serde_json::from_str(&sent).unwrap();
        scene
            .answer(sent["id"].as_str().unwrap(), r#""result":{}"#)
            .await;
    };
    let (sent, ()) = tokio::join!(opening, serving);
    sent.unwrap();
    assert!(scene.next().await.text().contains("acknowledged"));
    assert!(scene.next().await.text().contains("tools/list_changed"));
}

#[tokio::test(start_paused = true)]
async fn last_listeners_end_their_upstream_subscription() {
    let scene = Scene::new();
    scene
        .upstream
        .reply_to("resources/subscribe", r#""result":{}"#);
    listen(&scene, "1", r#"{"resourceSubscriptions":["a","b"]}"#).await;
    listen(&scene, "2", r#"{"resourceSubscriptions":["b"]}"#).await;
    scene.cancel("1").await;
    scene.sees("resources/unsubscribe").await;
    scene.nothing_within(SHORT).await;
    assert_eq!(scene.n_sent("resources/unsubscribe"), 1);
    assert!(scene.last().contains(r#"{"uri":"a"}"#));
    scene.say(&resource_updated("b")).await;
    assert_eq!(scene.next().await.related_id(), "2");
    scene.cancel("2").await;
    scene.nothing_within(SHORT).await;
    assert!(scene.last().contains(r#"{"uri":"b"}"#));
    assert_eq!(scene.n_sent("notifications/cancelled"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_listener_survives_the_loss_of_its_connection() {
    let scene = Scene::new();
    scene
        .upstream
        .reply_to("resources/subscribe", r#""result":{}"#);
    listen(&scene, "1", r#"{"resourceSubscriptions":["a"]}"#).await;
    scene
        .upstream
        .lose_connection(UpstreamError::NoAnswer)
        .await;
    scene.nothing_within(SHORT).await;
    assert_eq!(
        (
            scene.n_sent("initialize"),
            scene.n_sent("resources/subscribe")
        ),
        (2, 2)
    );
    scene.say(&resource_updated("a")).await;
    assert_eq!(scene.next().await.related_id(), "1");
}

#[tokio::test(start_paused = true)]
async fn a_listener_is_unanswered_after_repeated_failure() {
    let scene = Scene::new();
    listen(&scene, "1", r#"{"toolsListChanged":true}"#).await;
    for _ in 0..6 {
        scene.upstream.refuse_connection(UpstreamError::NoAnswer);
    }
    scene
        .upstream
        .lose_connection(UpstreamError::NoAnswer)
        .await;
    let Report::Unanswered(id, UpstreamError::Lost { .. }) = scene.next().await else {
        panic!("it ends");
    };
    assert_eq!(id, RequestId::Number("1".into()));
    scene.nothing_within(Duration::from_mins(1)).await;
    assert_eq!(scene.upstream.connections().0, 1);
}

#[tokio::test(start_paused = true)]
async fn listeners_fail_at_once_without_a_connection() {
    let scene = Scene::new();
    scene.upstream.refuse_connection(UpstreamError::NoAnswer);
    let report = listen(&scene, "1", r#"{"toolsListChanged":true}"#).await;
    let id = RequestId::Number("1".into());
    assert_eq!(report, Report::Unanswered(id, UpstreamError::NoAnswer));
}

#[tokio::test(start_paused = true)]
async fn an_open_listener_keeps_its_connection() {
    let scene = Scene::new();
    listen(&scene, "1", r#"{"toolsListChanged":true}"#).await;
    scene.nothing_within(Duration::from_mins(30)).await;
    assert_eq!(scene.upstream.connections(), (1, 0));
    scene.cancel("1").await;
    scene.nothing_within(Duration::from_mins(11)).await;
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_to_listen_without_a_filter_is_refused() {
    let scene = Scene::new();
    scene.request("1", "subscriptions/listen", "", "").await;
    assert_eq!(scene.next().await.json()["error"]["code"], -32602);
    assert_eq!(scene.upstream.connections(), (0, 0));
}
