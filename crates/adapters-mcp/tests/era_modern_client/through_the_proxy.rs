//! Calls through the proxy over a bridge between the eras: all rounds are rows of one logical call.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use riglm_adapters_mcp::upstream::era::{BridgeOptions, EraConnector};
use riglm_app::proxy::{ClientSession, Proxy, ProxyParts, Upstream};
use riglm_app::testing;
use riglm_domain::id::UpstreamName;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::privacy::principal::Principal;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository};
use riglm_ports::fake::{MemoryStore, RecordingClient, ScriptedUpstream};
use serde_json::Value;

use crate::scene::WELCOME;

const T: &str = r#""name":"t","arguments":{"a":1.0}"#;
const DONE: &str = r#""result":{"resultType":"complete","content":[]}"#;
/// The answer of a modern server that asks for input.
const INPUT_REQUIRED: &str = r#""result":{"requestState":"s","inputRequests":{"k":{"method":"roots/list"}},"resultType":"input_required"}"#;

/// A proxy with one session and one scripted upstream behind a bridge.
struct BridgedProxy {
    store: Arc<MemoryStore>,
    upstream: Arc<ScriptedUpstream>,
    client: Arc<RecordingClient>,
    session: Arc<ClientSession>,
    _proxy: Proxy,
}

impl BridgedProxy {
    fn new() -> Self {
        let store = Arc::new(MemoryStore::default());
        let upstream = Arc::new(ScriptedUpstream::new(UpstreamName::parse("u").unwrap()));
        upstream.reply_to("initialize", WELCOME);
        let options = BridgeOptions::new([7; 32]);
        let connector = Arc::new(EraConnector::new(upstream.clone(), options));
        let proxy = Proxy::new(ProxyParts {
            recorder: testing::recorder(store.clone()),
            ..testing::proxy_parts(vec![Upstream::new(connector)])
        });
        let client = Arc::new(RecordingClient::default());
        let principal = Principal::local();
        let session = proxy
            .accept(Transport::StreamableHttp, &principal, client.clone())
            .unwrap();
        Self {
            store,
            upstream,
            client,
            session,
            _proxy: proxy,
        }
    }

    /// Sends a message and lets everything settle that needs little time.
    async fn send(&self, text: &str) {
        let message = Message::parse(&Bytes::from(text.to_owned())).unwrap();
        if let Some(exchange) = self.session.receive(message).await.unwrap() {
            tokio::spawn(exchange.run);
        }
        tokio::time::sleep(Duration::from_secs(1)).await;
    }

    fn last(&self) -> String {
        self.client.delivered_messages().last().unwrap().0.clone()
    }

    /// Returns the rows, oldest first: each with its sequence number, and with the position of the
    /// row that it continues.
    async fn rows(&self) -> Vec<(u64, Option<usize>)> {
        let filter = InvocationFilter::default();
        let calls = self.store.invocations(&filter, 100).await.unwrap();
        let position = |id| calls.iter().position(|call| call.invocation.id == id);
        calls
            .iter()
            .map(|call| &call.invocation)
            .map(|call| (call.sequence, call.continues.and_then(position)))
            .collect()
    }
}

/// Returns a modern call with these members of `params`.
fn modern(id: u32, params: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{params},"_meta":{{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientInfo":{{"name":"c","version":"2"}},"io.modelcontextprotocol/clientCapabilities":{{"elicitation":{{}},"roots":{{}}}}}}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn every_round_with_a_legacy_server_continues_the_first() {
    let proxy = BridgedProxy::new();
    let unknown = r#""error":{"code":-32601,"message":"Method not found"}"#;
    proxy.upstream.reply_to("server/discover", unknown);
    let ask = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","method":"roots/list"}}"#);
    let given = || {
        let answer: Value = serde_json::from_str(&proxy.last()).unwrap();
        let result = &answer["result"];
        assert_eq!(result["resultType"], "input_required", "{answer}");
        let asked = result["inputRequests"].as_object().unwrap();
        let key = asked.keys().next().unwrap();
        let state = &result["requestState"];
        format!(r#"{T},"inputResponses":{{"{key}":{{"roots":[]}}}},"requestState":{state}"#)
    };
    proxy.send(&modern(1, T)).await;
    let called: Value =
        serde_json::from_str(&proxy.upstream.sent_messages().pop().unwrap().1).unwrap();
    for (id, question) in [(2, "a"), (3, "b")] {
        proxy.upstream.send_to_client(&ask(question), None).await;
        tokio::time::sleep(Duration::from_secs(1)).await;
        proxy.send(&modern(id, &given())).await;
    }
    let done = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"content":[]}}}}"#,
        called["id"]
    );
    proxy.upstream.send_to_client(&done, None).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(proxy.last().contains(r#""resultType":"complete""#));
    proxy.send(&modern(4, T)).await;
    let expected = [(1, None), (1, Some(0)), (1, Some(0)), (2, None)];
    assert_eq!(proxy.rows().await, expected);
}

#[tokio::test(start_paused = true)]
async fn bridge_rounds_are_recorded_as_one_call() {
    let proxy = BridgedProxy::new();
    let unsupported =
        r#""error":{"code":-32022,"message":"m","data":{"supported":["2026-07-28"]}}"#;
    proxy.upstream.reply_to("initialize", unsupported);
    let discovered = r#""result":{"resultType":"complete","supportedVersions":["2026-07-28"],"capabilities":{},"serverInfo":{"name":"s","version":"1"},"ttlMs":0,"cacheScope":"private"}"#;
    proxy.upstream.reply_to("server/discover", discovered);
    let hello = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{"roots":{}},"clientInfo":{"name":"c","version":"2"}}}"#;
    proxy.send(hello).await;
    let initialized = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    proxy.send(initialized).await;
    proxy.upstream.reply_to("tools/call", INPUT_REQUIRED);
    let call =
        |id| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{{T}}}}}"#);
    proxy.send(&call(1)).await;
    let asked: Value = serde_json::from_str(&proxy.last()).unwrap();
    assert_eq!(asked["method"], "roots/list", "{asked}");
    proxy.upstream.reply_to("tools/call", DONE);
    let answer = format!(
        r#"{{"jsonrpc":"2.0","id":{},"result":{{"roots":[]}}}}"#,
        asked["id"]
    );
    proxy.send(&answer).await;
    assert!(proxy.last().contains(r#""content":[]"#), "{}", proxy.last());
    proxy.send(&call(2)).await;
    assert_eq!(proxy.rows().await, [(1, None), (2, None)]);
}
