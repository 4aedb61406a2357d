//! The way of lists, the search, the predictor and the safeguards change while clients are connected.

use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http::HttpResponse;
use serde_json::{Value, json};
use tempfile::TempDir;

const LIST_CHANGED: &str = "notifications/tools/list_changed";
const SEARCH: &str = "search_available_tools";
/// A generous deadline for a change to take effect.
const SOON: Duration = Duration::from_secs(30);
const N_TOOLS: usize = 12;
/// The configuration of a proxy that shows lists as they are.
const WHOLE: &str = "[filtering]\nstrategy = \"none\"\n";

struct Scene {
    proxy: Proxy,
    _data: TempDir,
}

/// Returns a proxy with a configuration before one server of twelve tools, `tool-000` to `tool-011`.
async fn start(configuration: &str) -> Scene {
    let data = TempDir::new().unwrap();
    let proxy = proxy()
        .before(server("plain").tools(N_TOOLS).upstream())
        .configuration(configuration)
        .with_file_strategy()
        .with_control();
    Scene {
        proxy: proxy.start_in(data.path()).await,
        _data: data,
    }
}

impl Scene {
    async fn connect(&self) -> RawClient {
        let client = RawClient::streamable(&self.proxy.riglm.at("/mcp"), Answers::default());
        client.initialize(&initialize("0", "2025-11-25")).await;
        client.open_stream(None).await;
        client
    }

    async fn put(&self, tuning: &Value) -> HttpResponse {
        let settings = self.proxy.operate(Method::GET, "/config", "").await;
        let tag = settings.header("etag").unwrap().to_owned();
        let headers = [("if-match", &*tag)];
        let body = tuning.to_string();
        (self.proxy)
            .operate_with(Method::PUT, "/config", &headers, &body)
            .await
    }

    async fn tune(&self, tuning: &Value) {
        let answer = self.put(tuning).await;
        assert_eq!(answer.status, 200, "{tuning}: {}", answer.body);
    }

    /// Waits until the health report has a value of the learning.
    async fn wait_for_learning(&self, state: &str) {
        let started = Instant::now();
        loop {
            let health = self.proxy.control_response("/health").await;
            if health["prediction"]["status"] == state {
                return;
            }
            assert!(started.elapsed() < SOON, "{state}: {health}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }
}

async fn list(client: &RawClient, id: &str) -> Vec<String> {
    names_in(&client.request(&request(id, "tools/list")).await.text)
}

fn names_in(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let Some(tools) = answer["result"]["tools"].as_array() else {
        panic!("no list: {answer}");
    };
    let names = tools.iter().map(|tool| tool["name"].as_str().unwrap());
    names.map(str::to_owned).collect()
}

fn n_of_server(names: &[String]) -> usize {
    let of_server = names.iter().filter(|name| name.starts_with("tool-"));
    of_server.count()
}

fn has(names: &[String], name: &str) -> bool {
    names.iter().any(|listed| listed == name)
}

async fn text_of(client: &RawClient, id: &str, tool: &str, arguments: &str) -> String {
    let answer = client.request(&call(id, tool, arguments)).await.text;
    let answer: Value = serde_json::from_str(&answer).unwrap();
    let Some(text) = answer["result"]["content"][0]["text"].as_str() else {
        panic!("no text: {answer}");
    };
    text.to_owned()
}

#[tokio::test]
async fn the_strategy_changes_under_connected_clients_of_both_eras() {
    let scene = start(WHOLE).await;
    let client = scene.connect().await;
    let modern = RawClient::modern(&scene.proxy.riglm.url);
    let modern_list = Meta::default().request("9", "tools/list", "");
    let list_modern = async || names_in(&modern.request(&modern_list).await.text);
    assert_eq!(list(&client, "1").await.len(), N_TOOLS);
    assert_eq!(list_modern().await.len(), N_TOOLS);

    let allowlist = json!({"filtering": {"strategy": "allowlist", "allow": ["tool-00*"]}});
    scene.tune(&allowlist).await;
    for shown in [list(&client, "2").await, list_modern().await] {
        assert_eq!(n_of_server(&shown), 10, "{shown:?}");
        assert!(has(&shown, SEARCH), "{shown:?}");
    }
    let found = text_of(&client, "3", SEARCH, r#"{"query": "tool-011"}"#).await;
    assert!(found.contains("tool-011"), "{found}");
    // A hidden tool stays callable.
    text_of(&client, "4", "tool-011", "{}").await;

    scene
        .tune(&json!({"filtering": {
            "strategy": "prediction", "policy": "allowlist", "allow": ["tool-01*"],
        }}))
        .await;
    for shown in [list(&client, "5").await, list_modern().await] {
        assert_eq!(n_of_server(&shown), 2, "{shown:?}");
    }
    // A session that began under a selection is told of changes.
    let late = scene.connect().await;
    assert_eq!(n_of_server(&list(&late, "1").await), 2);
    let received = late.n_received();
    scene.tune(&json!({"filtering": {"enabled": false}})).await;
    late.method_after(received, LIST_CHANGED, 1).await;
    for shown in [
        list(&late, "2").await,
        list(&client, "6").await,
        list_modern().await,
    ] {
        assert_eq!(shown.len(), N_TOOLS, "{shown:?}");
    }
    // The search tool is in no list any more, but a client that had it may still call it.
    let found = text_of(&client, "7", SEARCH, r#"{"query": "tool-011"}"#).await;
    assert!(found.contains("tool-011"), "{found}");
}

#[tokio::test]
async fn a_strategy_that_other_keys_contradict_is_refused() {
    let scene = start(
        "[safeguards.long_results]\nmax_bytes = 1000\n[filtering]\nstrategy = \"denylist\"\ndeny = [\"tool-011\"]\n",
    )
    .await;
    for (tuning, said) in [
        (json!({"filtering": {"strategy": "none"}}), "long_results"),
        (json!({"search": {"enabled": false}}), "long_results"),
        (json!({"filtering": {"strategy": "allowlist"}}), "allow"),
        (
            json!({"prediction": {"predictor": {"command": ["sh", "-c", "id"]}}}),
            "can be tuned only to a name",
        ),
        (
            json!({"prediction": {"predictor": "oracle"}}),
            "prediction.predictor",
        ),
        (
            json!({"search": {"encoder": {"remote": {"url": "http://127.0.0.1:1"}}}}),
            "configuration file",
        ),
    ] {
        let answer = scene.put(&tuning).await;
        assert_eq!(answer.status, 422, "{tuning}: {}", answer.body);
        assert!(answer.body.contains(said), "{tuning}: {}", answer.body);
    }
    let client = scene.connect().await;
    assert!(has(&list(&client, "1").await, SEARCH));
}

#[tokio::test]
async fn own_tools_come_and_go_with_their_keys() {
    let file = "[filtering]\nstrategy = \"allowlist\"\nallow = [\"tool-00*\"]\n\
                [search]\ncall_tool = false\n";
    let scene = start(file).await;
    let client = scene.connect().await;
    let shown = list(&client, "1").await;
    assert!(
        has(&shown, SEARCH) && !has(&shown, "call_tool"),
        "{shown:?}"
    );
    // A tool that no list ever had does not exist: the server answers.
    let answer = client
        .request(&call("2", "call_tool", r#"{"name": "tool-001"}"#))
        .await
        .text;
    assert!(!answer.contains("tool-001 was called"), "{answer}");

    let received = client.n_received();
    scene
        .tune(&json!({
            "search": {"call_tool": true, "set_context": false},
            "safeguards": {"long_results": {"max_bytes": 1_000}},
        }))
        .await;
    client.method_after(received, LIST_CHANGED, 1).await;
    let shown = list(&client, "3").await;
    assert!(
        has(&shown, "call_tool") && has(&shown, "read_more"),
        "{shown:?}"
    );
    assert!(!has(&shown, "set_context"), "{shown:?}");
    text_of(
        &client,
        "4",
        "call_tool",
        r#"{"name": "tool-011", "arguments": {}}"#,
    )
    .await;
    // A client that has the earlier list may still call what was in it.
    text_of(&client, "5", "set_context", r#"{"query": "count tools"}"#).await;

    let received = client.n_received();
    scene.tune(&json!({"search": {"enabled": false}})).await;
    client.method_after(received, LIST_CHANGED, 1).await;
    let shown = list(&client, "6").await;
    assert_eq!((shown.len(), n_of_server(&shown)), (10, 10), "{shown:?}");
    text_of(&client, "7", SEARCH, r#"{"query": "tool-011"}"#).await;
}

#[tokio::test]
async fn safeguards_change_between_two_calls() {
    let scene = start(WHOLE).await;
    let client = scene.connect().await;
    let refused = |text: &str| text.starts_with("This call was not made: ");
    for id in ["1", "2"] {
        assert!(!refused(&text_of(&client, id, "tool-001", "{}").await));
    }
    let limit = |calls: u32, cache: bool| {
        json!({"safeguards": {
            "limits": {"rules": [{"tools": ["tool-001"], "calls": calls, "per": "1h"}]},
            "result_cache": {"enabled": cache},
        }})
    };
    scene.tune(&limit(1, false)).await;
    assert!(!refused(&text_of(&client, "3", "tool-001", "{}").await));
    assert!(refused(&text_of(&client, "4", "tool-001", "{}").await));
    // Another safeguard changes: the count of this one stays.
    scene.tune(&limit(1, true)).await;
    assert!(refused(
        &text_of(&client, "5", "tool-001", r#"{"n": 5}"#).await
    ));
    scene.tune(&limit(2, true)).await;
    assert!(!refused(
        &text_of(&client, "6", "tool-001", r#"{"n": 6}"#).await
    ));
    scene.tune(&json!({})).await;
    for id in ["7", "8", "9"] {
        assert!(!refused(&text_of(&client, id, "tool-001", "{}").await));
    }
}

#[tokio::test]
async fn a_changed_budget_keeps_what_a_session_used() {
    let scene = start("[work_sessions]\nenabled = true\n").await;
    let client = scene.connect().await;
    scene
        .tune(&json!({"safeguards": {"budget": {"tokens": 1_000_000}}}))
        .await;
    let long = format!(
        r#"{{"text": "{}"}}"#,
        "many words of an argument ".repeat(400)
    );
    let text = text_of(&client, "1", "tool-001", &long).await;
    assert!(!text.contains("budget"), "{text}");
    scene
        .tune(&json!({"safeguards": {"budget": {"tokens": 1_000}}}))
        .await;
    let answer = client.request(&call("2", "tool-001", "{}")).await.text;
    assert!(
        answer.contains("token"),
        "the use so far was forgotten: {answer}"
    );
}

#[tokio::test]
async fn the_predictor_changes_and_keeps_what_was_recorded() {
    let scene = start("[filtering]\nstrategy = \"prediction\"\n").await;
    let client = scene.connect().await;
    list(&client, "1").await;
    for id in 2..8 {
        text_of(&client, &id.to_string(), "tool-007", "{}").await;
    }
    scene.wait_for_learning("ok").await;
    scene.tune(&json!({"prediction": {"enabled": false}})).await;
    scene.wait_for_learning("off").await;
    assert_eq!(n_of_server(&list(&client, "10").await), N_TOOLS);
    scene
        .tune(&json!({"prediction": {"predictor": "frequency", "half_life_days": 7.0}}))
        .await;
    scene.wait_for_learning("ok").await;
    let started = Instant::now();
    loop {
        let health = scene.proxy.control_response("/health").await;
        if health["prediction"]["learned_calls"].as_u64() >= Some(6) {
            break;
        }
        assert!(started.elapsed() < SOON, "{health}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // From one predictor to another, nothing is ever off.
    scene
        .tune(&json!({"prediction": {"predictor": "markov"}}))
        .await;
    scene
        .proxy
        .riglm
        .process
        .line(SOON, "the new predictor", |line| {
            line.contains("the new predictor is in use").then_some(())
        })
        .await;
    let health = scene.proxy.control_response("/health").await;
    assert_eq!(health["prediction"]["status"], "ok", "{health}");
    assert!(
        health["prediction"]["learned_calls"].as_u64() >= Some(6),
        "{health}"
    );
}
