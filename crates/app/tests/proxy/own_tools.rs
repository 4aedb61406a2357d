//! Own tools of the proxy in front of one upstream: the calls that they make, and the hints in the
//! answers of failed calls.

use std::sync::Arc;
use std::time::Duration;

use riglm_app::limits::Limits;
use riglm_app::proxy::ClientSession;
use riglm_domain::intent::context::ContextSource;
use riglm_domain::mcp::message::Message;
use riglm_domain::usage::invocation::{Invocation, ToolSource};
use riglm_domain::usage::record::Record;
use serde_json::{Value, json};

use crate::scene::{HidingPolicy, Scene, Setup};

const WELCOME: &str = r#""result":{"protocolVersion":"2025-03-26","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}"#;
const HELLO: &str = r#"{"jsonrpc":"2.0","id":"hello","method":"initialize","params":{"protocolVersion":"2025-03-26","capabilities":{},"clientInfo":{"name":"tester","version":"7"}}}"#;
const LIST: &str = r#"{"jsonrpc":"2.0","id":"list","method":"tools/list"}"#;
/// The answer of the server to calls, with its formatting.
const ANSWER: &str = r#""result":{"content":[ {"type":"text","text":"\u0064one"}],"n":1.0}"#;

fn setup() -> Setup {
    Setup {
        policy: Some(Arc::new(HidingPolicy)),
        search: Some("search"),
        has_others: true,
        ..Setup::default()
    }
}

/// Returns a scene with an initialized session, and an upstream whose tools require the text
/// parameter `path`.
async fn scene(setup: Setup, tools: &[&str]) -> Scene {
    let scene = setup.scene();
    scene.upstream.reply_to("initialize", WELCOME);
    let schema = json!({"type": "object", "properties": {"path": {"type": "string"}},
        "required": ["path"]});
    let tools = tools
        .iter()
        .map(|name| json!({"name": name, "description": "Reads it.\nAll.", "inputSchema": schema}));
    let result = json!({"tools": tools.collect::<Vec<_>>()});
    let result = format!(r#""result":{result}"#);
    scene.upstream.reply_to("tools/list", &result);
    scene.upstream.reply_to("tools/call", ANSWER);
    send(&scene.session, HELLO).await;
    scene
}

async fn send(session: &Arc<ClientSession>, text: &str) {
    let message = Message::from_text(text.to_owned()).unwrap();
    if let Some(exchange) = session.receive(message).await.unwrap() {
        tokio::time::timeout(Duration::from_secs(10), exchange.run)
            .await
            .unwrap();
    }
}

fn direct(id: u32, tool: &str, arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"{tool}","arguments":{arguments},"_meta":{{"progressToken":1.0}}}}}}"#
    )
}

/// Returns a call of that tool through `call_tool`.
fn through(id: u32, tool: &str, arguments: &str) -> String {
    let inner = format!(r#"{{"name":"{tool}","arguments":{arguments}}}"#);
    direct(id, "call_tool", &inner)
}

/// Makes a request and returns the text of its answer.
async fn ask(scene: &Scene, id: u32, text: &str) -> String {
    let n_before = scene.client.delivered_messages().len();
    send(&scene.session, text).await;
    let answers = format!(r#""id":{id},"#);
    let waiting = async {
        loop {
            let delivered = scene.client.delivered_messages();
            let mut new = delivered[n_before..].iter();
            if let Some((text, _)) = new.find(|(text, _)| text.contains(&answers)) {
                return text.clone();
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), waiting)
        .await
        .unwrap()
}

fn text_of(answer: &str) -> String {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let content = answer["result"]["content"].as_array().unwrap();
    let last = content.last().unwrap();
    last["text"].as_str().unwrap().to_owned()
}

fn calls_sent(scene: &Scene) -> Vec<String> {
    let sent = scene.upstream.sent_messages().into_iter();
    let texts = sent.map(|(_, text)| text);
    texts.filter(|text| text.contains("tools/call")).collect()
}

fn rows(scene: &Scene) -> Vec<Invocation> {
    let records = scene.store.records().into_iter();
    let calls = records.filter_map(|record| match record {
        Record::CallOpened(call) => Some(call),
        _ => None,
    });
    calls.collect()
}

async fn listed_names(scene: &Scene) -> Vec<String> {
    send(&scene.session, LIST).await;
    let list: Value = serde_json::from_str(&scene.last()).unwrap();
    let tools = list["result"]["tools"].as_array().unwrap();
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

#[tokio::test]
async fn own_tools_are_listed_last_unless_their_names_are_taken() {
    let scene = self::scene(setup(), &["read", "hidden_read"]).await;
    let all = ["read", "search", "call_tool", "set_context"];
    assert_eq!(listed_names(&scene).await, all);
    let scene = self::scene(setup(), &["call_tool", "hidden_read"]).await;
    let left = ["call_tool", "search", "set_context"];
    assert_eq!(listed_names(&scene).await, left);
    let call = through(1, "read", "{}");
    assert!(ask(&scene, 1, &call).await.contains(ANSWER));
    assert_eq!(calls_sent(&scene), [call]);
    assert_eq!(rows(&scene)[0].tool.as_str(), "call_tool");
}

#[tokio::test]
async fn call_tool_forwards_the_named_call_unchanged() {
    let scene = scene(setup(), &["read", "hidden_read"]).await;
    // Before any list, with a complete list, and for a tool without an upstream.
    let arguments = r#"{ "path":"\u0061","n":1e3 }"#;
    for (id, tool) in (1..).zip(["hidden_read", "hidden_read", "read", "nobodys"]) {
        let answer = ask(&scene, id, &through(id, tool, arguments)).await;
        assert!(answer.contains(ANSWER), "{answer}");
        let sent = calls_sent(&scene).pop().unwrap();
        assert_eq!(sent, direct(id, tool, arguments));
    }
    let rows = rows(&scene);
    let calls: Vec<_> = rows
        .iter()
        .map(|row| (row.tool.as_str(), row.source))
        .collect();
    let expected = [
        ("hidden_read", ToolSource::Hidden),
        ("hidden_read", ToolSource::Hidden),
        ("read", ToolSource::Shown),
        ("nobodys", ToolSource::Unlisted),
    ];
    assert_eq!(calls, expected);
    assert!(scene.outcomes().await.iter().all(Option::is_some));
}

#[tokio::test]
async fn calls_in_a_batch_are_taken_apart() {
    let scene = scene(setup(), &["hidden_read"]).await;
    scene.upstream.reply_to("ping", r#""result":{}"#);
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    let call = through(1, "hidden_read", r#"{"path":"a"}"#);
    let answer = ask(&scene, 1, &format!("[{call},{ping}]")).await;
    assert!(answer.contains(ANSWER), "{answer}");
    assert_eq!(
        calls_sent(&scene),
        [direct(1, "hidden_read", r#"{"path":"a"}"#)]
    );
    assert_eq!(rows(&scene).len(), 1);
}

#[tokio::test]
async fn arguments_are_validated_by_the_server_alone() {
    let scene = scene(setup(), &["hidden_read"]).await;
    for id in 1..=2 {
        let arguments = r#"{"path":7}"#;
        let answer = ask(&scene, id, &through(id, "hidden_read", arguments)).await;
        assert!(answer.contains(ANSWER), "{answer}");
        let sent = calls_sent(&scene).pop().unwrap();
        assert_eq!(sent, direct(id, "hidden_read", arguments));
    }
    let nested = through(3, "call_tool", "{}");
    let text = text_of(&ask(&scene, 3, &nested).await);
    assert!(text.starts_with("name must be"), "{text}");
    assert_eq!(rows(&scene).len(), 2);
}

#[tokio::test]
async fn searches_through_call_tool_count_as_searches() {
    let scene = scene(setup(), &["hidden_read"]).await;
    for id in 1..=2 {
        let answer = ask(&scene, id, &through(id, "search", r#"{"query":"read"}"#)).await;
        assert!(text_of(&answer).contains("hidden_read"), "{answer}");
    }
    ask(&scene, 3, &through(3, "hidden_read", r#"{"path":"a"}"#)).await;
    assert_eq!(rows(&scene)[0].source, ToolSource::Found);
}

#[tokio::test]
async fn unanswered_list_requests_do_not_block_calls() {
    let limits = Limits {
        unite_timeout: Duration::from_millis(20),
        ..Limits::default()
    };
    let scene = scene(Setup { limits, ..setup() }, &[]).await;
    scene.upstream.reply_to("tools/list", "");
    let call = through(1, "hidden_read", r#"{"path":7}"#);
    assert!(ask(&scene, 1, &call).await.contains(ANSWER));
}

#[tokio::test]
async fn unknown_names_get_similar_tools_in_full_once() {
    let scene = scene(setup(), &["read_file", "hidden_read_files", "send"]).await;
    let refusal = r#""error":{"code":-32602,"message":"Unknown tool: readFile","data":1.0}"#;
    scene.upstream.reply_to("tools/call", refusal);
    // The list is not known the first time.
    let first = ask(&scene, 1, &direct(1, "readFile", "{}")).await;
    let start = r#""error":{"code":-32602,"message":"Unknown tool: readFile. No tool is named"#;
    assert!(
        first.contains(start) && first.contains(r#","data":1.0}"#),
        "{first}"
    );
    for part in [
        "- read_file: Reads it.",
        "- hidden_read_files",
        r#"\"path\""#,
    ] {
        assert!(first.contains(part), "{part}: {first}");
    }
    assert!(!first.contains("send"), "{first}");
    let again = ask(&scene, 2, &through(2, "readFile", "{}")).await;
    assert!(
        again.contains("read_file") && !again.contains("path"),
        "{again}"
    );
    let result = r#""result":{"content":[{"type":"text","text":"no\u0020tool"}],"structuredContent":{"a":1.0},"isError":true}"#;
    scene.upstream.reply_to("tools/call", result);
    let answer = ask(&scene, 3, &direct(3, "read-files", "{}")).await;
    let start = r#"[{"type":"text","text":"no\u0020tool"},{"type":"text","text":"No tool is"#;
    assert!(answer.contains(start), "{answer}");
    assert!(answer.contains(r#"}],"structuredContent":{"a":1.0},"isError":true}"#));
    // A server may accept calls of tools that it does not list.
    scene.upstream.reply_to("tools/call", ANSWER);
    let answer = ask(&scene, 4, &direct(4, "readFile", "{}")).await;
    assert!(answer.contains(ANSWER), "{answer}");
}

#[tokio::test]
async fn failed_calls_of_hidden_tools_include_the_schema_once() {
    for (error, is_helped) in [
        (
            r#""error":{"code":-32602,"message":"Bad\u0020arguments"}"#,
            true,
        ),
        (r#""result":{"content":[],"isError":true}"#, true),
        (r#""error":{"code":-32000,"message":"Broken"}"#, false),
    ] {
        let scene = scene(setup(), &["read", "hidden_read"]).await;
        scene.upstream.reply_to("tools/call", error);
        for (id, tool, is_told) in [
            (1, "read", false),
            (2, "hidden_read", is_helped),
            (3, "hidden_read", false),
        ] {
            let answer = ask(&scene, id, &through(id, tool, r#"{"path":7}"#)).await;
            let schema = r#"Input schema of hidden_read: {\"type\":\"object\""#;
            assert_eq!(answer.contains(schema), is_told, "{tool}: {answer}");
            assert_eq!(answer.contains(error), !is_told, "{tool}: {answer}");
        }
    }
}

#[tokio::test]
async fn set_context_is_answered_and_recorded_without_a_search() {
    let scene = scene(setup(), &["hidden_read"]).await;
    let said = r#"{"query":"read","intent":"a secret plan"}"#;
    let answer = ask(&scene, 1, &direct(1, "set_context", said)).await;
    assert!(text_of(&answer).contains("hidden_read"), "{answer}");
    ask(&scene, 2, &direct(2, "hidden_read", r#"{"path":"a"}"#)).await;
    let records = scene.store.records();
    let is_search = |record: &Record| matches!(record, Record::Searched(_));
    assert!(!records.iter().any(is_search));
    let mut contexts = records.iter().filter_map(|record| match record {
        Record::ContextGiven(context) => Some(context),
        _ => None,
    });
    let context = contexts.next().unwrap();
    assert_eq!(
        (context.source, &context.text),
        (ContextSource::SetContext, &None)
    );
    let row = rows(&scene).pop().unwrap();
    assert_eq!(
        (row.source, row.context),
        (ToolSource::Found, Some(context.id))
    );
    let answer = ask(&scene, 3, &direct(3, "set_context", "{}")).await;
    assert!(text_of(&answer).starts_with("query must"), "{answer}");
}
