//! Tools that may change something are kept from who only reads, and lists follow what calls show.

use riglm_tests::modern::Meta;
use riglm_tests::riglm::read_store;
use serde_json::{Value, json};

use crate::scenarios::{Client, N_TOOLS, Stage, tools};

const ENFORCED: &str = "gate_writes = true\nenforce = true\n";

async fn says(client: &mut Client, query: &str, intent: &str) {
    let arguments = json!({ "query": query, "intent": intent });
    let said = client.call("set_context", &arguments).await;
    assert_ne!(said["isError"], true, "{said}");
}

fn is_refused(result: &Value) -> bool {
    let text = result["content"][0]["text"].as_str().unwrap();
    let is_refusal = result["isError"] == true && text.contains("you only read");
    assert_eq!(!is_refusal, text.starts_with("work ran "), "{result}");
    is_refusal
}

async fn refuses(client: &mut Client, tool: &str) -> bool {
    is_refused(&client.call(tool, &json!({})).await)
}

#[tokio::test]
async fn who_reads_is_not_shown_what_may_write_and_can_call_it() {
    let stage = Stage::start("gate_writes = true\n").await;
    let reading = tools(|_, reads| reads);
    assert!(reading.len() < N_TOOLS);
    let mut client = stage.client("1").await;
    assert_eq!(client.listed().await.len(), N_TOOLS, "nothing is said");
    // As it says, and as is read out of what it says: neither names a tool.
    for (query, intent) in [("Good morning", "read"), ("What happened lately?", "")] {
        says(&mut client, query, intent).await;
        assert_eq!(client.listed().await, reading, "{query}");
        assert!(!refuses(&mut client, "update_task").await);
    }
    for (query, intent) in [("Good morning", "write"), ("Now fix what is wrong", "")] {
        says(&mut client, query, intent).await;
        assert_eq!(client.listed().await.len(), N_TOOLS, "{query}");
    }
}

#[tokio::test]
async fn who_reads_is_refused_what_may_write_until_they_say_that_they_write() {
    let stage = Stage::start(ENFORCED).await;
    let mut client = stage.client("1").await;
    assert!(
        !refuses(&mut client, "update_task").await,
        "nothing is said"
    );
    client.says("Which of my tasks are late?").await;
    let refused = client.call("update_task", &json!({})).await;
    assert!(is_refused(&refused));
    let text = refused["content"][0]["text"].as_str().unwrap();
    assert!(
        text.contains("set_context") && text.contains("\"write\""),
        "{text}"
    );
    assert!(!refuses(&mut client, "get_task").await);
    // However it is called, and whatever arguments say.
    let other = json!({ "name": "update_task", "arguments": { "task_id": "7" } });
    assert!(is_refused(&client.call("call_tool", &other).await));
    let written = json!({ "query": "update, delete and create everything" });
    assert!(!is_refused(&client.call("search_tasks", &written).await));
    assert!(refuses(&mut client, "delete_task").await);
    says(&mut client, "Update the status of tasks", "read").await;
    assert!(
        refuses(&mut client, "update_task").await,
        "it says that it reads"
    );
    says(&mut client, "Which of my tasks are late?", "write").await;
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
async fn who_says_with_a_call_that_they_read_is_refused_before_any_list() {
    let stage = Stage::start(ENFORCED).await;
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
async fn nothing_but_what_is_declared_lets_who_reads_write() {
    let stage = Stage::start(&format!("{ENFORCED}[recommend]\ntools = true\n")).await;
    let mut client = stage.client("1").await;
    says(&mut client, "Look after my boats", "read").await;
    assert!(refuses(&mut client, "update_task").await);
    // What is recommended for is looked for, and declares nothing.
    let asked = json!({ "query": "delete and update all tasks" });
    let recommended = client.call("recommend_tools", &asked).await;
    assert_ne!(recommended["isError"], true, "{recommended}");
    assert!(refuses(&mut client, "update_task").await);
    // The intent counts, however long the query is.
    says(&mut client, "Look after my boats", "write").await;
    assert!(!refuses(&mut client, "update_task").await);
    let long = "boats ".repeat(333);
    assert_eq!(long.len(), 1_998);
    says(&mut client, &format!("{long}ab"), "read").await;
    assert!(refuses(&mut client, "update_task").await);
}

#[tokio::test]
async fn a_call_without_an_id_reaches_no_tool() {
    let stage = Stage::start(ENFORCED).await;
    let mut client = stage.client("1").await;
    says(&mut client, "Look after my boats", "read").await;
    for text in [
        r#"{"jsonrpc":"2.0","method":"tools/call","params":{"name":"update_task"}}"#,
        r#"[{"jsonrpc":"2.0","method":"tools/call","params":{"name":"update_task"}}]"#,
    ] {
        let status = client.sends(text).await;
        assert_eq!(status, 400, "{text}");
    }
}

#[tokio::test]
async fn what_is_pinned_can_be_called_by_who_reads() {
    let pinned = format!("{ENFORCED}pins = [\"update_task\"]\n");
    let stage = Stage::start(&pinned).await;
    let mut client = stage.client("1").await;
    client.says("Which of my tasks are late?").await;
    assert!(client.listed().await.contains("update_task"));
    assert!(!refuses(&mut client, "update_task").await);
    assert!(refuses(&mut client, "delete_task").await);
}

#[tokio::test]
async fn lists_follow_calls_that_are_not_what_was_said() {
    for (threshold, follows) in [(0.3, true), (0.0, false)] {
        let stage = Stage::start(&format!("context_shift = {threshold:?}\n")).await;
        let mut client = stage.client("1").await;
        client.says("Analyze project health").await;
        let before = client.listed().await;
        assert!(before.contains("get_project_budget") && !before.contains("search_tasks"));
        for tool in ["list_tasks", "get_task"] {
            client.call(tool, &json!({})).await;
        }
        let two = client.listed().await;
        assert!(two.contains("get_project_budget"), "two calls tell nothing");
        client.call("list_tasks", &json!({})).await;
        let three = client.listed().await;
        assert_eq!(
            three.contains("search_tasks"),
            follows,
            "{threshold}: {three:#?}"
        );
        assert_eq!(three.contains("get_project_budget"), !follows);
    }
}
