//! Write gating: tools that may change data are hidden from sessions that only read, and lists
//! follow the calls.

use riglm_tests::modern::Meta;
use riglm_tests::riglm::read_store;
use serde_json::{Value, json};

use crate::scenarios::{CatalogProxy, Client, N_TOOLS, tools};

const ENFORCED: &str = "gate_writes = true\nenforce = true\n";

async fn declare_intent(client: &mut Client, query: &str, intent: &str) {
    let arguments = json!({ "query": query, "intent": intent });
    let said = client.call("set_context", &arguments).await;
    assert_ne!(said["isError"], true, "{said}");
}

fn is_refused(result: &Value) -> bool {
    let text = result["content"][0]["text"].as_str().unwrap();
    let is_refusal = result["isError"] == true && text.contains("your declared task only reads");
    assert_eq!(!is_refusal, text.starts_with("work ran "), "{result}");
    is_refusal
}

async fn refuses(client: &mut Client, tool: &str) -> bool {
    is_refused(&client.call(tool, &json!({})).await)
}

#[tokio::test]
async fn reading_sessions_hide_writing_tools_but_can_call_them() {
    let stage = CatalogProxy::start("gate_writes = true\n").await;
    let reading = tools(|_, reads| reads);
    assert!(reading.len() < N_TOOLS);
    let mut client = stage.client("1").await;
    assert_eq!(
        client.listed_tools().await.len(),
        N_TOOLS,
        "nothing is said"
    );
    // The intent is declared, or derived from the query. Neither query names a tool.
    for (query, intent) in [("Good morning", "read"), ("What happened lately?", "")] {
        declare_intent(&mut client, query, intent).await;
        assert_eq!(client.listed_tools().await, reading, "{query}");
        assert!(!refuses(&mut client, "update_task").await);
    }
    for (query, intent) in [("Good morning", "write"), ("Now fix what is wrong", "")] {
        declare_intent(&mut client, query, intent).await;
        assert_eq!(client.listed_tools().await.len(), N_TOOLS, "{query}");
    }
}

#[tokio::test]
async fn enforced_gating_refuses_writing_tools_until_a_write_intent() {
    let stage = CatalogProxy::start(ENFORCED).await;
    let mut client = stage.client("1").await;
    assert!(
        !refuses(&mut client, "update_task").await,
        "nothing is said"
    );
    client.declare_context("Which of my tasks are late?").await;
    let refused = client.call("update_task", &json!({})).await;
    assert!(is_refused(&refused));
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("set_context") && text.contains("\"write\""),
        "{text}"
    );
    assert!(!refuses(&mut client, "get_task").await);
    // The same through `call_tool`, and whatever the arguments contain.
    let other = json!({ "name": "update_task", "arguments": { "task_id": "7" } });
    assert!(is_refused(&client.call("call_tool", &other).await));
    let written = json!({ "query": "update, delete and create everything" });
    assert!(!is_refused(&client.call("search_tasks", &written).await));
    assert!(refuses(&mut client, "delete_task").await);
    declare_intent(&mut client, "Update the status of tasks", "read").await;
    assert!(
        refuses(&mut client, "update_task").await,
        "it says that it reads"
    );
    declare_intent(&mut client, "Which of my tasks are late?", "write").await;
    assert!(!refuses(&mut client, "update_task").await);
    let expected = [
        "ok", "refused", "ok", "refused", "ok", "refused", "refused", "ok",
    ];
    let mut outcomes: Vec<String> = Vec::new();
    for _ in 0..100 {
        let calls = read_store(stage.data.path(), &["calls", "--json"]).await;
        let calls: Vec<Value> = serde_json::from_str(&calls).unwrap();
        let outcome = |call: &Value| call["outcome"].as_str().map(str::to_owned);
        outcomes = calls.iter().filter_map(outcome).collect();
        if outcomes == expected {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    panic!("calls ended as {outcomes:?}");
}

#[tokio::test]
async fn an_intent_in_a_call_is_enforced_before_any_list() {
    let stage = CatalogProxy::start(ENFORCED).await;
    let client = riglm_tests::client::RawClient::modern(&stage.riglm.url);
    let called = async |id: &str, tool: &str, said: &str| {
        let meta = Meta::default().and(&format!(r#""io.github.riglm/context":"{said}""#));
        let answer = client.request(&meta.call(id, tool, "{}")).await.text;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        is_refused(&answer["result"])
    };
    assert!(called("1", "update_task", "read").await);
    assert!(!called("2", "get_task", "read").await);
    assert!(!called("3", "update_task", "write").await);
    assert!(
        called("4", "unheard_of", "read").await,
        "it may do anything"
    );
}

#[tokio::test]
async fn only_a_declared_intent_permits_writing() {
    let stage = CatalogProxy::start(&format!("{ENFORCED}[recommend]\ntools = true\n")).await;
    let mut client = stage.client("1").await;
    declare_intent(&mut client, "Look after my boats", "read").await;
    assert!(refuses(&mut client, "update_task").await);
    // A query for recommendations does not declare an intent.
    let asked = json!({ "query": "delete and update all tasks" });
    let recommended = client.call("recommend_tools", &asked).await;
    assert_ne!(recommended["isError"], true, "{recommended}");
    assert!(refuses(&mut client, "update_task").await);
    // The declared intent counts, however long the query is.
    declare_intent(&mut client, "Look after my boats", "write").await;
    assert!(!refuses(&mut client, "update_task").await);
    let long = "boats ".repeat(333);
    assert_eq!(long.len(), 1_998);
    declare_intent(&mut client, &format!("{long}ab"), "read").await;
    assert!(refuses(&mut client, "update_task").await);
}

#[tokio::test]
async fn a_call_without_an_id_reaches_no_tool() {
    let stage = CatalogProxy::start(ENFORCED).await;
    let mut client = stage.client("1").await;
    declare_intent(&mut client, "Look after my boats", "read").await;
    for text in [
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"update_task"}}"#,
        r#"[{"jsonrpc":"2.0","method":"tools/call","params":{"name":"update_task"}}]"#,
    ] {
        let status = client.send_status(text).await;
        assert_eq!(status, 400, "{text}");
    }
}

#[tokio::test]
async fn a_reading_session_can_call_pinned_tools() {
    let pinned = format!("{ENFORCED}pins = [\"update_task\"]\n");
    let stage = CatalogProxy::start(&pinned).await;
    let mut client = stage.client("1").await;
    client.declare_context("Which of my tasks are late?").await;
    assert!(client.listed_tools().await.contains("update_task"));
    assert!(!refuses(&mut client, "update_task").await);
    assert!(refuses(&mut client, "delete_task").await);
}

#[tokio::test]
async fn lists_follow_calls_contradicting_the_context() {
    for (threshold, follows) in [(0.3, true), (0.0, false)] {
        let stage = CatalogProxy::start(&format!("context_shift = {threshold:?}\n")).await;
        let mut client = stage.client("1").await;
        client.declare_context("Analyze project health").await;
        let before = client.listed_tools().await;
        assert!(before.contains("get_project_budget") && !before.contains("search_tasks"));
        for tool in ["list_tasks", "get_task"] {
            client.call(tool, &json!({})).await;
        }
        let two = client.listed_tools().await;
        assert!(two.contains("get_project_budget"), "two calls tell nothing");
        client.call("list_tasks", &json!({})).await;
        let three = client.listed_tools().await;
        assert_eq!(
            three.contains("search_tasks"),
            follows,
            "{threshold}: {three:#?}"
        );
        assert_eq!(three.contains("get_project_budget"), !follows);
    }
}
