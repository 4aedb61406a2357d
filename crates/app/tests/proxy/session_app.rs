//! The app of the proxy: its resource beside those of upstreams, its declaration, and its tool.

use std::sync::Arc;
use std::time::Duration;

use riglm_app::proxy::{ClientSession, OwnTool, OwnToolNames, Proxy, ProxyParts, Upstream};
use riglm_app::selection::{ListFilter, Pause};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::record::Record;
use riglm_ports::fake::{MemoryStore, RecordingClient, ScriptedUpstream};
use serde_json::{Value, json};

use crate::scene::HidingPolicy;

const URI: &str = "ui://riglm/session";
const UNKNOWN_METHOD: &str = r#""error":{"code":-32601,"message":"no such method"}"#;

/// A proxy whose app is on, with one client.
struct Scene {
    store: Arc<MemoryStore>,
    upstreams: Vec<Arc<ScriptedUpstream>>,
    client: Arc<RecordingClient>,
    proxy: Proxy,
    session: Arc<ClientSession>,
    /// The answer to the handshake.
    hello: Value,
}

fn apps() -> Value {
    let support = json!({"mimeTypes": ["text/html;profile=mcp-app"]});
    json!({"extensions": {"io.modelcontextprotocol/ui": support}})
}

/// Returns an upstream with these capabilities and two tools, of which one is hidden.
fn upstream(name: &str, capabilities: &Value) -> Arc<ScriptedUpstream> {
    let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse(name).unwrap()));
    let hello = json!({
        "protocolVersion": "2025-11-25",
        "capabilities": capabilities,
        "serverInfo": {"name": name, "version": "1"},
    });
    upstream.reply_to("initialize", &format!(r#""result":{hello}"#));
    let tools = json!({"tools": [{"name": "read"}, {"name": "hidden_write"}]});
    upstream.reply_to("tools/list", &format!(r#""result":{tools}"#));
    upstream.reply_to("tools/call", r#""result":{"content":[]}"#);
    for method in [
        "resources/list",
        "resources/templates/list",
        "resources/read",
    ] {
        upstream.reply_to(method, UNKNOWN_METHOD);
    }
    upstream
}

/// Returns a scene with a new session.
fn opened(upstreams: Vec<Arc<ScriptedUpstream>>) -> Scene {
    let store = Arc::new(MemoryStore::default());
    let configured = upstreams.iter().map(|one| Upstream::new(one.clone()));
    let proxy = Proxy::new(ProxyParts {
        recorder: testing::recorder(store.clone()),
        filter: ListFilter::new(Some(Arc::new(HidingPolicy))),
        search: Some(testing::search_by_words()),
        tools: OwnToolNames {
            show_session: Some("show_session".into()),
            ..testing::own_tools(Some("search"), false)
        },
        ..testing::proxy_parts(configured.collect())
    });
    let client = Arc::new(RecordingClient::default());
    let principal = Principal::local();
    let session = proxy.accept(Transport::StreamableHttp, &principal, client.clone());
    Scene {
        store,
        upstreams,
        client,
        proxy,
        session: session.unwrap(),
        hello: Value::Null,
    }
}

/// Returns a scene with an initialized session of a client with these capabilities.
async fn scene(upstreams: Vec<Arc<ScriptedUpstream>>, capabilities: Value) -> Scene {
    let mut scene = opened(upstreams);
    let params = json!({"protocolVersion": "2025-11-25", "capabilities": capabilities,
        "clientInfo": {"name": "c", "version": "1"}});
    scene.hello = scene.ask(0, "initialize", params).await;
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    scene.send(&initialized).await;
    scene
}

impl Scene {
    async fn send(&self, message: &Value) {
        let message = Message::from_text(message.to_string()).unwrap();
        if let Some(exchange) = self.session.receive(message).await.unwrap() {
            let limit = Duration::from_secs(10);
            tokio::time::timeout(limit, exchange.run).await.unwrap();
        }
    }

    async fn ask(&self, id: u32, method: &str, params: Value) -> Value {
        let request = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        self.send(&request).await;
        let waiting = async {
            loop {
                let delivered = self.client.delivered_messages().into_iter();
                let mut answers = delivered
                    .filter_map(|(text, _)| serde_json::from_str::<Value>(&text).ok())
                    .filter(|message| message["id"] == id && message.get("method").is_none());
                if let Some(answer) = answers.next() {
                    return answer;
                }
                tokio::time::sleep(Duration::from_millis(2)).await;
            }
        };
        let limit = Duration::from_secs(10);
        tokio::time::timeout(limit, waiting).await.unwrap()
    }

    fn capabilities(&self) -> &Value {
        &self.hello["result"]["capabilities"]
    }
}

fn members(entries: &Value, key: &str) -> Vec<String> {
    let entries = entries.as_array().unwrap().iter();
    let members = entries.map(|entry| entry[key].as_str().unwrap().to_owned());
    members.collect()
}

#[tokio::test]
async fn resources_are_declared_and_listed_where_no_upstream_has_any() {
    let only_tools = json!({"tools": {}});
    for names in [&["u"][..], &["a", "b"]] {
        let upstreams = names.iter().map(|name| upstream(name, &only_tools));
        let scene = scene(upstreams.collect(), apps()).await;
        let declared = scene.capabilities();
        assert!(declared["resources"].is_object(), "{names:?}: {declared}");
        assert!(declared["tools"].is_object(), "{names:?}: {declared}");
        let listed = scene.ask(1, "resources/list", json!({})).await;
        let uris = members(&listed["result"]["resources"], "uri");
        assert_eq!(uris, [URI], "{names:?}: {listed}");
        let templates = scene.ask(2, "resources/templates/list", json!({})).await;
        let templates = &templates["result"]["resourceTemplates"];
        assert_eq!(templates, &json!([]), "{names:?}");
        let page = scene.ask(3, "resources/read", json!({"uri": URI})).await;
        let page = page["result"]["contents"][0]["text"].as_str().unwrap();
        assert!(page.starts_with("<!doctype html>"), "{names:?}");
        assert!(page.contains(r#""show_session""#), "{names:?}");
        for upstream in &scene.upstreams {
            let sent = upstream.sent_messages();
            let is_read = |(_, text): &(usize, String)| text.contains("resources/read");
            assert!(!sent.iter().any(is_read), "{names:?}: {sent:?}");
        }
    }
}

#[tokio::test]
async fn resources_of_upstreams_stay_except_under_the_reserved_uri() {
    let capabilities = json!({"tools": {}, "resources": {"subscribe": true}});
    for names in [&["u"][..], &["a", "b"]] {
        let upstreams: Vec<Arc<ScriptedUpstream>> = names
            .iter()
            .map(|name| upstream(name, &capabilities))
            .collect();
        let taken = json!({"resources": [
            {"uri": URI, "name": "taken"},
            {"uri": "file:///one", "name": "one"},
        ]});
        upstreams[0].reply_to("resources/list", &format!(r#""result":{taken}"#));
        upstreams[0].reply_to("resources/read", r#""result":{"contents":[]}"#);
        let scene = scene(upstreams, apps()).await;
        assert_eq!(scene.capabilities()["resources"]["subscribe"], true);
        let listed = scene.ask(1, "resources/list", json!({})).await;
        let listed = &listed["result"]["resources"];
        assert_eq!(members(listed, "uri"), ["file:///one", URI], "{names:?}");
        assert_eq!(members(listed, "name"), ["one", "riglm-session"]);
        let own = scene.ask(2, "resources/read", json!({"uri": URI})).await;
        assert_eq!(own["result"]["contents"][0]["uri"], URI, "{names:?}");
        let uri = json!({"uri": "file:///one"});
        let other = scene.ask(3, "resources/read", uri).await;
        assert_eq!(other["result"]["contents"], json!([]), "{names:?}");
    }
}

#[tokio::test]
async fn failures_of_the_only_upstream_pass_unchanged() {
    let upstream = upstream("u", &json!({"tools": {}, "resources": {}}));
    let failure = r#""error":{"code":-32603,"message":"broken"}"#;
    upstream.reply_to("resources/list", failure);
    let scene = scene(vec![upstream], apps()).await;
    let listed = scene.ask(1, "resources/list", json!({})).await;
    assert_eq!(listed["error"]["message"], "broken", "{listed}");
}

#[tokio::test]
async fn clients_without_apps_see_only_the_upstream() {
    let upstream = upstream("u", &json!({"tools": {}}));
    let scene = scene(vec![upstream], json!({})).await;
    assert!(scene.capabilities()["resources"].is_null());
    let tools = scene.ask(1, "tools/list", json!({})).await;
    let tools = members(&tools["result"]["tools"], "name");
    assert_eq!(tools, ["read", "search"]);
    for (id, method) in [(2, "resources/list"), (3, "resources/templates/list")] {
        let answer = scene.ask(id, method, json!({})).await;
        assert_eq!(answer["error"]["code"], -32601, "{method}: {answer}");
    }
    let page = scene.ask(4, "resources/read", json!({"uri": URI})).await;
    assert_eq!(page["error"]["code"], -32601, "{page}");
    let call = json!({"name": "show_session", "arguments": {}});
    let answer = scene.ask(5, "tools/call", call).await;
    assert_eq!(answer["result"], json!({"content": []}), "{answer}");
}

#[tokio::test]
async fn the_view_has_the_calls_of_the_session_and_is_no_call() {
    let upstream = upstream("u", &json!({"tools": {}}));
    let scene = scene(vec![upstream], apps()).await;
    let tools = scene.ask(1, "tools/list", json!({})).await;
    let tools = members(&tools["result"]["tools"], "name");
    assert_eq!(tools, ["read", "search", "show_session"]);
    let view = |answer: &Value| answer["result"]["structuredContent"].clone();
    let call = json!({"name": "show_session"});
    let first = view(&scene.ask(2, "tools/call", call.clone()).await);
    assert_eq!(first["calls"], json!([]), "{first}");
    let read = json!({"name": "read", "arguments": {"path": "secret"}});
    scene.ask(3, "tools/call", read).await;
    let second = view(&scene.ask(4, "tools/call", call).await);
    assert_eq!(members(&second["calls"], "name"), ["read"]);
    assert_eq!(members(&second["calls"], "outcome"), ["ok"]);
    assert!(!second.to_string().contains("secret"), "{second}");
    assert_eq!(members(&second["shown"], "name"), ["read"]);
    assert_eq!(members(&second["hidden"], "name"), ["hidden_write"]);
    let records = scene.store.records().into_iter();
    let calls = records.filter(|record| matches!(record, Record::CallOpened(_)));
    assert_eq!(calls.count(), 1);
}

#[tokio::test]
async fn a_paused_proxy_offers_no_app_but_answers_for_it() {
    let upstream = upstream("u", &json!({"tools": {}}));
    let scene = scene(vec![upstream], apps()).await;
    scene.ask(1, "tools/list", json!({})).await;
    scene.proxy.set_pause(Pause::On);
    let tools = scene.ask(2, "tools/list", json!({})).await;
    let tools = members(&tools["result"]["tools"], "name");
    assert_eq!(tools, ["read", "hidden_write"]);
    let page = scene.ask(3, "resources/read", json!({"uri": URI})).await;
    assert_eq!(page["result"]["contents"][0]["uri"], URI, "{page}");
    let call = json!({"name": "show_session"});
    let answer = scene.ask(4, "tools/call", call).await;
    assert!(
        answer["result"]["structuredContent"].is_object(),
        "{answer}"
    );
}

#[tokio::test]
async fn an_app_that_is_switched_off_still_answers_clients_that_had_it() {
    let upstream = upstream("u", &json!({"tools": {}}));
    let scene = scene(vec![upstream], apps()).await;
    scene.ask(1, "tools/list", json!({})).await;
    let off = [OwnTool::ShowSession].into_iter().collect();
    scene.proxy.set_unlisted_own_tools(off);
    let tools = scene.ask(2, "tools/list", json!({})).await;
    let tools = members(&tools["result"]["tools"], "name");
    assert_eq!(tools, ["read", "search"]);
    let call = json!({"name": "show_session"});
    let answer = scene.ask(3, "tools/call", call).await;
    let view = &answer["result"]["structuredContent"];
    assert!(view.is_object(), "{answer}");
    assert_eq!(scene.session.own_tool_names().show_session, None);
    let page = scene.ask(4, "resources/read", json!({"uri": URI})).await;
    assert_eq!(page["result"]["contents"][0]["uri"], URI, "{page}");
}

#[tokio::test]
async fn a_list_with_the_app_is_private_also_during_a_pause() {
    let names = ["a", "b"].into_iter();
    let upstreams = names.map(|name| upstream(name, &json!({"resources": {}})));
    let scene = opened(upstreams.collect());
    for upstream in &scene.upstreams {
        let hello = json!({
            "resultType": "complete",
            "supportedVersions": ["2026-07-28"],
            "capabilities": {"resources": {}},
        });
        upstream.reply_to("server/discover", &format!(r#""result":{hello}"#));
        let empty = json!({
            "resultType": "complete",
            "resources": [],
            "ttlMs": 5_000,
            "cacheScope": "public",
        });
        upstream.reply_to("resources/list", &format!(r#""result":{empty}"#));
        upstream.with_streams();
    }
    scene.proxy.set_pause(Pause::On);
    let params = |capabilities: Value| {
        json!({"_meta": {
            "io.modelcontextprotocol/protocolVersion": "2026-07-28",
            "io.modelcontextprotocol/clientCapabilities": capabilities,
            "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        }})
    };
    for (id, capabilities, uris, scope) in [
        (1, json!({}), &[][..], "public"),
        (2, apps(), &[URI][..], "private"),
    ] {
        let listed = scene.ask(id, "resources/list", params(capabilities)).await;
        let result = &listed["result"];
        assert_eq!(members(&result["resources"], "uri"), uris, "{listed}");
        assert_eq!(result["cacheScope"], scope, "{listed}");
    }
}
