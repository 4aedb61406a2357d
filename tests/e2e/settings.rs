//! Settings that change while the proxy runs: by the control port, by the configuration file and by
//! SIGHUP.

use std::path::Path;
use std::time::{Duration, Instant};

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http::{self, HttpResponse};
use riglm_tests::riglm::{Riglm, read_store};
use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// A generous deadline for a change to take effect.
const SOON: Duration = Duration::from_secs(20);

const FILE: &str = "[filtering]\nstrategy = \"prediction\"\n[profiles.few]\n";

struct RunningProxy(Proxy);

async fn line(data_dir: &Path, configuration: &str) -> RunningProxy {
    line_with(data_dir, configuration, &[]).await
}

async fn line_with(
    data_dir: &Path,
    configuration: &str,
    variables: &[(&str, &str)],
) -> RunningProxy {
    let strategy = if configuration.contains("allowlist") {
        "allowlist"
    } else {
        "prediction"
    };
    let mut proxy = proxy()
        .before(server("plain").tools(12).upstream())
        .configuration(configuration)
        .strategy(strategy)
        .with_control();
    for (name, value) in variables {
        proxy = proxy.variable(name, value);
    }
    RunningProxy(proxy.start_in(data_dir).await)
}

impl RunningProxy {
    async fn operate(
        &self,
        method: Method,
        path: &str,
        tag: Option<&str>,
        body: &str,
    ) -> HttpResponse {
        let tag = tag.map(|tag| ("if-match", tag));
        let tag: Vec<_> = tag.into_iter().collect();
        self.0.operate_with(method, path, &tag, body).await
    }

    async fn settings(&self) -> (String, Value) {
        let answer = self.operate(Method::GET, "/config", None, "").await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        let tag = answer.header("etag").unwrap().to_owned();
        (tag, serde_json::from_str(&answer.body).unwrap())
    }

    async fn put(&self, tag: &str, tuning: &Value) -> HttpResponse {
        let body = tuning.to_string();
        self.operate(Method::PUT, "/config", Some(tag), &body).await
    }

    async fn tune(&self, tuning: &Value) -> Value {
        let (tag, _) = self.settings().await;
        let answer = self.put(&tag, tuning).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Waits until a setting is in effect.
    async fn wait_for_setting(&self, pointer: &str, expected: &Value) {
        let started = Instant::now();
        loop {
            let (_, settings) = self.settings().await;
            let value = settings["effective"].pointer(pointer);
            if value == Some(expected) {
                return;
            }
            assert!(started.elapsed() < SOON, "{pointer} is {value:?}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn wait_for_log(&self, text: &str) {
        let found = |line: &str| line.contains(text).then_some(());
        self.0.riglm.process.line(SOON, text, found).await;
    }
}

fn tools_in(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .filter(|name| name.starts_with("tool-"))
        .collect()
}

async fn list(client: &RawClient, id: &str) -> Vec<String> {
    tools_in(&client.request(&request(id, "tools/list")).await.text)
}

async fn connect(riglm: &Riglm, path: &str) -> RawClient {
    let client = RawClient::streamable(&riglm.at(path), Answers::default());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.open_stream(None).await;
    client
}

#[tokio::test]
async fn tuning_notifies_connected_clients_and_changes_their_lists() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), FILE).await;
    let client = connect(&line.0.riglm, "/mcp").await;
    let few = connect(&line.0.riglm, "/mcp/few").await;
    assert_eq!(list(&client, "1").await.len(), 12);
    assert_eq!(list(&few, "1").await.len(), 12);
    let modern = RawClient::modern(&line.0.riglm.url);
    let modern_list = Meta::default().request("9", "tools/list", "");
    assert_eq!(tools_in(&modern.request(&modern_list).await.text).len(), 12);

    let (before, before_few) = (client.n_received(), few.n_received());
    let tuning = json!({
        "filtering": {"bans": ["tool-003"], "max_tools": 9},
        "profiles": {"few": {"filtering": {"policy": "allowlist", "allow": ["tool-00*"]}}},
    });
    let settings = line.tune(&tuning).await;
    assert_eq!(
        (&settings["version"], &settings["tuning"]),
        (&json!(1), &tuning)
    );
    assert_eq!(settings["effective"]["filtering"]["max_tools"], 9);
    client.method_after(before, LIST_CHANGED, 1).await;
    few.method_after(before_few, LIST_CHANGED, 1).await;
    let shown = list(&client, "2").await;
    assert!(
        shown.len() == 11 && !shown.contains(&"tool-003".to_owned()),
        "{shown:?}"
    );
    let shown = list(&few, "2").await;
    assert!(
        shown.len() == 9 && !shown.contains(&"tool-011".to_owned()),
        "{shown:?}"
    );
    let shown = tools_in(&modern.request(&modern_list).await.text);
    assert!(
        shown.len() == 11 && !shown.contains(&"tool-003".to_owned()),
        "{shown:?}"
    );

    // An empty document resets all settings.
    let before = client.n_received();
    assert_eq!(line.tune(&json!({})).await["version"], 2);
    client.method_after(before, LIST_CHANGED, 1).await;
    assert_eq!(list(&client, "3").await.len(), 12);

    let trail = line.operate(Method::GET, "/audit", None, "").await;
    let trail: Value = serde_json::from_str(&trail.body).unwrap();
    let entries = trail["entries"].as_array().unwrap();
    assert_eq!(entries.len(), 2);
    assert_eq!(entries[0]["action"], "config.change");
    assert_eq!(entries[0]["actor"], "control");
    let detail: Value = serde_json::from_str(entries[1]["detail"].as_str().unwrap()).unwrap();
    assert_eq!(detail, json!({"before": tuning, "after": {}}));
}

#[tokio::test]
async fn name_based_lists_follow_tuned_patterns() {
    let data = TempDir::new().unwrap();
    let file = "[filtering]\nstrategy = \"allowlist\"\nallow = [\"tool-00*\"]\n";
    let line = line(data.path(), file).await;
    let client = connect(&line.0.riglm, "/mcp").await;
    assert_eq!(list(&client, "1").await.len(), 10);
    line.tune(&json!({"filtering": {"allow": ["tool-01*"]}}))
        .await;
    assert_eq!(list(&client, "2").await, ["tool-010", "tool-011"]);
    // Without a name in the allowlist there would be no tools.
    let answer = line.put("*", &json!({"filtering": {"allow": []}})).await;
    assert_eq!(answer.status, 422, "{}", answer.body);
    assert!(answer.body.contains("pattern in allow"), "{}", answer.body);
    assert_eq!(list(&client, "3").await.len(), 2);
}

#[tokio::test]
async fn fixed_settings_are_refused_without_changes() {
    let data = TempDir::new().unwrap();
    let variables = [("RIGLM__LIMITS__SESSIONS", "77")];
    let line = line_with(data.path(), FILE, &variables).await;
    let (tag, before) = line.settings().await;
    assert_eq!(before["effective"]["limits"]["sessions"], "77");
    for (tuning, key) in [
        (
            json!({"upstreams": {"default": {"command": ["sh", "-c", "id"]}}}),
            "upstreams.default.command cannot be changed while riglm runs",
        ),
        (
            json!({"limits": {"in_flight": 9}, "listen": {"address": "0.0.0.0:1"}}),
            "listen.address",
        ),
        (
            json!({"auth": {"keys": {"a": "0123456789abcdef"}}}),
            "auth.keys.a",
        ),
        (json!({"filtering": {"max_tool": 9}}), "filtering.max_tool"),
        (
            json!({"filtering": {"max_tools": "many"}}),
            "filtering.max_tools",
        ),
        (
            json!({"limits": {"sessions": 9}}),
            "RIGLM__LIMITS__SESSIONS",
        ),
        (
            json!({"filtering": {"strategy": "none"}}),
            "filtering.strategy",
        ),
    ] {
        let answer = line.put(&tag, &tuning).await;
        assert_eq!(answer.status, 422, "{tuning}: {}", answer.body);
        assert_eq!(
            answer.header("content-type"),
            Some("application/problem+json")
        );
        let problem: Value = serde_json::from_str(&answer.body).unwrap();
        let detail = problem["detail"]
            .as_str()
            .unwrap()
            .replace(": cannot", " cannot");
        assert!(detail.contains(key), "{detail}");
    }
    let body = json!({}).to_string();
    let answer = line.operate(Method::PUT, "/config", None, &body).await;
    assert_eq!(answer.status, 428);
    assert_eq!(line.put("\"9-x\"", &json!({})).await.status, 412);
    assert_eq!(line.settings().await, (tag, before));
    assert!(!data.path().join("tuning.json").exists());
}

#[tokio::test]
async fn only_one_of_several_concurrent_changes_succeeds() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), FILE).await;
    let (tag, _) = line.settings().await;
    let change = async |n: u64| {
        let answer = line.put(&tag, &json!({"limits": {"sessions": n}})).await;
        (answer.status, n)
    };
    let (a, b, c) = tokio::join!(change(101), change(102), change(103));
    let won: Vec<u64> = [a, b, c]
        .into_iter()
        .filter(|(status, _)| *status == 200)
        .map(|(_, n)| n)
        .collect();
    let n_stale = [a, b, c]
        .iter()
        .filter(|(status, _)| *status == 412)
        .count();
    assert_eq!((won.len(), n_stale), (1, 2));
    let (_, settings) = line.settings().await;
    assert_eq!(settings["version"], 1);
    assert_eq!(settings["effective"]["limits"]["sessions"], won[0]);
}

#[tokio::test]
async fn tuning_survives_restarts_and_reaches_other_processes() {
    use std::os::unix::fs::PermissionsExt as _;
    let data = TempDir::new().unwrap();
    let mut first = line(data.path(), FILE).await;
    let other = line(data.path(), FILE).await;
    first
        .tune(&json!({"limits": {"sessions": 5}, "filtering": {"bans": ["tool-003"]}}))
        .await;
    other.wait_for_setting("/limits/sessions", &json!(5)).await;
    // The other process knows the tuned values before it changes them.
    let settings = other
        .tune(&json!({"limits": {"sessions": 6}, "filtering": {"bans": ["tool-004"]}}))
        .await;
    assert_eq!(settings["version"], 2);
    first.wait_for_setting("/limits/sessions", &json!(6)).await;
    let file = data.path().join("tuning.json");
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(first.0.riglm.stop().await, Some(0));
    drop(other);

    let again = line(data.path(), FILE).await;
    let (_, settings) = again.settings().await;
    assert_eq!(
        (
            &settings["version"],
            &settings["effective"]["limits"]["sessions"]
        ),
        (&json!(2), &json!(6))
    );
    let client = connect(&again.0.riglm, "/mcp").await;
    assert!(!list(&client, "1").await.contains(&"tool-004".to_owned()));
    let shown = read_store(data.path(), &["config", "show"]).await;
    let line = shown
        .lines()
        .find(|line| line.starts_with("limits.sessions"))
        .unwrap();
    assert!(
        line.starts_with("limits.sessions = 6") && line.ends_with("tuning.json"),
        "{line}"
    );
}

#[tokio::test]
async fn unreadable_tuning_does_not_prevent_startup() {
    let data = TempDir::new().unwrap();
    std::fs::write(data.path().join("tuning.json"), "{\"version\": 3, \"tun").unwrap();
    let line = line(data.path(), FILE).await;
    line.wait_for_log("tuning ignored, because it is invalid")
        .await;
    let (_, settings) = line.settings().await;
    assert_eq!(
        (&settings["version"], &settings["tuning"]),
        (&json!(0), &json!({}))
    );
    line.tune(&json!({"limits": {"sessions": 5}})).await;
    let text = std::fs::read_to_string(data.path().join("tuning.json")).unwrap();
    let document: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(
        document,
        json!({"version": 1, "tuning": {"limits": {"sessions": 5}}})
    );
}

#[tokio::test]
async fn file_changes_apply_to_reloadable_settings() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), FILE).await;
    let client = connect(&line.0.riglm, "/mcp").await;
    assert_eq!(list(&client, "1").await.len(), 12);
    let before = client.n_received();
    let write = |text: &str| std::fs::write(data.path().join("test.toml"), text).unwrap();
    write(&format!(
        "naming = \"collision\"\n{FILE}[filtering.costs]\nsearch = 700.0\n[limits]\nsessions = 9\n[storage]\nbackend = \"sqlite\"\n[storage.sqlite]\npath = \"/nowhere/x.db\"\n"
    ).replace("strategy = \"prediction\"", "strategy = \"prediction\"\nbans = [\"tool-003\"]"));
    line.wait_for_log("naming cannot be changed while riglm runs")
        .await;
    line.wait_for_log(
        "storage.sqlite.path cannot be changed while riglm runs: the database is opened at startup",
    )
    .await;
    client.method_after(before, LIST_CHANGED, 1).await;
    assert_eq!(list(&client, "2").await.len(), 11);
    let (_, settings) = line.settings().await;
    let effective = &settings["effective"];
    assert_eq!(
        (&effective["naming"], &effective["limits"]["sessions"]),
        (&json!("prefix"), &json!(9))
    );

    // An invalid file changes nothing, and the error names the file and the key.
    write("[filtering]\nbans = []\n[limits]\nsessions = \"many\"\n");
    line.wait_for_log("limits.sessions: invalid type").await;
    assert_eq!(list(&client, "3").await.len(), 11);
    let answer = line.put("*", &json!({"limits": {"in_flight": 3}})).await;
    assert_eq!(answer.status, 409, "{}", answer.body);
    assert!(
        answer.body.contains("test.toml: limits.sessions"),
        "{}",
        answer.body
    );
}

#[tokio::test]
async fn sighup_reloads_and_tuned_log_levels_apply() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), FILE).await;
    line.0.riglm.process.signal(Signal::HUP);
    line.wait_for_log("configuration reloaded: no runtime change")
        .await;
    let client = connect(&line.0.riglm, "/mcp").await;
    list(&client, "1").await;
    line.tune(&json!({"logging": {"level": "debug"}})).await;
    line.tune(&json!({"logging": {"level": "debug"}, "filtering": {"bans": ["tool-001"]}}))
        .await;
    list(&client, "2").await;
    line.wait_for_log("DEBUG").await;
    line.wait_for_log("selected a tool list").await;
}

#[tokio::test]
async fn limits_hold_from_their_change_on() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), FILE).await;
    let client = connect(&line.0.riglm, "/mcp").await;
    line.tune(&json!({"limits": {"sessions": 1}})).await;
    let hello = initialize("0", "2025-11-25");
    let post = async || {
        let headers = [
            ("accept", "application/json, text/event-stream"),
            ("content-type", "application/json"),
        ];
        let answer = plain_http::exchange(Method::POST, &line.0.riglm.url, &headers, hello.clone());
        answer.await.unwrap().status
    };
    assert_ne!(post().await, 200);
    assert_eq!(list(&client, "1").await.len(), 12);
    line.tune(&json!({})).await;
    assert_eq!(post().await, 200);
}

#[tokio::test]
async fn tuned_list_sizes_apply_to_predicted_lists() {
    let data = TempDir::new().unwrap();
    let line = line(data.path(), FILE).await;
    let work = |name: &str| {
        let meta = format!(r#""params":{{"_meta":{{"io.github.riglm/session":"{name}"}},"#);
        initialize("0", "2025-11-25").replace(r#""params":{"#, &meta)
    };
    let usual = ["tool-003", "tool-004"];
    for n in 0..20 {
        let client = line.0.riglm.client(Answers::default());
        client.initialize(&work(&format!("work {n}"))).await;
        list(&client, "1").await;
        for tool in usual {
            client
                .request(&call(&format!("\"{tool}\""), tool, "{}"))
                .await;
        }
    }
    let started = Instant::now();
    loop {
        let health = line.operate(Method::GET, "/health", None, "").await;
        let health: Value = serde_json::from_str(&health.body).unwrap();
        if health["prediction"]["learned_calls"].as_u64() >= Some(40) {
            break;
        }
        assert!(started.elapsed() < SOON, "{health}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let client = line.0.riglm.client(Answers::default());
    client.initialize(&work("another")).await;
    client.open_stream(None).await;
    assert_eq!(list(&client, "1").await.len(), 12);
    let before = client.n_received();
    let few = json!({"min_tools": 1, "max_tools": 2, "token_budget": 200});
    line.tune(&json!({"filtering": few})).await;
    client.method_after(before, LIST_CHANGED, 1).await;
    let mut shown = list(&client, "2").await;
    shown.sort_unstable();
    assert_eq!(shown, usual);
    // Unchanged settings start no new epoch.
    line.tune(&json!({"filtering": few, "limits": {"sessions": 99}}))
        .await;
    assert_eq!(list(&client, "3").await.len(), 2);
}
