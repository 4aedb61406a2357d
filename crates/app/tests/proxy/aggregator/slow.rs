//! Slow upstreams, and their effect on other upstreams and on clients that do not wait.

use std::sync::Arc;
use std::time::Duration;

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::fake::ScriptedUpstream;
use riglm_ports::upstream::UpstreamError;
use serde_json::{Value, json};

use super::scene::{Scene, Setup, lists, upstream};

const INITIALIZED: &str = "notifications/initialized";

/// Returns an upstream that leaves its handshakes unanswered.
fn slow(name: &str, tools: &[&str]) -> Arc<ScriptedUpstream> {
    let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse(name).unwrap()));
    lists(&upstream, tools);
    upstream
}

/// Makes an upstream answer its last handshake request.
async fn answer_handshake(scene: &Scene, number: usize) {
    let asked = scene
        .sent_such(number, |sent| sent["method"] == "initialize")
        .await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {
        "protocolVersion": "2025-11-25", "capabilities": {"tools": {}},
        "serverInfo": {"name": "s", "version": "1"}}});
    scene.upstreams[number]
        .send_to_client(&answer.to_string(), None)
        .await;
}

fn call(id: u32, name: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": name}})
}

fn cancel(id: u32) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}})
}

fn number(id: u32) -> RequestId {
    RequestId::Number(id.to_string().into())
}

fn n_sent(scene: &Scene, number: usize, method: &str) -> usize {
    let sent = scene.sent_messages(number);
    sent.iter().filter(|sent| sent["method"] == method).count()
}

async fn until(is_reached: impl Fn() -> bool) {
    let waiting = async {
        while !is_reached() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), waiting)
        .await
        .unwrap();
}

#[tokio::test]
async fn late_upstreams_receive_the_initialized_notification() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), slow("b", &["y"])]);
    scene.initialize().await;
    assert_eq!(n_sent(&scene, 1, INITIALIZED), 0);
    answer_handshake(&scene, 1).await;
    assert_eq!(scene.tools(1).await, ["a__x", "b__y"]);
    for number in 0..2 {
        let methods: Vec<Value> = scene
            .sent_messages(number)
            .iter()
            .map(|sent| sent["method"].clone())
            .collect();
        assert_eq!(methods[..2], ["initialize", INITIALIZED], "{number}");
        assert_eq!(n_sent(&scene, number, INITIALIZED), 1);
    }
}

#[tokio::test]
async fn messages_to_a_starting_upstream_delay_no_others() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), slow("b", &["y"])]);
    scene.initialize().await;
    scene.upstreams[0].reply_to("tools/call", r#""result":{"by":"a"}"#);
    let message = Message::from_text(call(1, "b__y").to_string()).unwrap();
    let taken = tokio::time::timeout(Duration::from_secs(2), scene.session.receive(message));
    let exchange = taken.await.unwrap().unwrap().unwrap();
    tokio::spawn(exchange.run);
    let answer = scene.ask(2, "tools/call", json!({"name": "a__x"})).await;
    assert_eq!(answer["result"]["by"], "a");
    scene.upstreams[1].reply_to("tools/call", r#""result":{"by":"b"}"#);
    answer_handshake(&scene, 1).await;
    let answer = scene.delivered_such(|message| message["id"] == 1).await;
    assert_eq!(answer["result"]["by"], "b");
}

#[tokio::test]
async fn calls_cancelled_before_connecting_are_never_sent() {
    for others in [vec![], vec![upstream("a", &["x"])]] {
        let n_others = others.len();
        let all = [others, vec![slow("b", &["y"])]].concat();
        let scene = Arc::new(Setup::default().scene(all));
        let b = n_others;
        let starting = Arc::clone(&scene);
        let initializing = tokio::spawn(async move { starting.initialize().await });
        answer_handshake(&scene, b).await;
        initializing.await.unwrap();
        let name = if b == 0 { "y" } else { "b__y" };
        let reason = "it ended".into();
        scene.upstreams[b]
            .lose_connection(UpstreamError::Lost { reason })
            .await;
        let calling = Arc::clone(&scene);
        let message = call(1, name);
        tokio::spawn(async move { calling.start(&message).await });
        until(|| n_sent(&scene, b, "initialize") == 2).await;
        scene.send(&cancel(1)).await;
        until(|| scene.client.finished_requests().contains(&number(1))).await;
        tokio::task::yield_now().await;
        answer_handshake(&scene, b).await;
        scene.upstreams[b].reply_to("tools/call", r#""result":{}"#);
        scene.ask(2, "tools/call", json!({"name": name})).await;
        assert_eq!(n_sent(&scene, b, "tools/call"), 1, "{n_others}");
        // The connection of the cancelled request serves the next one.
        assert_eq!(scene.upstreams[b].connections(), (2, 0));
    }
}

#[tokio::test]
async fn late_answers_to_cancelled_requests_are_dropped() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "acme/do",
        "params": {"_meta": {"progressToken": "p"}}});
    scene.start(&request).await;
    let asked = scene.sent_such(0, |sent| sent["method"] == "acme/do").await;
    scene.send(&cancel(1)).await;
    scene
        .sent_such(0, |sent| sent["method"] == "notifications/cancelled")
        .await;
    let n_delivered = scene.delivered_messages().len();
    let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress",
        "params": {"progressToken": "p", "progress": 1}});
    let id = RequestId::from_json(&asked["id"].to_string()).unwrap();
    scene.upstreams[0]
        .send_to_client(&progress.to_string(), Some(id))
        .await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}});
    scene.upstreams[0]
        .send_to_client(&answer.to_string(), None)
        .await;
    assert_eq!(scene.delivered_messages().len(), n_delivered);
}

#[tokio::test(start_paused = true)]
async fn ended_notification_streams_are_reopened_with_back_off() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    let meta = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
    });
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
        "params": {"notifications": {"toolsListChanged": true}, "_meta": meta}});
    scene.start(&listen).await;
    let end = async || {
        let asked = scene
            .sent_such(0, |sent| sent["method"] == "subscriptions/listen")
            .await;
        let ended = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
            "params": {"requestId": asked["id"]}});
        scene.upstreams[0]
            .send_to_client(&ended.to_string(), None)
            .await;
    };
    let n_opened = || n_sent(&scene, 0, "subscriptions/listen");
    for n in 1..8 {
        until(|| n_opened() == n).await;
        end().await;
        // The wait doubles each time.
        tokio::time::sleep(Duration::from_millis(500 << n)).await;
    }
    until(|| n_opened() == 8).await;
    // A connection that lasted is opened again as soon as the first was.
    tokio::time::sleep(Duration::from_mins(1)).await;
    end().await;
    until(|| n_opened() == 9).await;
}

#[tokio::test(start_paused = true)]
async fn requests_without_known_owner_prefer_available_upstreams() {
    let scene = Setup::default().scene(vec![slow("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.upstreams[1].reply_to("resources/list", r#""result":{"resources":[]}"#);
    scene.upstreams[1].reply_to("resources/templates/list", r#""result":{}"#);
    scene.upstreams[1].reply_to("resources/read", r#""result":{"by":"b"}"#);
    let started = tokio::time::Instant::now();
    let answer = scene
        .ask(1, "resources/read", json!({"uri": "r://1"}))
        .await;
    assert_eq!(answer["result"]["by"], "b");
    // Both lists are requested in parallel.
    assert!(started.elapsed() < Duration::from_millis(450));
}

#[tokio::test]
async fn recovery_of_an_upstream_is_announced() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    for _ in 0..3 {
        scene.upstreams[0].refuse_connection(UpstreamError::Unreachable { reason: "gone" });
    }
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["b__y"]);
    scene.list_changed().await;
    assert_eq!(scene.tools(2).await, ["a__x", "b__y"]);
}

#[tokio::test]
async fn unresponsive_upstreams_are_waited_for_once() {
    let setup = Setup {
        limits: riglm_app::limits::Limits {
            unite_timeout: Duration::from_secs(2),
            ..riglm_app::limits::Limits::default()
        },
        ..Setup::default()
    };
    let scene = setup.scene(vec![slow("a", &[]), upstream("b", &["y"])]);
    let begun = std::time::Instant::now();
    scene.initialize().await;
    let handshake = begun.elapsed();
    let begun = std::time::Instant::now();
    for id in 1..4 {
        assert_eq!(scene.tools(id).await, ["b__y"]);
    }
    assert!(
        begun.elapsed() < handshake,
        "three lists took longer than one handshake"
    );
    assert_eq!(n_sent(&scene, 0, "initialize"), 1);
}

#[tokio::test]
async fn methods_known_to_one_upstream_are_not_tried_elsewhere() {
    let scene = Setup::default().scene(vec![upstream("a", &[]), upstream("b", &[])]);
    scene.initialize().await;
    scene.upstreams[0].reply_to(
        "acme/do",
        r#""error":{"code":-32603,"message":"half done"}"#,
    );
    let answer = scene.ask(1, "acme/do", json!({})).await;
    assert_eq!(answer["error"]["message"], "half done");
    assert_eq!(n_sent(&scene, 1, "acme/do"), 0);
}

#[tokio::test]
async fn unanswered_requests_make_upstreams_unavailable_until_the_next_answer() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &[])]);
    scene.initialize().await;
    let is_available = || scene.proxy.upstream_states()[0].is_available;
    assert!(is_available());
    scene.start(&call(1, "a__x")).await;
    let gone = UpstreamError::Unreachable { reason: "gone" };
    scene.upstreams[0].leave_unanswered(number(1), gone).await;
    assert!(!is_available());
    scene.upstreams[0].reply_to("tools/call", r#""result":{}"#);
    scene.ask(2, "tools/call", json!({"name": "a__x"})).await;
    assert!(is_available());
}

#[tokio::test]
async fn recovery_after_a_failed_late_list_is_announced() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.upstreams[0].reply_to("tools/list", "");
    assert_eq!(scene.tools(1).await, ["b__y"]);
    lists(&scene.upstreams[0], &["x"]);
    let reason = "it ended".into();
    scene.upstreams[0]
        .lose_connection(UpstreamError::Lost { reason })
        .await;
    scene.list_changed().await;
    assert_eq!(scene.tools(2).await, ["a__x", "b__y"]);
}

#[tokio::test]
async fn slow_upstreams_get_one_list_request_and_one_repetition() {
    let setup = Setup {
        limits: riglm_app::limits::Limits {
            unite_timeout: Duration::from_millis(50),
            ..riglm_app::limits::Limits::default()
        },
        ..Setup::default()
    };
    let scene = setup.scene(vec![upstream("a", &[]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.upstreams[0].reply_to("tools/list", "");
    for id in 1..6 {
        assert_eq!(scene.tools(id).await, ["b__y"]);
    }
    let n_asked = || n_sent(&scene, 0, "tools/list");
    assert_eq!(n_asked(), 1);
    let answer = async |name: &str| {
        let asked = scene
            .sent_such(0, |sent| sent["method"] == "tools/list")
            .await;
        let answer = json!({"jsonrpc": "2.0", "id": asked["id"],
            "result": {"tools": [{"name": name}]}});
        scene.upstreams[0]
            .send_to_client(&answer.to_string(), None)
            .await;
    };
    answer("old").await;
    // Later requests get the later list.
    until(|| n_asked() == 2).await;
    answer("new").await;
    lists(&scene.upstreams[0], &["new"]);
    assert_eq!(scene.tools(6).await, ["a__new", "b__y"]);
    assert_eq!(n_asked(), 3);
}
