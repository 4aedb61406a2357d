//! Own tools of the proxy in front of several upstreams.

use std::sync::Arc;

use riglm_app::proxy::NamespacePolicy;
use riglm_app::selection::ListFilter;
use riglm_domain::usage::invocation::ToolSource;
use riglm_domain::usage::record::Record;
use riglm_ports::fake::ScriptedUpstream;
use serde_json::{Value, json};

use crate::scene::HidingPolicy;

use super::scene::{Scene, Setup, upstream};

fn setup() -> Setup {
    Setup {
        filter: ListFilter::new(Some(Arc::new(HidingPolicy))),
        search: Some("search"),
        has_others: true,
        ..Setup::default()
    }
}

/// Returns an upstream whose tools require the text parameter `path`.
fn upstream_with_path(name: &str, tools: &[&str]) -> Arc<ScriptedUpstream> {
    let upstream = upstream(name, &[]);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}}});
    let tools = tools
        .iter()
        .map(|name| json!({"name": name, "inputSchema": schema}));
    let result = json!({"tools": tools.collect::<Vec<_>>()});
    upstream.reply_to("tools/list", &format!(r#""result":{result}"#));
    upstream.reply_to("tools/call", r#""result":{"content":[],"own":true}"#);
    upstream
}

fn through(tool: &str, arguments: &Value) -> Value {
    let inner = json!({"name": tool, "arguments": arguments});
    json!({"name": "call_tool", "arguments": inner, "_meta": {"progressToken": "p"}})
}

fn calls(scene: &Scene, upstream: usize) -> Vec<Value> {
    let sent = scene.sent_messages(upstream).into_iter();
    let calls = sent.filter(|sent| sent["method"] == "tools/call");
    calls.map(|sent| sent["params"].clone()).collect()
}

#[tokio::test]
async fn call_tool_reaches_the_upstream_of_the_named_tool() {
    let scene = setup().scene(vec![
        upstream_with_path("a", &["x"]),
        upstream_with_path("b", &["hidden_x"]),
    ]);
    scene.initialize().await;
    for id in 1..=2 {
        let params = through("b__hidden_x", &json!({"path": "p"}));
        let answer = scene.ask(id, "tools/call", params).await;
        assert_eq!(answer["result"]["own"], true, "{answer}");
    }
    let expected = json!({"name": "hidden_x", "arguments": {"path": "p"},
        "_meta": {"progressToken": "p"}});
    assert_eq!(calls(&scene, 1), [expected.clone(), expected]);
    let found = scene
        .ask(3, "tools/call", through("search", &json!({"query": "x"})))
        .await;
    let matches = found["result"]["structuredContent"]["matches"].as_array();
    assert_eq!(matches.map(Vec::len), Some(2), "{found}");
    let records = scene.store.records().into_iter();
    let sources = records.filter_map(|record| match record {
        Record::CallOpened(call) => Some(call.source),
        _ => None,
    });
    assert_eq!(sources.collect::<Vec<_>>(), [ToolSource::Hidden; 2]);
}

#[tokio::test]
async fn unknown_names_get_similar_tools_in_full_once() {
    let scene = setup().scene(vec![
        upstream_with_path("a", &["read_file"]),
        upstream_with_path("b", &["hidden_send"]),
    ]);
    scene.initialize().await;
    let mut messages = Vec::new();
    for (id, params) in [
        (1, json!({"name": "readFile", "arguments": {}})),
        (2, through("readFile", &json!({}))),
    ] {
        let answer = scene.ask(id, "tools/call", params).await;
        assert_eq!(answer["error"]["code"], -32602, "{answer}");
        messages.push(answer["error"]["message"].as_str().unwrap().to_owned());
    }
    assert!(
        messages[0].contains("- a__read_file\n  Input schema: {"),
        "{messages:?}"
    );
    assert!(messages[1].contains("a__read_file"), "{messages:?}");
    assert!(!messages[1].contains("schema"), "{messages:?}");
    let prompt = scene
        .ask(3, "prompts/get", json!({"name": "readFile"}))
        .await;
    let message = prompt["error"]["message"].as_str().unwrap();
    assert!(!message.contains("read_file"), "{message}");
}

#[tokio::test]
async fn failed_calls_of_hidden_tools_include_the_schema() {
    let scene = setup().scene(vec![
        upstream_with_path("a", &["x"]),
        upstream_with_path("b", &["hidden_x"]),
    ]);
    scene.initialize().await;
    scene.tools(1).await;
    let refusal = r#""error":{"code":-32602,"message":"Bad."}"#;
    for (id, (upstream, tool)) in (2..).zip([(0, "a__x"), (1, "b__hidden_x")]) {
        scene.upstreams[upstream].reply_to("tools/call", refusal);
        let params = json!({"name": tool, "arguments": {"path": 7}});
        let answer = scene.ask(id, "tools/call", params).await;
        let message = answer["error"]["message"].as_str().unwrap();
        assert!(message.starts_with("Bad."), "{message}");
        assert_eq!(
            message.contains("Input schema of b__hidden_x: {"),
            upstream == 1,
            "{message}"
        );
    }
}

#[tokio::test]
async fn upstream_tools_precede_own_tools_of_the_same_name() {
    let setup = Setup {
        naming: NamespacePolicy::Collision,
        ..setup()
    };
    let scene = setup.scene(vec![
        upstream_with_path("a", &["call_tool"]),
        upstream_with_path("b", &["z"]),
    ]);
    scene.initialize().await;
    let params = json!({"name": "call_tool", "arguments": {"path": "x"}});
    for id in [1, 3] {
        let answer = scene.ask(id, "tools/call", params.clone()).await;
        assert_eq!(answer["result"]["own"], true, "{answer}");
        let listed = ["call_tool", "z", "search", "set_context"];
        assert_eq!(scene.tools(id + 1).await, listed);
    }
}

#[tokio::test]
async fn a_modern_client_is_answered_in_its_form() {
    let scene = setup().scene(vec![
        upstream_with_path("a", &["x"]),
        upstream_with_path("b", &["hidden_x"]),
    ]);
    let meta = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientInfo": {"name": "c", "version": "1"},
        "io.modelcontextprotocol/clientCapabilities": {}});
    let mut wrong = through("call_tool", &json!({}));
    wrong["_meta"] = meta.clone();
    let answer = scene.ask(1, "tools/call", wrong).await;
    assert_eq!(answer["result"]["resultType"], "complete", "{answer}");
    assert_eq!(answer["result"]["isError"], true, "{answer}");
    let mut right = through("b__hidden_x", &json!({"path": "a"}));
    right["_meta"] = meta;
    scene.ask(2, "tools/call", right).await;
    assert_eq!(calls(&scene, 1)[0]["name"], "hidden_x");
}
