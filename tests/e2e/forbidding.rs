//! Tools that the operator forbids: no client sees them, and no client can call them.

use std::path::Path;
use std::time::Duration;

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http::HttpResponse;
use riglm_tests::riglm::rows;
use serde_json::{Value, json};

const LIST_CHANGED: &str = "notifications/tools/list_changed";
/// The forbidden patterns, and the matching tools of the catalog.
const FORBID: &str = "forbid = [\"delete_*\", \"archive_project\"]\n";
const FORBIDDEN: [&str; 2] = ["delete_task", "archive_project"];
/// A generous deadline for a change to take effect.
const SOON: Duration = Duration::from_secs(20);

struct RunningProxy(Proxy);

#[derive(Clone, Copy, Debug, PartialEq)]
enum UpstreamCount {
    One,
    Two,
}

impl RunningProxy {
    async fn start(servers: UpstreamCount, strategy: &str, filtering: &str) -> Self {
        let catalog = Path::new(env!("CARGO_MANIFEST_DIR")).join("e2e/scenarios/catalog.json");
        let mut proxy = proxy().server(&server("work").listing(&catalog));
        if servers == UpstreamCount::Two {
            proxy = proxy.server(&server("plain").tools(3));
        }
        let sections = format!("[recommend]\ntools = true\n[filtering]\n{filtering}");
        let proxy = proxy.configuration(&sections).strategy(strategy);
        Self(proxy.with_control().start().await)
    }

    async fn client(&self, path: &str, revision: &str) -> RawClient {
        let client = RawClient::streamable(&self.0.riglm.at(path), Answers::default());
        client.initialize(&initialize("0", revision)).await;
        client
    }

    async fn operate(&self, method: Method, path: &str, body: &str) -> HttpResponse {
        self.0.operate(method, path, body).await
    }

    async fn forbids(&self, tool: &str, scope: &Value) -> HttpResponse {
        let decision = json!({ "tool": tool, "action": "forbid", "scope": scope });
        self.operate(Method::POST, "/override", &decision.to_string())
            .await
    }
}

/// Returns the tool names in a list.
fn names(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    assert!(answer["result"]["nextCursor"].is_null(), "{answer}");
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn list(client: &RawClient, id: &str) -> Vec<String> {
    names(&client.request(&request(id, "tools/list")).await.text)
}

/// Returns whether a call was refused because its tool is forbidden.
fn is_refused(answer: &str, tool: &str) -> bool {
    let parsed: Value = serde_json::from_str(answer).unwrap();
    let text = parsed["result"]["content"][0]["text"].as_str();
    let is_refused = text.is_some_and(|text| {
        text.starts_with(&format!("The tool {tool} is forbidden by the operator"))
    });
    assert!(
        !is_refused || parsed["result"]["isError"] == true,
        "{answer}"
    );
    is_refused
}

async fn refuses(client: &RawClient, id: &str, tool: &str) -> bool {
    is_refused(&client.request(&call(id, tool, "{}")).await.text, tool)
}

#[tokio::test]
async fn forbidden_tools_are_named_only_in_refusals_of_calls() {
    let deny = "deny = [\"web_*\"]\n";
    for servers in [UpstreamCount::One, UpstreamCount::Two] {
        for strategy in ["none", "denylist", "prediction"] {
            let filtering = format!("{deny}{FORBID}");
            let stage = RunningProxy::start(servers, strategy, &filtering).await;
            let shown = |tool: &str| match servers {
                UpstreamCount::One => tool.to_owned(),
                UpstreamCount::Two => format!("work__{tool}"),
            };
            let case = format!("{strategy}, {servers:?}");
            let legacy = stage.client("/mcp", "2025-11-25").await;
            let modern = RawClient::modern(&stage.0.riglm.url);
            for (client, is_modern) in [(&legacy, false), (&modern, true)] {
                let ask = |id: usize, tool: &str, arguments: &Value| {
                    let (id, arguments) = (id.to_string(), arguments.to_string());
                    if is_modern {
                        Meta::default().call(&id, tool, &arguments)
                    } else {
                        call(&id, tool, &arguments)
                    }
                };
                let listing = if is_modern {
                    Meta::default().request("1", "tools/list", "")
                } else {
                    request("1", "tools/list")
                };
                let listed = names(&client.request(&listing).await.text);
                assert!(listed.contains(&shown("get_task")), "{case}: {listed:?}");
                let has = |name: &str| listed.iter().any(|listed| listed == name);
                // Nothing that suggests tools names a forbidden one.
                let query = json!({ "query": "delete a task, archive a project" });
                let mut n = 10;
                for own in ["search_available_tools", "set_context", "recommend_tools"] {
                    if strategy != "none" && has(own) {
                        n += 1;
                        let answer = client.request(&ask(n, own, &query)).await;
                        assert!(
                            answer.text.contains("\"result\""),
                            "{case}: {}",
                            answer.text
                        );
                    }
                }
                for wrong in ["delete_tasks", "archiveproject", "get_taks"] {
                    for name in [wrong.to_owned(), shown(wrong)] {
                        n += 1;
                        client.request(&ask(n, &name, &json!({}))).await;
                    }
                }
                let received = client.received_messages();
                for tool in FORBIDDEN {
                    let found = received.iter().find(|one| {
                        // Responses may repeat the text of the client itself.
                        one.text.replace(&format!("{tool}s"), "").contains(tool)
                    });
                    assert!(found.is_none(), "{case}: {}", found.unwrap().text);
                }
                // A forbidden tool cannot be called directly or through `call_tool`.
                for tool in FORBIDDEN {
                    let name = shown(tool);
                    n += 1;
                    let answer = client.request(&ask(n, &name, &json!({}))).await;
                    assert!(is_refused(&answer.text, &name), "{case}: {}", answer.text);
                    n += 1;
                    let answer = client.request(&ask(n, tool, &json!({}))).await;
                    assert!(is_refused(&answer.text, &name), "{case}: {}", answer.text);
                    if strategy != "none" {
                        n += 1;
                        let inner = json!({ "name": name, "arguments": {} });
                        let answer = client.request(&ask(n, "call_tool", &inner)).await;
                        assert!(is_refused(&answer.text, &name), "{case}: {}", answer.text);
                    }
                }
                n += 1;
                let answer = client
                    .request(&ask(n, &shown("get_task"), &json!({})))
                    .await;
                assert!(
                    answer.text.contains("work ran get_task"),
                    "{case}: {}",
                    answer.text
                );
            }
        }
    }
}

#[tokio::test]
async fn a_batch_does_not_bypass_forbidden_tools() {
    for strategy in ["none", "prediction"] {
        let stage = RunningProxy::start(UpstreamCount::One, strategy, FORBID).await;
        let client = stage.client("/mcp", "2025-03-26").await;
        let batch = [
            request("1", "tools/list"),
            call("2", "delete_task", "{}"),
            call("3", "get_task", "{}"),
        ];
        client.send(&format!("[{}]", batch.join(","))).await;
        let [listed, refused, made] = [
            client.answer("1").await.text,
            client.answer("2").await.text,
            client.answer("3").await.text,
        ];
        let is_batch = |text: &str| text.starts_with('[');
        let part = |text: &str, id: u64| -> String {
            let parsed: Value = serde_json::from_str(text).unwrap();
            let parts = if is_batch(text) {
                parsed.as_array().unwrap().clone()
            } else {
                vec![parsed]
            };
            let found = parts.into_iter().find(|part| part["id"] == id);
            found.unwrap().to_string()
        };
        assert!(listed.contains("get_task") && !part(&listed, 1).contains("delete_task"));
        assert!(is_refused(&part(&refused, 2), "delete_task"), "{refused}");
        assert!(part(&made, 3).contains("work ran get_task"), "{made}");
    }
}

#[tokio::test]
async fn case_variants_of_members_do_not_bypass_forbidden_tools() {
    let stage = RunningProxy::start(UpstreamCount::One, "none", FORBID).await;
    let client = stage.client("/mcp", "2025-11-25").await;
    for (id, text) in [
        (
            1,
            r#""method":"tools/call","params":{"name":"get_task","Name":"delete_task"}"#,
        ),
        (
            2,
            r#""method":"tools/call","params":{"name":"delete_task","name":"get_task"}"#,
        ),
        (
            3,
            r#""method":"ping","Method":"tools/call","params":{"name":"delete_task"}"#,
        ),
        (
            4,
            r#""method":"tools/call","params":{"name":"get_task"},"PARAMS":{"name":"delete_task"}"#,
        ),
    ] {
        let message = format!(r#"{{"jsonrpc":"2.0","id":{id},{text}}}"#);
        let answer = client.request(&message).await.text;
        assert!(
            answer.contains("-32600") && answer.contains("only by case"),
            "{answer}"
        );
    }
    assert!(!refuses(&client, "5", "get_task").await);
    // Without forbidden tools, such messages are forwarded unchanged.
    let stage = RunningProxy::start(UpstreamCount::One, "none", "").await;
    let client = stage.client("/mcp", "2025-11-25").await;
    let text = r#""method":"tools/call","params":{"Name":"x","name":"get_task"}"#;
    let message = format!(r#"{{"jsonrpc":"2.0","id":6,{text}}}"#);
    let answer = client.request(&message).await.text;
    assert!(answer.contains("work ran get_task"), "{answer}");
}

#[tokio::test]
async fn refused_calls_are_recorded_as_refused() {
    let stage = RunningProxy::start(UpstreamCount::One, "none", FORBID).await;
    let client = stage.client("/mcp", "2025-11-25").await;
    assert!(refuses(&client, "1", "delete_task").await);
    assert!(!refuses(&client, "2", "get_task").await);
    let mut ends = Vec::new();
    for _ in 0..100 {
        let calls = rows(&stage.0.data_dir, &["calls", "--json"]).await;
        let end = |call: &Value| (call["tool"].clone(), call["outcome"].clone());
        ends = calls.iter().map(end).collect();
        if ends.len() == 2 && ends.iter().all(|(_, outcome)| !outcome.is_null()) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let expected = [("delete_task", "refused"), ("get_task", "ok")];
    assert_eq!(ends, expected.map(|(tool, end)| (json!(tool), json!(end))));
}

#[tokio::test]
async fn an_override_forbids_at_once_and_in_its_scope() {
    for strategy in ["none", "prediction"] {
        for servers in [UpstreamCount::One, UpstreamCount::Two] {
            let stage = RunningProxy::start(servers, strategy, "[profiles.ops]\n").await;
            let name = match servers {
                UpstreamCount::One => "delete_task",
                UpstreamCount::Two => "work__delete_task",
            };
            let here = stage.client("/mcp", "2025-11-25").await;
            let ops = stage.client("/mcp/ops", "2025-11-25").await;
            for client in [&here, &ops] {
                assert!(list(client, "1").await.contains(&name.to_owned()));
                assert!(!refuses(client, "2", name).await);
            }
            let scope = json!({ "kind": "profile", "id": "ops" });
            let answer = stage.forbids(name, &scope).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
            // The override is in effect as soon as its response arrives.
            assert!(refuses(&ops, "3", name).await, "{strategy}, {servers:?}");
            assert!(!list(&ops, "4").await.contains(&name.to_owned()));
            assert!(!refuses(&here, "3", name).await);
            assert!(list(&here, "4").await.contains(&name.to_owned()));

            let before = here.n_received();
            let answer = stage.forbids(name, &json!({ "kind": "global" })).await;
            assert_eq!(answer.status, 201, "{}", answer.body);
            assert!(refuses(&here, "5", name).await);
            // Clients get `list_changed` only if the server declares it, or if lists are selected.
            if strategy == "prediction" || servers == UpstreamCount::Two {
                here.method_after(before, LIST_CHANGED, 1).await;
            }
            assert!(!list(&here, "6").await.contains(&name.to_owned()));
            let place = answer.header("location").unwrap().to_owned();
            let answer = stage.operate(Method::DELETE, &place, "").await;
            assert_eq!(answer.status, 204, "{}", answer.body);
            assert!(!refuses(&here, "7", name).await);
            assert!(list(&here, "8").await.contains(&name.to_owned()));
            assert!(refuses(&ops, "7", name).await);
        }
    }
}

#[tokio::test]
async fn tools_can_be_forbidden_for_one_client_or_session() {
    let stage = RunningProxy::start(UpstreamCount::One, "none", "").await;
    let client = stage.client("/mcp", "2025-11-25").await;
    // An override can only name a tool that was listed before.
    list(&client, "0").await;
    assert!(!refuses(&client, "1", "delete_task").await);
    let other = stage.client("/mcp", "2025-11-25").await;
    assert!(!refuses(&other, "1", "delete_task").await);
    let mut sessions = Vec::new();
    for _ in 0..100 {
        sessions = rows(&stage.0.data_dir, &["sessions", "--json"]).await;
        if sessions.len() == 2 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let id = sessions[0]["id"].as_str().unwrap();
    let scope = json!({ "kind": "session", "id": id });
    assert_eq!(stage.forbids("delete_task", &scope).await.status, 201);
    let refused = [
        refuses(&client, "2", "delete_task").await,
        refuses(&other, "2", "delete_task").await,
    ];
    assert!(
        refused == [true, false] || refused == [false, true],
        "{refused:?}"
    );
    let hash = sessions[0]["client_id"].as_str().unwrap();
    let scope = json!({ "kind": "client", "id": hash });
    assert_eq!(stage.forbids("archive_project", &scope).await.status, 201);
    assert!(refuses(&client, "3", "archive_project").await);
    assert!(
        !list(&client, "4")
            .await
            .contains(&"archive_project".to_owned())
    );
}

#[tokio::test]
async fn a_changed_configuration_forbids_and_permits() {
    let stage = RunningProxy::start(
        UpstreamCount::One,
        "none",
        "enabled = true\n[profiles.ops]\n",
    )
    .await;
    let client = stage.client("/mcp", "2025-11-25").await;
    let ops = stage.client("/mcp/ops", "2025-11-25").await;
    assert!(list(&client, "1").await.contains(&"delete_task".to_owned()));
    let file = &stage.0.data_dir.join("test.toml");
    let before = std::fs::read_to_string(file).unwrap();
    let write = |filtering: &str| {
        let text = before.replace("enabled = true\n", filtering);
        std::fs::write(file, text).unwrap();
    };
    let until = async |client: &RawClient, tool: &str, expected: bool| {
        let started = std::time::Instant::now();
        let mut n = 100;
        while refuses(client, &n.to_string(), tool).await != expected {
            assert!(
                started.elapsed() < SOON,
                "{tool} is not refused: {expected}"
            );
            tokio::time::sleep(Duration::from_millis(50)).await;
            n += 1;
        }
    };
    write(FORBID);
    until(&client, "delete_task", true).await;
    assert!(!list(&client, "2").await.contains(&"delete_task".to_owned()));
    // The patterns of a profile add to the global ones.
    let more = "[profiles.ops.filtering]\nforbid = [\"get_*\"]\n";
    let text = before.replace("enabled = true\n", FORBID);
    std::fs::write(file, text.replace("[profiles.ops]\n", more)).unwrap();
    until(&ops, "get_task", true).await;
    assert!(refuses(&ops, "3", "delete_task").await);
    assert!(!refuses(&client, "3", "get_task").await);
    write("");
    until(&client, "delete_task", false).await;
    assert!(list(&client, "4").await.contains(&"delete_task".to_owned()));
}
