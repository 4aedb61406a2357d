//! Changes of lists while clients are connected.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use async_trait::async_trait;
use riglm_app::proxy::Unavailable;
use riglm_domain::mcp::message::{Message, RequestId};
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::downstream::{ClientLink, Route};
use serde_json::{Value, json};

use super::scene::{Scene, Setup, lists, names, proxy_config, upstream};

const CHANGED: &str = "notifications/tools/list_changed";

fn n_changed(scene: &Scene) -> usize {
    let delivered = scene.delivered_messages();
    let is_change = |message: &Value| message["method"] == CHANGED;
    delivered
        .iter()
        .filter(|(message, _)| is_change(message))
        .count()
}

#[tokio::test]
async fn changes_of_several_upstreams_give_one_notification() {
    let scene = Setup::default().scene(vec![upstream("a", &[]), upstream("b", &[])]);
    scene.initialize().await;
    scene.tools(1).await;
    for upstream in &scene.upstreams {
        upstream.reply_to("tools/list", r#""result":{"tools":[{"name":"new"}]}"#);
        for _ in 0..5 {
            let text = json!({"jsonrpc": "2.0", "method": CHANGED}).to_string();
            upstream.send_to_client(&text, None).await;
        }
    }
    scene.list_changed().await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(n_changed(&scene), 1);
}

#[tokio::test]
async fn unchanged_or_unrequested_lists_give_no_notification() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    let say = json!({"jsonrpc": "2.0", "method": CHANGED}).to_string();
    scene.upstreams[0].send_to_client(&say, None).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    scene.tools(1).await;
    scene.upstreams[0].send_to_client(&say, None).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    assert_eq!(n_changed(&scene), 0);
}

#[tokio::test]
async fn adding_an_upstream_sends_nothing_to_others() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.tools(1).await;
    let before: Vec<_> = (0..2).map(|number| scene.sent_messages(number)).collect();
    let mut all = scene.upstreams.clone();
    all.push(upstream("c", &["z"]));
    scene
        .proxy
        .replace_upstreams(proxy_config(&all, Unavailable::Hide));
    scene.list_changed().await;
    let after: Vec<_> = (0..2).map(|number| scene.sent_messages(number)).collect();
    assert_eq!(before, after);
    assert_eq!(scene.tools(2).await, ["a__x", "b__y", "c__z"]);
    let connections: Vec<_> = all.iter().map(|upstream| upstream.connections()).collect();
    assert_eq!(connections, [(1, 0), (1, 0), (1, 0)]);
}

#[tokio::test]
async fn removed_upstreams_are_closed_and_others_stay() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.tools(1).await;
    scene
        .proxy
        .replace_upstreams(proxy_config(&scene.upstreams[1..], Unavailable::Hide));
    scene.list_changed().await;
    assert_eq!(scene.tools(2).await, ["y"]);
    // Clients that still know it by its long name may use that name.
    scene.upstreams[1].reply_to("tools/call", r#""result":{}"#);
    let waiting = async {
        while scene.upstreams[0].connections() != (1, 1) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), waiting)
        .await
        .unwrap();
    assert_eq!(scene.upstreams[1].connections(), (1, 0));
}

#[tokio::test]
async fn upstreams_added_at_runtime_join_existing_sessions() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"])]);
    scene.initialize().await;
    assert_eq!(scene.tools(1).await, ["x"]);
    let mut all = scene.upstreams.clone();
    all.push(upstream("b", &["y"]));
    // A call in flight is answered during the change.
    let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call", "params": {"name": "x"}});
    scene.start(&call).await;
    let asking = json!({"jsonrpc": "2.0", "id": 9, "method": "roots/list"});
    scene.upstreams[0]
        .send_to_client(&asking.to_string(), None)
        .await;
    scene
        .proxy
        .replace_upstreams(proxy_config(&all, Unavailable::Hide));
    scene.list_changed().await;
    let roots = json!({"jsonrpc": "2.0", "id": 9, "result": {"roots": []}});
    scene.send(&roots).await;
    assert_eq!(scene.sent_messages(0).pop().unwrap(), roots);
    let answer = json!({"jsonrpc": "2.0", "id": 2, "result": {"late": true}});
    scene.upstreams[0]
        .send_to_client(&answer.to_string(), None)
        .await;
    assert_eq!(
        scene.delivered_such(|message| message["id"] == 2).await,
        answer
    );
    assert_eq!(scene.tools(3).await, ["a__x", "b__y"]);
    // The name that the client knows from before still works.
    scene.upstreams[0].reply_to("tools/call", r#""result":{"n":1}"#);
    let answer = scene.ask(4, "tools/call", json!({"name": "x"})).await;
    assert_eq!(answer["result"]["n"], 1);
}

#[tokio::test]
async fn a_list_in_flight_is_answered_once_when_an_upstream_joins() {
    let slow = upstream("a", &["x"]);
    // No answer to the client's request: it is given below.
    slow.reply_to("tools/list", "");
    let scene = Setup::default().scene(vec![slow]);
    scene.initialize().await;
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}});
    scene.start(&list).await;
    scene
        .sent_such(0, |sent| sent["method"] == "tools/list")
        .await;
    let mut all = scene.upstreams.clone();
    all.push(upstream("b", &["y"]));
    scene
        .proxy
        .replace_upstreams(proxy_config(&all, Unavailable::Hide));
    lists(&scene.upstreams[0], &["x"]);
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {"tools": [{"name": "x"}]}});
    scene.upstreams[0]
        .send_to_client(&answer.to_string(), None)
        .await;
    let answer = scene.delivered_such(|message| message["id"] == 1).await;
    assert_eq!(names(&answer), ["x"]);
    assert_eq!(scene.tools(2).await, ["a__x", "b__y"]);
    let delivered = scene.delivered_messages().into_iter();
    let answers = delivered.filter(|(message, _)| message["id"] == 1);
    assert_eq!(answers.count(), 1);
}

#[tokio::test]
async fn unchanged_upstreams_keep_their_connections() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.tools(1).await;
    let set = proxy_config(&scene.upstreams, Unavailable::Hide);
    scene.proxy.replace_upstreams(set.clone());
    let mut changed = set;
    changed[1].fingerprint = "other".into();
    scene.proxy.replace_upstreams(changed);
    let asked_again = async {
        while scene.upstreams[1].connections().0 < 2 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(5), asked_again)
        .await
        .unwrap();
    assert_eq!(scene.tools(2).await, ["a__x", "b__y"]);
    assert_eq!(scene.upstreams[0].connections(), (1, 0));
    assert_eq!(scene.upstreams[1].connections().0, 2);
    assert_eq!(n_changed(&scene), 0);
}

/// A client that accepts nothing; it counts the messages offered to it.
#[derive(Debug, Default)]
struct BlockedClient(AtomicUsize);

#[async_trait]
impl ClientLink for BlockedClient {
    async fn deliver(&self, _message: Message, _route: Route) {
        self.0.fetch_add(1, Ordering::Relaxed);
        std::future::pending::<()>().await;
    }

    async fn finish(&self, _request: &RequestId) {}

    async fn close(&self) {}
}

#[tokio::test(start_paused = true)]
async fn list_changes_do_not_accumulate_for_stalled_clients() {
    let scene = Setup::default().scene(vec![upstream("a", &[]), upstream("b", &[])]);
    let client = Arc::new(BlockedClient::default());
    let session = scene
        .proxy
        .accept(
            Transport::StreamableHttp,
            &Principal::local(),
            client.clone(),
        )
        .unwrap();
    let initialize = json!({"jsonrpc": "2.0", "id": 0, "method": "initialize",
        "params": {"protocolVersion": "2025-11-25", "capabilities": {}}});
    let list = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"});
    for message in [initialize, list] {
        let message = Message::from_text(message.to_string()).unwrap();
        let exchange = session.receive(message).await.unwrap().unwrap();
        tokio::spawn(exchange.run);
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    for n in 0..50 {
        let listed = format!(r#""result":{{"tools":[{{"name":"tool-{n}"}}]}}"#);
        scene.upstreams[0].reply_to("tools/list", &listed);
        tokio::time::sleep(Duration::from_millis(200)).await;
        let text = json!({"jsonrpc": "2.0", "method": CHANGED}).to_string();
        scene.upstreams[0].send_to_client(&text, None).await;
    }
    // The answers to the handshake and to the request for the list, and one change.
    assert_eq!(client.0.load(Ordering::Relaxed), 3);
}

#[tokio::test]
async fn removed_upstreams_still_receive_answers_and_cancellations() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    for id in [1, 2] {
        let call = json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
            "params": {"name": "a__x"}});
        scene.start(&call).await;
    }
    let asking = json!({"jsonrpc": "2.0", "id": 9, "method": "elicitation/create"});
    scene.upstreams[0]
        .send_to_client(&asking.to_string(), None)
        .await;
    let (asked, _) = scene.delivered_messages().pop().unwrap();
    scene
        .proxy
        .replace_upstreams(proxy_config(&scene.upstreams[1..], Unavailable::Hide));
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": {}});
    scene.send(&answer).await;
    assert_eq!(scene.sent_messages(0).pop().unwrap()["id"], 9);
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": 2}});
    scene.send(&cancel).await;
    assert_eq!(scene.sent_messages(0).pop().unwrap(), cancel);
    // The end of the session is the end of that upstream too.
    scene.session.close().await;
    assert_eq!(scene.upstreams[0].connections(), (1, 1));
}

#[tokio::test]
async fn unchanged_upstream_sets_leave_sessions_unchanged() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"])]);
    scene.initialize().await;
    scene
        .proxy
        .replace_upstreams(proxy_config(&scene.upstreams, Unavailable::Hide));
    scene.upstreams[0].reply_to("tools/list", r#""result":{"tools":[],"x":1e3}"#);
    scene.ask(1, "tools/list", json!({})).await;
    let (listed, _) = scene.client.delivered_messages().pop().unwrap();
    assert!(listed.contains(r#""x":1e3"#), "{listed}");
}

#[tokio::test]
async fn mirrored_arguments_stay_known_after_reconfiguration() {
    let mut scene = Setup::default().scene(vec![upstream("a", &[])]);
    let tools = json!({"tools": [{"name": "x", "inputSchema": {"type": "object",
        "properties": {"k": {"type": "string", "x-mcp-header": "K"}}}}]});
    scene.upstreams[0].reply_to("tools/list", &format!(r#""result":{tools}"#));
    scene.upstreams[0].reply_to("tools/call", r#""result":{}"#);
    for fingerprint in ["one", "two"] {
        let mut set = proxy_config(&scene.upstreams, Unavailable::Hide);
        set[0].fingerprint = fingerprint.into();
        scene.proxy.replace_upstreams(set);
        scene.change_client();
        scene.initialize().await;
        scene.ask(1, "tools/list", json!({})).await;
        let call = json!({"jsonrpc": "2.0", "id": 2, "method": "tools/call",
            "params": {"name": "x", "arguments": {"k": "v"}}});
        let call = Message::from_text(call.to_string()).unwrap();
        let without_headers = call.with_param_headers(Vec::new());
        scene.session.receive(without_headers).await.unwrap();
        let (refused, _) = scene.delivered_messages().pop().unwrap();
        assert_eq!(refused["error"]["code"], -32020, "{fingerprint}");
    }
}

#[tokio::test(start_paused = true)]
async fn upstreams_with_frequent_list_changes_are_asked_less_often() {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    scene.initialize().await;
    scene.tools(1).await;
    let say = json!({"jsonrpc": "2.0", "method": CHANGED}).to_string();
    let n_asked = || {
        let sent = scene.sent_messages(0);
        let lists = sent.iter().filter(|sent| sent["method"] == "tools/list");
        lists.count()
    };
    for _ in 0..200 {
        scene.upstreams[0].send_to_client(&say, None).await;
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!((3..10).contains(&n_asked()), "{}", n_asked());
    // The last change is reported in the end, and the next one soon.
    for name in ["new", "newer"] {
        let listed = format!(r#""result":{{"tools":[{{"name":"{name}"}}]}}"#);
        scene.upstreams[0].reply_to("tools/list", &listed);
        let n_before = n_changed(&scene);
        scene.upstreams[0].send_to_client(&say, None).await;
        let limit = if name == "new" { 60_000 } else { 300 };
        tokio::time::sleep(Duration::from_millis(limit)).await;
        assert_eq!(n_changed(&scene), n_before + 1, "{name}");
        scene.tools(2).await;
    }
}
