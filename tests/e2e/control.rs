//! The control port: decisions of operators take effect for clients.

use std::path::Path;

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, request};
use riglm_tests::plain_http;
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const LIST_CHANGED: &str = "notifications/tools/list_changed";

/// Starts the proxy in front of twelve tools.
async fn line(data_dir: &Path) -> Proxy {
    proxy()
        .before(server("plain").tools(12).upstream())
        .strategy("prediction")
        .with_control()
        .start_in(data_dir)
        .await
}

#[tokio::test]
async fn without_a_token_only_health_is_readable() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = TempDir::new().unwrap();
    let file = data.path().join("control.token");
    std::fs::write(&file, "a token that others can read").unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let line = line(data.path()).await;
    let warned = |text: &str| text.contains("control port: no token").then_some(());
    line.riglm
        .process
        .line(std::time::Duration::from_secs(10), "a warning", warned)
        .await;
    assert_eq!(line.operate(Method::GET, "/health", "").await.status, 200);
    assert_eq!(
        line.operate(Method::GET, "/overrides", "").await.status,
        401
    );
}

#[tokio::test]
async fn refusals_of_foreign_hosts_name_the_configuration_key() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let headers = [("host", "evil.example")];
    let url = line.control("/health");
    let answer = plain_http::exchange(Method::GET, &url, &headers, "");
    let answer = answer.await.unwrap();
    assert_eq!(answer.status, 403);
    assert!(
        answer.body.contains("control.allowed_hosts"),
        "{}",
        answer.body
    );
    let named = |text: &str| {
        (text.contains("control.allowed_hosts") && text.contains("evil.example")).then_some(())
    };
    let patience = std::time::Duration::from_secs(20);
    line.riglm
        .process
        .line(patience, "the refusal", named)
        .await;
}

#[tokio::test]
async fn untunable_keys_are_refused_with_the_nearest_key() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let body = json!({"filtering": {"max_tool": 12}}).to_string();
    let headers = [("if-match", "*")];
    let answer = line.operate_with(Method::PUT, "/config", &headers, &body);
    let answer = answer.await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    for name in ["filtering.max_tool:", "the nearest is filtering.max_tools"] {
        assert!(answer.body.contains(name), "{}", answer.body);
    }
}

async fn listed_names(client: &RawClient, id: &str) -> Vec<String> {
    let answer = client.request(&request(id, "tools/list")).await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn tools_are_unlisted_while_excluded_by_an_operator() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let client = line.client().connect().await;
    client.open_stream(None).await;
    assert!(
        listed_names(&client, "1")
            .await
            .contains(&"tool-003".to_owned())
    );

    let decision = json!({"tool": "tool-003", "action": "exclude", "scope": {"kind": "global"}});
    let before = client.n_received();
    let answer = line
        .operate(Method::POST, "/override", &decision.to_string())
        .await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    client.method_after(before, LIST_CHANGED, 1).await;
    assert!(
        !listed_names(&client, "2")
            .await
            .contains(&"tool-003".to_owned())
    );
    let called = client.request(&call("3", "tool-003", "{}")).await;
    assert!(called.text.contains("\"result\""), "{}", called.text);

    let place = answer.header("location").unwrap().to_owned();
    let before = client.n_received();
    let answer = line.operate(Method::DELETE, &place, "").await;
    assert_eq!(answer.status, 204, "{}", answer.body);
    client.method_after(before, LIST_CHANGED, 1).await;
    assert!(
        listed_names(&client, "4")
            .await
            .contains(&"tool-003".to_owned())
    );

    let trail = line.operate(Method::GET, "/audit", "").await;
    let trail: Value = serde_json::from_str(&trail.body).unwrap();
    let entries = trail["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert!(entries.iter().all(|entry| entry["actor"] == "control"));
}

#[tokio::test]
async fn the_control_api_shows_calls_lists_and_predictions() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let json = async |path: &str, expected: u16| -> Value {
        let answer = line.operate(Method::GET, path, "").await;
        assert_eq!(answer.status, expected, "{path}: {}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    };
    assert_eq!(json("/health/ready", 200).await["ready"], true);
    let upstreams = json("/upstreams", 200).await;
    assert_eq!(upstreams["upstreams"][0]["tool_set"], Value::Null);

    let client = line.client().connect().await;
    let transport_id = client.session_id().unwrap();
    let path = format!("/predictions/{transport_id}");
    assert_eq!(json(&path, 409).await["status"], 409);
    listed_names(&client, "1").await;
    for id in ["2", "3"] {
        client.request(&call(id, "tool-003", "{}")).await;
    }

    let upstreams = json("/upstreams", 200).await;
    let upstream = &upstreams["upstreams"][0];
    assert_eq!(upstream["state"], "available");
    assert_eq!(upstream["tool_set"]["tools"], 12);
    let predicted = json(&path, 200).await;
    assert_eq!(predicted["policy"], "epoch");
    assert_eq!(predicted["available_tools"], 12);
    let tools = predicted["tools"].as_array().unwrap();
    assert_eq!(tools.len(), 12);
    let sum: f64 = tools
        .iter()
        .map(|tool| tool["probability"].as_f64().unwrap())
        .sum();
    // Each probability has six decimals.
    assert!((sum - 1.0).abs() < 1e-4, "{sum}");
    for tool in tools {
        assert_eq!(tool["shown"], true, "{tool}");
        assert_eq!(tool["shown_because"], "whole_list", "{tool}");
        assert!(tool["why"].as_array().is_some_and(|why| !why.is_empty()));
        // The score is the sum of its terms.
        let why = tool["why"].as_array().unwrap().iter();
        let parts: f64 = why.map(|term| term["value"].as_f64().unwrap()).sum();
        let score = tool["score"].as_f64().unwrap();
        assert!((parts - score).abs() < 1e-4, "{parts} for {tool}");
    }

    let work = predicted["session"].as_str().unwrap().to_owned();
    // Rows follow their records with a short delay.
    let mut seen = Value::Null;
    for _ in 0..100 {
        let path = format!("/sessions/{transport_id}");
        let answer = line.operate(Method::GET, &path, "").await;
        seen = serde_json::from_str(&answer.body).unwrap();
        if seen["session"]["calls"] == 2 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    assert_eq!(seen["session"]["calls"], 2, "{seen}");
    assert_eq!(seen["session"]["work_sessions"], json!([work]));
    let of_work = json(&format!("/sessions/{work}"), 200).await;
    let kinds: Vec<&str> = (of_work["timeline"].as_array().unwrap().iter())
        .map(|entry| entry["type"].as_str().unwrap())
        .collect();
    assert!(kinds.ends_with(&["call", "call"]), "{of_work}");
    let stats = json("/tools/tool-003/stats", 200).await;
    assert_eq!(stats["outcomes"]["ok"], 2, "{stats}");
    client.delete().await;
    assert_eq!(json(&path, 404).await["status"], 404);
}

#[tokio::test]
async fn control_port_reports_shutdown_until_requests_end() {
    let data = TempDir::new().unwrap();
    let mut line = line(data.path()).await;
    let client = line.client().connect().await;
    client.send(&call("1", "sleep", r#"{"ms":5000}"#)).await;
    let mut metrics = String::new();
    for _ in 0..500 {
        metrics = line.operate(Method::GET, "/metrics", "").await.body;
        if metrics.contains("\nriglm_requests_in_flight 1\n") {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(
        metrics.contains("\nriglm_requests_in_flight 1\n"),
        "{metrics}"
    );
    line.riglm.process.signal(Signal::TERM);
    let mut readiness = Value::Null;
    for _ in 0..100 {
        let answer = line.operate(Method::GET, "/health/ready", "").await;
        readiness = serde_json::from_str(&answer.body).unwrap();
        if answer.status == 503 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert_eq!(readiness["ready"], false, "{readiness}");
    assert_eq!(line.operate(Method::GET, "/metrics", "").await.status, 200);
    let answer = client.answer("1").await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    assert!(answer["result"].is_object(), "{answer}");
    let deadline = std::time::Duration::from_secs(20);
    let status = line.riglm.process.wait_for_end(deadline).await;
    assert!(status.success(), "{status}");
}

/// Returns the text of the metrics without values and without the version of riglm.
fn without_values(metrics: &str) -> String {
    let lines = metrics.lines().map(|line| match line.rsplit_once(' ') {
        Some((series, _)) if !line.starts_with('#') => format!("{series} <n>"),
        _ => line.to_owned(),
    });
    let version = concat!("version=\"", env!("CARGO_PKG_VERSION"), "\"");
    let lines: Vec<String> = lines.collect();
    lines.join("\n").replace(version, "version=\"<version>\"")
}

#[tokio::test]
async fn metrics_have_documented_names() {
    let data = TempDir::new().unwrap();
    let line = line(data.path()).await;
    let client = line.client().connect().await;
    client.request(&request("1", "tools/list")).await;
    client.request(&call("2", "tool-003", "{}")).await;
    client.delete().await;
    // Calls are learned, and sessions end, with a short delay.
    let ends = [
        "\nriglm_learned_calls_total 1\n",
        "\nriglm_sessions 0\n",
        "\nriglm_spool_bytes 0\n",
    ];
    let mut metrics = String::new();
    for _ in 0..100 {
        metrics = line.operate(Method::GET, "/metrics", "").await.body;
        if ends.iter().all(|end| metrics.contains(end)) {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    }
    for end in ends {
        assert!(metrics.contains(end), "{metrics}");
    }
    insta::assert_snapshot!(without_values(&metrics));
}
