//! Clients of revision 2026-07-28 in front of several upstreams.

use std::sync::Arc;

use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::RequestId;
use riglm_ports::downstream::Route;
use riglm_ports::fake::ScriptedUpstream;
use serde_json::{Value, json};

use super::scene::{Scene, Setup, lists, names, upstream};

fn modern(params: Value) -> Value {
    let mut params = params;
    params["_meta"] = json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
    });
    params
}

fn pair() -> Scene {
    let scene = Setup::default().scene(vec![upstream("a", &["x"]), upstream("b", &["y"])]);
    for (upstream, extra) in scene
        .upstreams
        .iter()
        .zip([r#""tools":{}"#, r#""prompts":{}"#])
    {
        let result = format!(
            r#""result":{{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{{{extra}}}}}"#
        );
        upstream.reply_to("server/discover", &result);
        upstream.with_streams();
    }
    scene
}

#[tokio::test]
async fn discovery_is_answered_for_all_upstreams() {
    let scene = pair();
    let answer = scene.ask(1, "server/discover", modern(json!({}))).await;
    let result = &answer["result"];
    assert_eq!(result["supportedVersions"][0], "2026-07-28");
    assert_eq!(
        result["capabilities"],
        json!({"tools": {"listChanged": true}, "prompts": {"listChanged": true}})
    );
    assert_eq!(
        (&result["ttlMs"], &result["cacheScope"]),
        (&json!(0), &json!("private"))
    );
    assert_eq!(result["resultType"], "complete");
    assert_eq!(scene.session.revision().unwrap().as_str(), "2026-07-28");
}

#[tokio::test]
async fn merged_lists_have_the_shortest_ttl_and_narrowest_scope() {
    let scene = pair();
    for (upstream, ttl) in scene.upstreams.iter().zip([5_000, 3_000]) {
        let result = format!(
            r#""result":{{"resultType":"complete","tools":[{{"name":"t"}}],"ttlMs":{ttl},"cacheScope":"public"}}"#
        );
        upstream.reply_to("tools/list", &result);
    }
    let answer = scene.ask(1, "tools/list", modern(json!({}))).await;
    assert_eq!(names(&answer), ["a__t", "b__t"]);
    assert_eq!(answer["result"]["ttlMs"], 3_000);
    assert_eq!(answer["result"]["cacheScope"], "public");
    let asked = scene.sent_messages(0).pop().unwrap();
    assert_eq!(asked["params"], modern(json!({})));
}

#[tokio::test]
async fn modern_requests_without_capabilities_or_known_revision_are_refused() {
    let scene = pair();
    let mut params = modern(json!({}));
    let meta = params["_meta"].as_object_mut().unwrap();
    meta.remove("io.modelcontextprotocol/clientCapabilities");
    let answer = scene.ask(1, "tools/list", params).await;
    assert_eq!(answer["error"]["code"], -32602);
    let mut params = modern(json!({}));
    params["_meta"]["io.modelcontextprotocol/protocolVersion"] = "1900-01-01".into();
    let answer = scene.ask(2, "tools/list", params).await;
    assert_eq!(answer["error"]["code"], -32022);
    assert_eq!(answer["error"]["data"]["requested"], "1900-01-01");
}

#[tokio::test]
async fn subscriptions_merge_notifications_of_all_upstreams() {
    let scene = pair();
    let filter = json!({"toolsListChanged": true, "resourceSubscriptions": ["r://1"]});
    let params = modern(json!({"notifications": filter}));
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
        "params": params});
    scene.start(&listen).await;
    let subscription = |id: &Value| json!({"io.modelcontextprotocol/subscriptionId": id});
    for (number, uris) in [(0, json!(["r://1"])), (1, json!([]))] {
        let asked = scene
            .sent_such(number, |sent| sent["method"] == "subscriptions/listen")
            .await;
        let ack = json!({"jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": subscription(&asked["id"]),
                "notifications": {"resourceSubscriptions": uris}}});
        scene.upstreams[number]
            .send_to_client(&ack.to_string(), None)
            .await;
    }
    let ack = scene
        .delivered_such(|message| message["method"] == "notifications/subscriptions/acknowledged")
        .await;
    assert_eq!(ack["params"]["notifications"], filter);
    assert_eq!(ack["params"]["_meta"], subscription(&json!("l")));

    let asked = scene
        .sent_such(0, |sent| sent["method"] == "subscriptions/listen")
        .await;
    for method in [
        "notifications/tools/list_changed",
        "notifications/resources/updated",
    ] {
        let told = json!({"jsonrpc": "2.0", "method": method,
            "params": {"_meta": subscription(&asked["id"]), "uri": "r://1"}});
        scene.upstreams[0]
            .send_to_client(&told.to_string(), None)
            .await;
        let told = scene
            .delivered_such(|message| message["method"] == method)
            .await;
        assert_eq!(told["params"]["_meta"], subscription(&json!("l")));
    }
    let (_, route) = scene.delivered_messages().pop().unwrap();
    assert_eq!(route, Route::Related(RequestId::Text("l".into())));

    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled",
        "params": {"requestId": "l"}});
    scene.send(&cancel).await;
    for number in 0..2 {
        let cancelled = scene
            .sent_such(number, |sent| sent["method"] == "notifications/cancelled")
            .await;
        let asked = scene
            .sent_such(number, |sent| sent["method"] == "subscriptions/listen")
            .await;
        assert_eq!(cancelled["params"]["requestId"], asked["id"]);
    }
}

#[tokio::test]
async fn a_private_list_makes_the_merged_list_private() {
    let slow = Arc::new(ScriptedUpstream::new(UpstreamName::parse("b").unwrap()));
    let scene = Setup::default().scene(vec![upstream("a", &[]), slow]);
    let list = |name: &str, scope: &str| json!({"resultType": "complete", "tools": [{"name": name}], "ttlMs": 9, "cacheScope": scope});
    let public = format!(r#""result":{}"#, list("x", "public"));
    scene.upstreams[0].reply_to("tools/list", &public);
    let request = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list",
        "params": modern(json!({}))});
    scene.start(&request).await;
    let asked = scene
        .sent_such(1, |sent| sent["method"] == "tools/list")
        .await;
    let answer = json!({"jsonrpc": "2.0", "id": asked["id"], "result": list("y", "private")});
    scene.upstreams[1]
        .send_to_client(&answer.to_string(), None)
        .await;
    let listed = scene.delivered_such(|message| message["id"] == 1).await;
    assert_eq!(listed["result"]["cacheScope"], "private");
    // The next time it is late, and its last known list is shown.
    let listed = scene.ask(2, "tools/list", modern(json!({}))).await;
    assert_eq!(names(&listed), ["a__x", "b__y"]);
    assert_eq!(listed["result"]["cacheScope"], "private");
}

#[tokio::test]
async fn all_pages_of_a_list_have_one_scope() {
    let mut setup = Setup::default();
    setup.limits.list_page_entries = 1;
    let scene = setup.scene(vec![upstream("a", &[]), upstream("b", &[])]);
    let result = r#""result":{"resultType":"complete","tools":[{"name":"t"}],"ttlMs":9,"cacheScope":"public"}"#;
    for upstream in &scene.upstreams {
        upstream.reply_to("tools/list", result);
    }
    let first = scene.ask(1, "tools/list", modern(json!({}))).await;
    let cursor = modern(json!({"cursor": first["result"]["nextCursor"]}));
    let second = scene.ask(2, "tools/list", cursor).await;
    assert_eq!(names(&second), ["b__t"]);
    assert_eq!(
        first["result"]["cacheScope"],
        second["result"]["cacheScope"]
    );
}

#[tokio::test]
async fn the_first_request_of_a_changed_list_does_not_suppress_notifications() {
    let scene = pair();
    let filter = json!({"toolsListChanged": true});
    let listen = json!({"jsonrpc": "2.0", "id": "l", "method": "subscriptions/listen",
        "params": modern(json!({"notifications": filter}))});
    scene.start(&listen).await;
    for upstream in 0..2 {
        let is_listen = |sent: &Value| sent["method"] == "subscriptions/listen";
        let asked = scene.sent_such(upstream, is_listen).await;
        let ack = json!({"jsonrpc": "2.0",
            "method": "notifications/subscriptions/acknowledged",
            "params": {"_meta": {"io.modelcontextprotocol/subscriptionId": asked["id"]},
                "notifications": filter}});
        scene.upstreams[upstream]
            .send_to_client(&ack.to_string(), None)
            .await;
    }
    let acknowledged = "notifications/subscriptions/acknowledged";
    scene
        .delivered_such(|message| message["method"] == acknowledged)
        .await;
    let one = scene.ask(1, "tools/list", modern(json!({}))).await;
    assert_eq!(names(&one), ["a__x", "b__y"]);
    lists(&scene.upstreams[0], &["new"]);
    let changed = "notifications/tools/list_changed";
    let say = json!({"jsonrpc": "2.0", "method": changed}).to_string();
    scene.upstreams[0].send_to_client(&say, None).await;
    // Another client of the session requests the list before the first one is notified.
    let other = scene.ask(2, "tools/list", modern(json!({}))).await;
    assert_eq!(names(&other), ["a__new", "b__y"]);
    scene
        .delivered_such(|message| message["method"] == changed)
        .await;
}
