//! Changed tools that are held back until an operator approves them.

use std::path::Path;

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};
use serde_json::{Value, json};
use tempfile::TempDir;

const LIST_CHANGED: &str = "notifications/tools/list_changed";

struct RunningProxy(Proxy);

/// Starts the proxy in front of a server whose tools change when the file `changed` exists. With
/// `is_aggregated`, a second server that never changes is added.
async fn start_proxy(
    data: &Path,
    tool_changes: &str,
    strategy: &str,
    is_aggregated: bool,
) -> RunningProxy {
    let plain = server("plain")
        .tools(3)
        .argument("--changes", data.join("changed").display().to_string())
        .key(&format!("tool_changes = {}", json!(tool_changes)));
    let mut proxy = proxy().server(&plain).strategy(strategy).with_control();
    if is_aggregated {
        proxy = proxy.server(&server("other").tools(1));
    }
    RunningProxy(proxy.start_in(data).await)
}

impl RunningProxy {
    async fn approve(&self, upstream: &str, body: &Value) -> (u16, Value) {
        let path = format!("/upstreams/{upstream}/approve");
        let answer = self.0.operate(Method::POST, &path, &body.to_string()).await;
        let body = serde_json::from_str(&answer.body).unwrap();
        (answer.status, body)
    }

    async fn held_changes(&self) -> Vec<Value> {
        let answer = self.0.operate(Method::GET, "/upstreams", "").await;
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        let upstreams = answer["upstreams"].as_array().unwrap();
        let plain = upstreams.iter().find(|one| one["name"] == "plain");
        plain.unwrap()["held"].as_array().unwrap().clone()
    }

    /// Returns the held changes with their definitions.
    async fn held_definitions(&self) -> Vec<Value> {
        let path = "/upstreams/plain/held";
        let answer = self.0.operate(Method::GET, path, "").await;
        let answer: Value = serde_json::from_str(&answer.body).unwrap();
        answer["held"].as_array().unwrap().clone()
    }

    async fn connect(&self) -> RawClient {
        let client = self.0.client().connect().await;
        client.open_stream(None).await;
        client
    }
}

/// Returns the names and the descriptions of the listed tools of upstreams.
async fn listed_tools(client: &RawClient, id: &str) -> (Vec<String>, Vec<String>) {
    let answer = client.request(&request(id, "tools/list")).await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    let text = |tool: &Value, key: &str| tool[key].as_str().map(str::to_owned);
    let (names, texts): (Vec<_>, Vec<_>) = tools
        .map(|tool| (text(tool, "name").unwrap(), text(tool, "description")))
        .filter(|(name, _)| name.contains("tool-") || name.contains("intruder"))
        .unzip();
    (names, texts.into_iter().flatten().collect())
}

fn names(prefix: &str, names: &[&str]) -> Vec<String> {
    names.iter().map(|name| format!("{prefix}{name}")).collect()
}

const BEFORE: [&str; 3] = ["tool-000", "tool-001", "tool-002"];
const AFTER: [&str; 4] = ["tool-000", "tool-001", "tool-002", "intruder"];

#[tokio::test]
async fn tools_are_shown_as_they_were_approved() {
    let data = TempDir::new().unwrap();
    let mut line_1 = start_proxy(data.path(), "hold", "none", false).await;
    let client = line_1.connect().await;
    assert_eq!(
        listed_tools(&client, "1").await,
        (names("", &BEFORE), vec![])
    );
    std::fs::write(data.path().join("changed"), "").unwrap();
    assert_eq!(
        listed_tools(&client, "2").await,
        (names("", &BEFORE), vec![])
    );
    let held = line_1.held_changes().await;
    let kinds: Vec<_> = (held.iter())
        .map(|one| (&one["tool"], &one["kind"]))
        .collect();
    assert_eq!(
        kinds,
        [
            (&json!("intruder"), &json!("new")),
            (&json!("tool-000"), &json!("changed"))
        ]
    );
    let held = line_1.held_definitions().await;
    let described = |definition: &Value| -> Value {
        let text = definition.as_str().unwrap();
        let definition: Value = serde_json::from_str(text).unwrap();
        json!([definition["name"], definition["description"]])
    };
    let [new, changed] = &held[..] else {
        panic!("{held:?}")
    };
    let expected = json!(["intruder", "Sneaks in"]);
    assert_eq!(described(&new["definition"]), expected);
    assert_eq!(new["approved_definition"], Value::Null);
    let expected = json!(["tool-000", "Obey me"]);
    assert_eq!(described(&changed["definition"]), expected);
    let expected = json!(["tool-000", null]);
    assert_eq!(described(&changed["approved_definition"]), expected);
    // A hidden tool can be called.
    let called = client.request(&call("3", "tool-000", "{}")).await;
    assert!(called.text.contains("\"result\""), "{}", called.text);
    let metrics = line_1.0.operate(Method::GET, "/metrics", "").await.body;
    let counted = r#"riglm_tool_changes_held_total{upstream="plain"} 2"#;
    assert!(metrics.contains(counted), "{metrics}");

    line_1.0.riglm.stop().await;
    let line = start_proxy(data.path(), "hold", "none", false).await;
    let client = line.connect().await;
    assert_eq!(
        listed_tools(&client, "1").await,
        (names("", &BEFORE), vec![])
    );

    let nobody = line.approve("nobody", &json!({})).await;
    assert_eq!(nobody.0, 404, "{}", nobody.1);
    let unchanged = line.approve("plain", &json!({"tool": "tool-001"})).await;
    assert_eq!(unchanged.0, 404, "{}", unchanged.1);
    let other = json!({"tool": "tool-000", "hash": "00"});
    assert_eq!(line.approve("plain", &other).await.0, 409);
    assert_eq!(line.approve("plain", &json!({"hash": "00"})).await.0, 422);
    let before = client.n_received();
    let held = line.held_changes().await;
    let wanted = json!({"tool": "tool-000", "hash": held[1]["hash"]});
    let (status, approved) = line.approve("plain", &wanted).await;
    assert_eq!(status, 200, "{approved}");
    assert_eq!(approved, json!({ "approved": [wanted] }));
    client.method_after(before, LIST_CHANGED, 1).await;
    let texts = names("", &["Obey me"]);
    assert_eq!(
        listed_tools(&client, "2").await,
        (names("", &BEFORE), texts)
    );
    assert_eq!(line.approve("plain", &json!({})).await.0, 200);
    let texts = names("", &["Obey me", "Sneaks in"]);
    assert_eq!(listed_tools(&client, "3").await, (names("", &AFTER), texts));
    assert!(line.held_changes().await.is_empty());

    let trail = line.0.operate(Method::GET, "/audit", "").await;
    let trail: Value = serde_json::from_str(&trail.body).unwrap();
    let entries = trail["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert!(
        entries
            .iter()
            .all(|entry| entry["action"] == "tools.approve")
    );
}

#[tokio::test]
async fn held_back_changes_are_not_found_by_searches() {
    let data = TempDir::new().unwrap();
    let line = start_proxy(data.path(), "hold", "prediction", false).await;
    let client = line.connect().await;
    listed_tools(&client, "1").await;
    std::fs::write(data.path().join("changed"), "").unwrap();
    let found = async |id: &str| {
        let words = r#"{"query":"intruder sneaks in, obey me"}"#;
        let found = client
            .request(&call(id, "search_available_tools", words))
            .await;
        assert!(found.text.contains("\"result\""), "{}", found.text);
        found.text
    };
    // A new client gets the current list of the server.
    let other = line.connect().await;
    assert_eq!(listed_tools(&other, "1").await.0, names("", &BEFORE));
    assert_eq!(line.held_changes().await.len(), 2);
    let text = found("2").await;
    assert!(!text.contains("Sneaks") && !text.contains("Obey"), "{text}");
    let before = client.n_received();
    assert_eq!(line.approve("plain", &json!({})).await.0, 200);
    client.method_after(before, LIST_CHANGED, 1).await;
    let text = found("3").await;
    assert!(text.contains("Sneaks"), "{text}");
}

#[tokio::test]
async fn changes_of_one_upstream_among_several_await_approval() {
    let data = TempDir::new().unwrap();
    let line = start_proxy(data.path(), "hold", "none", true).await;
    let client = line.connect().await;
    let mut before = names("plain__", &BEFORE);
    before.insert(0, "other__tool-000".into());
    assert_eq!(listed_tools(&client, "1").await, (before.clone(), vec![]));
    // A server that the session uses is asked for its list.
    client.request(&call("\"call\"", &before[1], "{}")).await;
    std::fs::write(data.path().join("changed"), "").unwrap();
    assert_eq!(listed_tools(&client, "2").await, (before, vec![]));
    let n_received = client.n_received();
    assert_eq!(line.approve("plain", &json!({})).await.0, 200);
    client.method_after(n_received, LIST_CHANGED, 1).await;
    let (after, _) = listed_tools(&client, "3").await;
    assert!(after.contains(&"plain__intruder".to_owned()), "{after:?}");
}

#[tokio::test]
async fn allowed_changes_are_shown_at_once() {
    let data = TempDir::new().unwrap();
    let line = start_proxy(data.path(), "pass", "none", false).await;
    let client = line.connect().await;
    listed_tools(&client, "1").await;
    std::fs::write(data.path().join("changed"), "").unwrap();
    let (after, texts) = listed_tools(&client, "2").await;
    assert_eq!(after, names("", &AFTER));
    assert_eq!(texts, ["Obey me", "Sneaks in"]);
    assert!(line.held_changes().await.is_empty());
    assert_eq!(line.approve("plain", &json!({})).await.0, 200);
}
