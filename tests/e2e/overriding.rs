//! Scopes of overrides, through the control port and the command line: sessions by each of their
//! identifiers, clients, profiles and tools.

use std::path::Path;
use std::time::Duration;

use http::Method;
use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::process;
use riglm_tests::riglm::rows;
use serde_json::{Value, json};
use tempfile::TempDir;

/// A generous deadline for a change to take effect.
const SOON: Duration = Duration::from_secs(30);

struct RunningProxy {
    proxy: Proxy,
    data: TempDir,
}

impl RunningProxy {
    async fn start(strategy: &str) -> Self {
        let section = server("odd").tools(12).section();
        Self::over(TempDir::new().unwrap(), strategy, &section).await
    }

    /// Starts the proxy in front of the server of a section of the configuration.
    async fn over(data: TempDir, strategy: &str, section: &str) -> Self {
        let file = format!("{section}[profiles.ops]\n");
        let proxy = proxy().configuration(&file).strategy(strategy);
        let proxy = proxy.with_control().start_in(data.path()).await;
        Self { proxy, data }
    }

    async fn client(&self) -> RawClient {
        self.proxy.client().connect().await
    }

    async fn operate(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        let answer = self.proxy.operate(method, path, &body).await;
        let body = serde_json::from_str(&answer.body).unwrap_or(Value::Null);
        (answer.status, body)
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        self.operate(Method::GET, path, &Value::Null).await
    }

    async fn decide(&self, tool: &str, action: &str, scope: Value) -> (u16, Value) {
        let body = json!({ "tool": tool, "action": action, "scope": scope });
        self.operate(Method::POST, "/override", &body).await
    }

    /// Returns the identifiers of the session of a client: of its transport, of its connection and
    /// of its work session. The client must have listed and called tools.
    async fn identifiers(&self, client: &RawClient) -> [String; 3] {
        let transport = client.session_id().unwrap();
        let path = format!("/sessions/{transport}");
        let started = std::time::Instant::now();
        loop {
            let (_, seen) = self.get(&path).await;
            // Rows follow with a short delay.
            if let Some(work) = seen["session"]["work_sessions"][0].as_str() {
                let connection = seen["session"]["id"].as_str().unwrap();
                return [transport, connection.to_owned(), work.to_owned()];
            }
            assert!(started.elapsed() < SOON, "{seen}");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    /// Runs a command of the program with the same data and configuration.
    async fn run(&self, arguments: &[&str]) -> (i32, String, String) {
        run_over(self.data.path(), arguments).await
    }
}

async fn run_over(data: &Path, arguments: &[&str]) -> (i32, String, String) {
    let mut command = process::command(binary::riglm(), arguments);
    command.arg("--data-dir").arg(data);
    command.arg("--config").arg(data.join("test.toml"));
    let output = tokio::time::timeout(SOON, command.output()).await;
    let output = output.unwrap().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (
        output.status.code().unwrap(),
        text(output.stdout),
        text(output.stderr),
    )
}

async fn listed_names(client: &RawClient, id: &str) -> Vec<String> {
    let answer = client.request(&request(id, "tools/list")).await;
    names(&answer.text)
}

fn names(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn is_refused(client: &RawClient, id: &str, tool: &str) -> bool {
    let answer = client.request(&call(id, tool, "{}")).await;
    answer.text.contains("is forbidden by the operator")
}

/// Waits until a tool is in the list, or is not.
async fn until_listed(client: &RawClient, tool: &str, expected: bool) {
    let started = std::time::Instant::now();
    let mut n = 1_000;
    while listed_names(client, &n.to_string())
        .await
        .contains(&tool.to_owned())
        != expected
    {
        assert!(started.elapsed() < SOON, "{tool} is not listed: {expected}");
        tokio::time::sleep(Duration::from_millis(50)).await;
        n += 1;
    }
}

#[tokio::test]
async fn a_session_is_named_by_any_of_its_identifiers() {
    let stage = RunningProxy::start("prediction").await;
    let (one, other) = (stage.client().await, stage.client().await);
    for client in [&one, &other] {
        // So few tools are never hidden and need no search.
        assert_eq!(listed_names(client, "1").await.len(), 12);
        client.request(&call("2", "tool-000", "{}")).await;
    }
    let ids = stage.identifiers(&one).await;
    let [_, connection, work] = &ids;
    for (n, id) in ids.iter().enumerate() {
        let scope = json!({ "kind": "session", "id": id });
        let (hidden, refused) = (format!("tool-00{}", n + 1), format!("tool-00{}", n + 5));
        let (status, decided) = stage.decide(&hidden, "exclude", scope.clone()).await;
        assert_eq!(status, 201, "{decided}");
        // The response contains the resolved session.
        let known = if id == work { work } else { connection };
        assert_eq!(decided["scope"]["id"], *known);
        assert_eq!(decided["note"], Value::Null);
        until_listed(&one, &hidden, false).await;
        assert!(
            listed_names(&other, "3").await.contains(&hidden),
            "{hidden}"
        );

        let (status, decided) = stage.decide(&refused, "forbid", scope).await;
        assert_eq!(status, 201, "{decided}");
        assert!(is_refused(&one, "4", &refused).await, "{id}");
        assert!(!is_refused(&other, "4", &refused).await, "{id}");

        let (status, said) = stage
            .operate(
                Method::POST,
                "/feedback",
                &json!({ "session": id, "tool": "tool-000", "verdict": "helpful" }),
            )
            .await;
        assert_eq!(status, 201, "{id}: {said}");
        for path in [format!("/sessions/{id}"), format!("/predictions/{id}")] {
            let (status, seen) = stage.get(&path).await;
            assert_eq!(status, 200, "{path}: {seen}");
        }
        let body = json!({ "query": "a tool", "session": id });
        let (status, seen) = stage.operate(Method::POST, "/recommendations", &body).await;
        assert_eq!(status, 200, "{id}: {seen}");
    }
}

#[tokio::test]
async fn overrides_with_unknown_names_are_refused() {
    let stage = RunningProxy::start("prediction").await;
    let client = stage.client().await;
    listed_names(&client, "1").await;
    client.request(&call("2", "tool-000", "{}")).await;
    stage.identifiers(&client).await;
    let scope = |kind: &str, id: &str| json!({ "kind": kind, "id": id });
    let global = json!({ "kind": "global" });
    let nobody = "019b7ca9-8c88-7909-8909-090909090909";
    let hash = "0123456789abcdef0123456789abcdef";
    for (tool, scope, status, text) in [
        ("tool-001", scope("session", nobody), 404, nobody),
        ("tool-001", scope("session", "no-such"), 404, "\"no-such\""),
        ("tool-001", scope("client", "Nobody"), 404, "\"Nobody\""),
        ("tool-001", scope("client", hash), 404, hash),
        ("tool-001", scope("profile", "op"), 404, "known are ops"),
        ("tool-0001", global.clone(), 422, "the nearest is tool-00"),
    ] {
        for action in ["exclude", "forbid"] {
            let (answered, problem) = stage.decide(tool, action, scope.clone()).await;
            let detail = problem["detail"].as_str().unwrap_or_default();
            assert_eq!(answered, status, "{scope}: {problem}");
            assert!(detail.contains(text), "{scope}: {detail}");
        }
    }
    let (_, all) = stage.get("/overrides").await;
    assert_eq!(all, json!({ "overrides": [] }));
    for (path, body) in [
        (
            "/feedback",
            json!({ "session": "gone", "tool": "tool-000", "verdict": "helpful" }),
        ),
        (
            "/recommendations",
            json!({ "query": "a tool", "session": "gone" }),
        ),
    ] {
        let (status, problem) = stage.operate(Method::POST, path, &body).await;
        assert_eq!(status, 404, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("\"gone\""),
            "{problem}"
        );
    }
    for path in [
        "/sessions/gone",
        "/predictions/gone",
        "/tools/gone/stats",
        "/tools?upstream=gone",
        "/tools/tool-000/stats?upstream=gone",
        "/experiments/gone",
    ] {
        let (status, problem) = stage.get(path).await;
        assert_eq!(status, 404, "{path}: {problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("\"gone\""),
            "{path}: {problem}"
        );
    }
    let path = "/upstreams/gone/approve";
    let (status, problem) = stage.operate(Method::POST, path, &json!({})).await;
    assert_eq!(status, 404, "{problem}");
    assert!(
        problem["detail"].as_str().unwrap().contains("\"gone\""),
        "{problem}"
    );

    // The name of a client is a valid scope if it is unique. A tool can be forbidden before it is
    // listed.
    let own: Value = serde_json::from_str(&initialize("0", "2025-11-25")).unwrap();
    let own = own["params"]["clientInfo"]["name"].as_str().unwrap();
    let (status, decided) = stage
        .decide("tool-001", "forbid", scope("client", own))
        .await;
    assert_eq!(status, 201, "{decided}");
    let sessions = rows(stage.data.path(), &["sessions", "--json"]).await;
    assert_eq!(decided["scope"]["id"], sessions[0]["client_id"]);
    assert!(is_refused(&client, "3", "tool-001").await);
    let early = json!({
        "tool": "comes_later", "action": "forbid", "scope": global, "allow_unknown": true
    });
    let (status, decided) = stage.operate(Method::POST, "/override", &early).await;
    assert_eq!(status, 201, "{decided}");
}

#[tokio::test]
async fn modern_sessions_accept_only_forbid_overrides() {
    let stage = RunningProxy::start("prediction").await;
    let client = RawClient::modern(&stage.proxy.riglm.url);
    let asked = Meta::default().request("1", "tools/list", "");
    assert!(names(&client.request(&asked).await.text).contains(&"tool-001".to_owned()));
    let asked = Meta::default().call("2", "tool-000", "{}");
    client.request(&asked).await;
    let started = std::time::Instant::now();
    let session = loop {
        let (_, seen) = stage.get("/sessions").await;
        let one = &seen["sessions"][0];
        if one["work_sessions"][0].is_string() {
            break one.clone();
        }
        assert!(started.elapsed() < SOON, "{seen}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    };
    for id in [&session["id"], &session["work_sessions"][0]] {
        let scope = json!({ "kind": "session", "id": id });
        let (status, problem) = stage.decide("tool-001", "exclude", scope.clone()).await;
        assert_eq!(status, 422, "{problem}");
        assert!(
            problem["detail"].as_str().unwrap().contains("2026-07-28"),
            "{problem}"
        );
        let (status, decided) = stage.decide("tool-001", "forbid", scope).await;
        assert_eq!(status, 201, "{decided}");
    }
    let asked = Meta::default().call("3", "tool-001", "{}");
    let refused = client.request(&asked).await;
    assert!(
        refused.text.contains("is forbidden by the operator"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn overrides_without_effect_are_noted_and_need_no_upstream() {
    let stage = RunningProxy::start("none").await;
    let client = stage.client().await;
    listed_names(&client, "1").await;
    client.request(&call("2", "tool-000", "{}")).await;
    stage.identifiers(&client).await;
    let RunningProxy { mut proxy, data } = stage;
    assert_eq!(proxy.riglm.stop().await, Some(0));
    let gone = "[upstreams.odd]\ncommand = [\"/nonexistent/server\"]\n";
    let stage = RunningProxy::over(data, "none", gone).await;
    let (status, decided) = stage
        .decide("tool-003", "forbid", json!({ "kind": "global" }))
        .await;
    assert_eq!(status, 201, "{decided}");
    assert_eq!(decided["note"], Value::Null);
    let (status, decided) = stage
        .decide("tool-003", "pin", json!({ "kind": "global" }))
        .await;
    assert_eq!(status, 201, "{decided}");
    assert!(
        decided["note"]
            .as_str()
            .unwrap()
            .contains("filtering.strategy"),
        "{decided}"
    );
    let (status, problem) = stage
        .decide("tool-0", "pin", json!({ "kind": "global" }))
        .await;
    assert_eq!(status, 422, "{problem}");
}

#[tokio::test]
async fn lists_follow_decisions_at_the_control_port_at_once() {
    let stage = RunningProxy::start("prediction").await;
    let client = stage.client().await;
    let listed = async |n: usize| {
        let names = listed_names(&client, &n.to_string()).await;
        names.contains(&"tool-003".to_owned())
    };
    assert!(listed(0).await);
    // More often than once in a poll of the store.
    for n in 1..=5 {
        let scope = json!({ "kind": "global" });
        let (status, decided) = stage.decide("tool-003", "exclude", scope).await;
        assert_eq!(status, 201, "{decided}");
        assert!(!listed(2 * n).await, "the decision holds for the next list");
        let path = format!("/overrides/{}", decided["id"].as_str().unwrap());
        let (status, _) = stage.operate(Method::DELETE, &path, &Value::Null).await;
        assert_eq!(status, 204);
        assert!(listed(2 * n + 1).await, "so does its removal");
    }
}

#[tokio::test]
async fn the_command_line_decides_and_a_running_proxy_follows() {
    let stage = RunningProxy::start("prediction").await;
    let client = stage.client().await;
    assert_eq!(listed_names(&client, "1").await.len(), 12);
    client.request(&call("2", "tool-000", "{}")).await;
    let [_, connection, work] = stage.identifiers(&client).await;

    let add = [
        "override", "add", "tool-001", "--action", "exclude", "--json",
    ];
    let more = [
        "--expires",
        "2h",
        "--reason",
        "a test",
        "--session",
        &connection,
    ];
    let (code, out, err) = stage.run(&[&add[..], &more].concat()).await;
    assert_eq!(code, 0, "{err}");
    let excluded: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(
        excluded["scope"],
        json!({ "kind": "session", "id": connection })
    );
    assert_eq!(excluded["reason"], "a test");
    assert!(excluded["expires_at"].is_string());
    until_listed(&client, "tool-001", false).await;

    let add = [
        "override",
        "add",
        "tool-002",
        "--action",
        "forbid",
        "--session",
        &work,
    ];
    let (code, out, err) = stage.run(&add).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("forbid tool-002 for session"), "{out}");
    until_listed(&client, "tool-002", false).await;
    // Lists and permissions of calls follow the same read of the overrides.
    assert!(is_refused(&client, "3", "tool-002").await);

    let (_, listing) = stage.get("/overrides").await;
    let (code, out, _) = stage.run(&["override", "list", "--json"]).await;
    assert_eq!(code, 0);
    let shown: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(shown, listing["overrides"]);
    let (_, out, _) = stage.run(&["override", "list"]).await;
    assert!(out.contains("tool-001") && out.contains("a test"), "{out}");

    let id = excluded["id"].as_str().unwrap();
    let (code, out, _) = stage.run(&["override", "remove", id]).await;
    assert_eq!(
        (code, out.trim_end()),
        (0, &*format!("removed override {id}"))
    );
    until_listed(&client, "tool-001", true).await;
    let (code, _, err) = stage.run(&["override", "remove", id]).await;
    assert_eq!(code, 1);
    assert!(err.contains(id), "{err}");

    let (_, trail) = stage.get("/audit").await;
    let entries = trail["entries"].as_array().unwrap().iter();
    let actions: Vec<(&str, &str)> = entries
        .map(|entry| {
            (
                entry["action"].as_str().unwrap(),
                entry["actor"].as_str().unwrap(),
            )
        })
        .collect();
    let expected = ["override.create", "override.create", "override.remove"];
    assert_eq!(actions, expected.map(|action| (action, "local")));
}

#[tokio::test]
async fn the_command_line_validates_overrides_without_a_proxy() {
    let stage = RunningProxy::start("none").await;
    let client = stage.client().await;
    listed_names(&client, "1").await;
    client.request(&call("2", "tool-000", "{}")).await;
    stage.identifiers(&client).await;
    let RunningProxy { mut proxy, data } = stage;
    assert_eq!(proxy.riglm.stop().await, Some(0));
    let add = ["override", "add"];
    for (arguments, expected, text) in [
        (&["tool-001"][..], 2, "--action"),
        (&["tool-001", "--action", "show"], 2, "include"),
        (&["", "--action", "pin"], 2, "it is empty"),
        (
            &["tool-001", "--action", "pin", "--expires", "soon"],
            2,
            "expected a duration such as 30m",
        ),
        (
            &[
                "tool-001",
                "--action",
                "pin",
                "--expires",
                "2001-01-01T00:00:00Z",
            ],
            2,
            "in the past",
        ),
        (
            &[
                "tool-001",
                "--action",
                "pin",
                "--session",
                "a",
                "--client",
                "b",
            ],
            2,
            "cannot be used",
        ),
        (
            &["tool-001", "--action", "pin", "--session", "gone"],
            1,
            "unknown session \"gone\"",
        ),
        (
            &["tool-001", "--action", "pin", "--client", "gone"],
            1,
            "unknown client \"gone\"",
        ),
        (
            &["tool-001", "--action", "pin", "--profile", "op"],
            1,
            "known are ops",
        ),
        (&["tool-0001", "--action", "pin"], 1, "--allow-unknown"),
    ] {
        let (code, out, err) = run_over(data.path(), &[&add[..], arguments].concat()).await;
        assert_eq!((code, &*out), (expected, ""), "{arguments:?}: {err}");
        assert!(err.contains(text), "{arguments:?}: {err}");
    }
    let (code, out, _) = run_over(data.path(), &["override", "list"]).await;
    assert_eq!((code, out.trim_end()), (0, "no overrides are in effect"));
    let forbid = ["tool-0001", "--action", "forbid", "--allow-unknown"];
    let (code, out, err) = run_over(data.path(), &[&add[..], &forbid].concat()).await;
    assert_eq!(code, 0, "{err}");
    assert!(out.contains("forbid tool-0001 for all clients"), "{out}");
    let pin = ["tool-001", "--action", "pin", "--profile", "ops"];
    let (code, _, err) = run_over(data.path(), &[&add[..], &pin].concat()).await;
    assert_eq!(code, 0, "{err}");
    assert!(err.contains("filtering.strategy"), "{err}");
}
