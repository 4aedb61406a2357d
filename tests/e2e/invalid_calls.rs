//! Mistakes of models in calls: unknown tool names, arguments that the server refuses, and arguments
//! that are encoded twice.

use std::path::Path;
use std::time::Duration;

use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, ProxyBuilder, proxy, server};
use riglm_tests::messages::{call, request};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{read_store, rows};
use serde_json::{Value, json};

/// Returns a proxy in front of a task server and a plain one.
fn proxy_of_two() -> ProxyBuilder {
    let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/scenarios/catalog.json");
    proxy()
        .server(&server("work").listing(&catalog))
        .server(&server("plain").tools(3))
}

async fn serve(strategy: &str) -> Proxy {
    proxy_of_two().strategy(strategy).start().await
}

async fn connect(proxy: &Proxy) -> RawClient {
    let client = proxy.client().connect().await;
    client.request(&request("1", "tools/list")).await;
    client
}

#[tokio::test]
async fn unknown_tools_are_answered_with_similar_listed_names() {
    for strategy in ["none", "prediction"] {
        let proxy = serve(strategy).await;
        let client = connect(&proxy).await;
        let modern = RawClient::modern(&proxy.riglm.url);
        let listing = Meta::default().request("1", "tools/list", "");
        modern.request(&listing).await;
        // An unknown tool of a known server, and of an unknown one.
        for (id, name) in [("2", "work__get_taks"), ("3", "wrok__get_task")] {
            for (client, asked) in [
                (&client, call(id, name, "{}")),
                (&modern, Meta::default().call(id, name, "{}")),
            ] {
                let answer = client.request(&asked).await.text;
                let answer: Value = serde_json::from_str(&answer).unwrap();
                let text = answer["error"]["message"].as_str().unwrap();
                let help = format!("No tool is named {name:?}. The nearest names:");
                let (said, help) = text.split_at(text.find(&help).expect(text));
                assert!(said.ends_with(". "), "{strategy}: {text}");
                assert!(help.contains("\n- work__get_task"), "{strategy}: {text}");
            }
        }
    }
}

#[tokio::test]
async fn a_refused_call_through_call_tool_gets_the_schema_once() {
    let proxy = proxy_of_two()
        .configuration("[filtering]\ndeny = [\"get_task\"]\n")
        .strategy("denylist")
        .start()
        .await;
    let client = connect(&proxy).await;
    for (id, n_texts) in [("2", 2), ("3", 1)] {
        // The server refuses these arguments. riglm forwards them without a look at the schema.
        let inner = r#"{"name":"work__get_task","arguments":{"fail":true}}"#;
        let answer = client.request(&call(id, "call_tool", inner)).await.text;
        let answer: Value = serde_json::from_str(&answer).unwrap();
        assert_eq!(answer["result"]["isError"], true, "{answer}");
        let content = answer["result"]["content"].as_array().unwrap();
        assert_eq!(content[0]["text"], "work ran get_task", "{answer}");
        assert_eq!(content.len(), n_texts, "{answer}");
        if let Some(help) = content.get(1) {
            let help = help["text"].as_str().unwrap();
            let schema = r#"Input schema of work__get_task: {"type":"object","properties":"#;
            assert!(help.starts_with(schema), "{help}");
        }
    }
}

#[tokio::test]
async fn json_string_arguments_reach_the_tool_as_objects() {
    let proxy = serve("prediction").await;
    let client = connect(&proxy).await;
    let through = |id: &str, arguments: Value| {
        let inner = json!({ "name": "work__get_task", "arguments": arguments });
        call(id, "call_tool", &inner.to_string())
    };
    let made = client
        .request(&through("2", json!(r#"{"task_id":"7"}"#)))
        .await;
    assert!(made.text.contains("work ran get_task"), "{}", made.text);
    let refused = client.request(&through("3", json!("task 7"))).await;
    assert!(
        refused.text.contains("arguments must be an object"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn calls_of_made_up_names_have_no_source() {
    for strategy in ["none", "prediction"] {
        let proxy = serve(strategy).await;
        let client = connect(&proxy).await;
        for (id, name) in [("2", "work__get_task"), ("3", "work__made_up")] {
            client.request(&call(id, name, "{}")).await;
        }
        let mut sources = Vec::new();
        for _ in 0..100 {
            let calls = rows(&proxy.data_dir, &["calls", "--json"]).await;
            sources = calls.iter().map(|call| call["source"].clone()).collect();
            if sources.len() == 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        assert_eq!(sources, [json!("shown"), Value::Null], "{strategy}");
        // Calls can be listed by the name that clients use, too.
        for (name, n) in [
            ("work__get_task", 1),
            ("get_task", 1),
            ("plain__get_task", 0),
        ] {
            let calls = rows(&proxy.data_dir, &["calls", "--json", "--tool", name]).await;
            let tools: Vec<&Value> = calls.iter().map(|call| &call["tool"]).collect();
            assert_eq!(tools, vec!["get_task"; n], "{name}");
            let count = read_store(&proxy.data_dir, &["calls", "--count", "--tool", name]).await;
            assert_eq!(count.trim(), n.to_string(), "{name}");
        }
    }
}
