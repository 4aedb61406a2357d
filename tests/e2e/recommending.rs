//! Recommendations for a task in words: by the tool of the proxy, the control port and the command
//! line.

use std::path::{Path, PathBuf};
use std::time::Duration;

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::binary;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http::HttpResponse;
use riglm_tests::process;
use serde_json::{Value, json};

const FIND: &str = "I want to find where a Python function is defined";
const LOGIN: &str = "I need to test login functionality in a web app";

struct RunningProxy {
    proxy: Proxy,
    client: RawClient,
}

fn listing(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("e2e/recommending/{name}.json"))
}

/// Starts the proxy in front of a code server and a browser server, with a client that has listed
/// their tools.
async fn start_proxy(more: &str) -> RunningProxy {
    start_proxy_with("prediction", more, "true").await
}

/// The same with another strategy, and a shell command that the browser server runs before its
/// start.
async fn start_proxy_with(strategy: &str, more: &str, before: &str) -> RunningProxy {
    let code = server("serena").listing(&listing("code"));
    let browser = server("playwright").listing(&listing("browser"));
    let proxy = proxy()
        .server(&code)
        .server(&browser.after(before))
        .configuration(more)
        .strategy(strategy)
        .with_control()
        .start()
        .await;
    let client = proxy.client().connect().await;
    client.request(&request("1", "tools/list")).await;
    RunningProxy { proxy, client }
}

impl RunningProxy {
    async fn operate(&self, method: Method, path: &str, body: &Value) -> HttpResponse {
        let body = if body.is_null() {
            String::new()
        } else {
            body.to_string()
        };
        self.proxy.operate(method, path, &body).await
    }

    async fn recommendation(&self, body: &Value) -> Value {
        let answer = self.operate(Method::POST, "/recommendations", body).await;
        assert_eq!(answer.status, 200, "{}", answer.body);
        serde_json::from_str(&answer.body).unwrap()
    }

    /// Returns a recommendation made with the vectors of all tools. Only such a ranking is cached.
    async fn complete_recommendation(&self, body: &Value) -> Value {
        let mut reply = Value::Null;
        for _ in 0..200 {
            reply = self.recommendation(body).await;
            if reply["cached"] == true {
                return reply;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        panic!("no ranking is whole: {reply}");
    }

    /// Calls a tool and returns its result.
    async fn call(&self, id: &str, tool: &str, arguments: &Value) -> Value {
        let answer = self
            .client
            .request(&call(id, tool, &arguments.to_string()))
            .await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        answer["result"].clone()
    }

    /// Waits until this number of calls is in the store.
    async fn calls_stored(&self, n: usize) {
        for _ in 0..100 {
            let mut command = process::command(binary::riglm(), &["calls", "--count"]);
            command.arg("--data-dir").arg(&self.proxy.data_dir);
            let output = command.output().await.unwrap();
            if String::from_utf8_lossy(&output.stdout).trim() == n.to_string() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{n} calls were not stored");
    }

    /// Waits until the listed tools are in the store.
    async fn tools_stored(&self) {
        for _ in 0..100 {
            let answer = self.operate(Method::GET, "/tools", &Value::Null).await;
            let tools: Value = serde_json::from_str(&answer.body).unwrap();
            let is_there = |name: &str| answer.body.contains(name);
            if tools["tools"].is_array() && is_there("find_symbol") && is_there("browser_tabs") {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("no tools were stored");
    }
}

fn names(recommended: &Value) -> Vec<&str> {
    let tools = recommended["tools"].as_array().unwrap();
    tools
        .iter()
        .map(|tool| tool["name"].as_str().unwrap())
        .collect()
}

#[tokio::test]
async fn symbol_finder_is_recommended_for_finding_a_function() {
    let line = start_proxy("").await;
    let found = line
        .complete_recommendation(&json!({ "query": FIND }))
        .await;
    assert_eq!(names(&found)[0], "serena__find_symbol", "{found}");
    let intent = &found["intent"];
    assert_eq!(intent["actions"], json!(["find"]));
    assert!(
        intent["domains"]
            .as_array()
            .unwrap()
            .contains(&json!("code"))
    );
    assert_eq!(intent["access"], "read");
    let first = &found["tools"][0];
    let explanation = first["explanation"].as_str().unwrap();
    assert!(explanation.starts_with("Best match (find"), "{explanation}");
    let factors = first["factors"].as_object().unwrap();
    let weights = found["weights"].as_object().unwrap();
    let sum: f64 = (weights.iter())
        .map(|(factor, weight)| weight.as_f64().unwrap() * factors[factor].as_f64().unwrap())
        .sum();
    assert!((sum - first["score"].as_f64().unwrap()).abs() < 1e-9);
    assert_eq!(factors["success_rate"], 0.5, "nothing is known of it");
}

#[tokio::test]
async fn the_tools_of_a_browser_are_recommended_for_testing_a_login() {
    let line = start_proxy("").await;
    let found = line
        .complete_recommendation(&json!({ "query": LOGIN }))
        .await;
    let mut first: Vec<&str> = names(&found)[..5].to_vec();
    first.sort_unstable();
    let expected = [
        "playwright__browser_click",
        "playwright__browser_fill_form",
        "playwright__browser_navigate",
        "playwright__browser_snapshot",
        "playwright__browser_wait_for",
    ];
    assert_eq!(first, expected, "{found}");
    for tool in &found["tools"].as_array().unwrap()[..5] {
        assert!(!tool["explanation"].as_str().unwrap().is_empty());
    }
}

/// The call is one example for tuning, which is too few, and there is no version for a rollback.
async fn assert_too_few_examples(data: &Path) {
    let tune = |more: &'static [&'static str]| {
        let mut command = process::command(binary::riglm(), &["tune"]);
        command.arg("--data-dir").arg(data).args(more);
        async move { command.output().await.unwrap() }
    };
    let tuned = tune(&["--json"]).await;
    assert_eq!(tuned.status.code(), Some(0), "{tuned:?}");
    let tuned: Value = serde_json::from_slice(&tuned.stdout).unwrap();
    let expected = (&json!("too_few"), &json!(1));
    assert_eq!((&tuned["outcome"], &tuned["examples"]), expected);
    let back = tune(&["--rollback", "7"]).await;
    assert_eq!(back.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&back.stderr).contains("no version 7"));
}

#[tokio::test]
async fn calls_of_recommended_tools_count_as_feedback_and_in_metrics() {
    let more = "[recommend]\ntools = true\n";
    let mut line = start_proxy(more).await;
    let listed = line.client.request(&request("2", "tools/list")).await.text;
    assert!(listed.contains("\"recommend_tools\"") && listed.contains("\"rate_tool\""));
    let ask = json!({ "query": LOGIN, "limit": 5 });
    line.client.set_header("x-riglm-session", "round 0");
    let asked = line.call("3", "recommend_tools", &ask).await;
    let answer = &asked["structuredContent"];
    assert_eq!(answer["tools"].as_array().unwrap().len(), 5, "{asked}");
    let text = asked["content"][0]["text"].as_str().unwrap();
    assert!(text.starts_with("1. playwright__browser_"), "{text}");
    // Three work sessions with the same calls. One call fails.
    let steps = ["browser_navigate", "browser_fill_form", "browser_click"];
    for round in 0..3 {
        let session = format!("round {round}");
        line.client.set_header("x-riglm-session", &session);
        for (step, tool) in (0..).zip(steps) {
            let id = (10 + 10 * round + step).to_string();
            let arguments = json!({ "fail": round == 0 && step == 2 });
            let name = format!("playwright__{tool}");
            let result = line.call(&id, &name, &arguments).await;
            assert_eq!(result["isError"], round == 0 && step == 2);
        }
    }
    line.client.set_header("x-riglm-session", "round 0");
    let rating = json!({
        "tool": "playwright__browser_fill_form", "rating": 5, "comment": "just right",
    });
    let rated = line.call("50", "rate_tool", &rating).await;
    assert_ne!(rated["isError"], true, "{rated}");
    let both = json!({ "tool": "playwright__browser_click", "rating": 5, "thumbs": "down" });
    assert_eq!(line.call("52", "rate_tool", &both).await["isError"], true);
    let unknown = line
        .call(
            "51",
            "rate_tool",
            &json!({"tool": "nobody_has_it", "rating": 5}),
        )
        .await;
    assert_eq!(unknown["isError"], true);
    line.calls_stored(9).await;
    let metrics = line
        .operate(Method::GET, "/metrics", &Value::Null)
        .await
        .body;
    for expected in [
        "riglm_recommendations_total{cached=\"false\"",
        "riglm_recommended_calls_total{outcome=\"ok\"",
        "riglm_tool_ratings_total 1",
        "riglm_feedback_refused_total 1",
    ] {
        assert!(metrics.contains(expected), "{expected}: {metrics}");
    }
    let mut command = process::command(binary::riglm(), &["eval", "recommend", "--json"]);
    command.arg("--data-dir").arg(&line.proxy.data_dir);
    let measured = command.output().await.unwrap();
    let measured: Value = serde_json::from_slice(&measured.stdout).unwrap();
    assert_eq!(
        (&measured["recommendations"], &measured["ctr"]),
        (&json!(1), &json!(1.0))
    );
    assert_eq!(measured["hit@5"], 1.0);
    assert_eq!(measured["mean_rating"], 5.0);
    assert_too_few_examples(&line.proxy.data_dir).await;
    // A new process has the same data.
    line.proxy.riglm.stop().await;
    let mut command = process::command(binary::riglm(), &["recommend", LOGIN, "--json"]);
    command.arg("--data-dir").arg(&line.proxy.data_dir);
    let recommended = command.output().await.unwrap();
    assert!(recommended.status.success(), "{recommended:?}");
    let recommended: Value = serde_json::from_slice(&recommended.stdout).unwrap();
    let tools = recommended["tools"].as_array().unwrap();
    let form = tools
        .iter()
        .find(|tool| tool["name"] == "playwright__browser_fill_form");
    let form = form.unwrap();
    assert!(
        form["factors"]["user_rating"].as_f64().unwrap() > 0.6,
        "{form}"
    );
    assert_eq!(form["after"][0]["name"], "playwright__browser_click");
    assert_eq!(form["after"][0]["support"], 3);
    let steps = form["workflow"]["steps"].as_array().unwrap();
    assert_eq!(steps.len(), 3, "{form}");
    assert_eq!(form["workflow"]["support"], 3);
    let explanation = form["explanation"].as_str().unwrap();
    assert!(
        explanation.contains("3 of 3 calls succeeded"),
        "{explanation}"
    );
    assert!(explanation.contains("Rated 5.0 of 5 by 1"), "{explanation}");
    let click = tools
        .iter()
        .find(|tool| tool["name"] == "playwright__browser_click");
    let explanation = click.unwrap()["explanation"].as_str().unwrap();
    assert!(
        explanation.contains("2 of 3 calls succeeded"),
        "{explanation}"
    );
}

/// The command line does not recommend tools that an operator has hidden.
async fn hidden_on_the_command_line(data: &Path) {
    let mut command = process::command(binary::riglm(), &["recommend", FIND, "--json"]);
    command.arg("--data-dir").arg(data);
    let output = command.output().await.unwrap();
    let recommended: Value = serde_json::from_slice(&output.stdout).unwrap();
    let left_out = recommended["left_out"].as_array().unwrap();
    assert!(
        left_out.iter().any(|one| one["reason"] == "excluded"),
        "{recommended}"
    );
    assert!(
        !names(&recommended)
            .iter()
            .any(|name| name.ends_with("find_symbol"))
    );
}

#[tokio::test]
async fn invalid_queries_are_refused_and_unusual_ones_answered() {
    let line = start_proxy("[recommend.tags]\n\"find_symbol\" = [\"python\"]\n").await;
    for (body, status) in [
        (json!({}), 422),
        (json!({ "query": "" }), 422),
        (json!({ "query": " \n" }), 422),
        (json!({ "query": "x".repeat(2_001) }), 422),
        (json!({ "query": "x", "limit": 0 }), 422),
        (json!({ "query": "x", "limit": 51 }), 422),
        (json!({ "query": "x", "limits": 1 }), 422),
        (json!({ "query": ["x"] }), 422),
        (json!({ "query": "x", "session": "nobody" }), 404),
        (json!({ "query": "x", "context": { "tags": 1 } }), 422),
    ] {
        let answer = line.operate(Method::POST, "/recommendations", &body).await;
        assert_eq!(answer.status, status, "{body}: {}", answer.body);
    }
    for query in [
        "Wo ist eine Funktion definiert?",
        "查找函数的定义",
        "🦀🦀🦀",
        "'; DROP TABLE tools; --",
    ] {
        line.recommendation(&json!({ "query": query })).await;
    }
    line.tools_stored().await;
    let unknown = json!({ "query": FIND, "principal": "nobody knows them" });
    assert_eq!(names(&line.recommendation(&unknown).await).len(), 10);
    // A session in another language does not get the tool for Python.
    let other = json!({ "query": FIND, "context": { "languages": ["Rust"] } });
    let other = line.complete_recommendation(&other).await;
    assert!(!names(&other).contains(&"serena__find_symbol"), "{other}");
    assert_eq!(other["left_out"][0]["name"], "serena__find_symbol");
    assert_eq!(other["left_out"][0]["reason"], "other_projects");
    // An unwanted tool is ranked last.
    let unwanted = json!({ "query": "open a page but do not click", "limit": 20 });
    let unwanted = line.complete_recommendation(&unwanted).await;
    assert_eq!(
        names(&unwanted)[0],
        "playwright__browser_navigate",
        "{unwanted}"
    );
    let at = names(&unwanted)
        .iter()
        .position(|name| *name == "playwright__browser_click");
    assert!(
        at.is_none_or(|at| at == names(&unwanted).len() - 1),
        "{unwanted}"
    );
    let same = json!({ "query": FIND, "context": { "languages": ["Python"] } });
    assert_eq!(
        names(&line.complete_recommendation(&same).await)[0],
        "serena__find_symbol"
    );
    // A hidden tool is not recommended, not even from the ranking cache.
    let hide =
        json!({ "tool": "serena__find_symbol", "action": "exclude", "scope": {"kind": "global"} });
    assert_eq!(
        line.operate(Method::POST, "/override", &hide).await.status,
        201
    );
    for _ in 0..100 {
        let again = line.recommendation(&json!({ "query": FIND })).await;
        if again["left_out"][0]["reason"] == "excluded" {
            hidden_on_the_command_line(&line.proxy.data_dir).await;
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("what was excluded is recommended");
}

#[tokio::test]
async fn unusable_tools_do_not_displace_usable_ones() {
    let line = start_proxy("[filtering]\nbans = [\"browser_*\"]\n").await;
    let ask = json!({ "query": "open a web page and click", "limit": 5 });
    let found = line.complete_recommendation(&ask).await;
    assert_eq!(names(&found).len(), 5, "{found}");
    let is_banned = |name: &&str| name.contains("browser_");
    assert!(!names(&found).iter().any(is_banned), "{found}");
    let left_out = found["left_out"].as_array().unwrap();
    assert_eq!(left_out.len(), 5, "{found}");
    assert!(
        left_out.iter().all(|one| one["reason"] == "excluded"),
        "{found}"
    );
}

#[tokio::test]
async fn excluded_tools_are_not_recommended_to_the_client() {
    let line = start_proxy("[recommend]\ntools = true\n").await;
    let session = line.client.session_id().unwrap();
    let mut client_id = Value::Null;
    for _ in 0..100 {
        let answer = line.operate(Method::GET, "/sessions", &Value::Null).await;
        let sessions: Value = serde_json::from_str(&answer.body).unwrap();
        client_id = sessions["sessions"][0]["client_id"].clone();
        if client_id.is_string() {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let hide = json!({
        "tool": "serena__find_symbol",
        "action": "exclude",
        "scope": {"kind": "client", "id": client_id},
    });
    let answer = line.operate(Method::POST, "/override", &hide).await;
    assert_eq!(answer.status, 201, "{}", answer.body);
    let is_left_out = |reply: &Value| {
        let left_out = reply["left_out"].as_array().unwrap();
        left_out.iter().any(|one| one["reason"] == "excluded")
    };
    let mut replies = Vec::new();
    for id in 10..110 {
        let of_session = json!({ "query": FIND, "session": session });
        let asked = line
            .call(
                &id.to_string(),
                "recommend_tools",
                &json!({ "query": FIND }),
            )
            .await;
        replies = vec![
            line.recommendation(&of_session).await,
            asked["structuredContent"].clone(),
        ];
        if replies.iter().all(is_left_out) {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("what was excluded for the client is recommended to it: {replies:?}");
}

/// Returns the session id of a client for the control port.
fn session_of(client: &RawClient) -> String {
    client.session_id().expect("the session has an identifier")
}

#[tokio::test]
async fn a_session_with_a_remembered_list_gets_suggestions_and_predictions() {
    let line = start_proxy_with("prediction", "", "sleep 2").await;
    let has_all = |list: &str| list.contains("find_symbol") && list.contains("browser_click");
    for n in 0..200 {
        let list = request(&format!("\"all {n}\""), "tools/list");
        if has_all(&line.client.request(&list).await.text) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let second = RawClient::streamable(&line.proxy.riglm.url, Answers::default());
    second.initialize(&initialize("0", "2025-11-25")).await;
    let list = second.request(&request("1", "tools/list")).await.text;
    assert!(has_all(&list), "{list}");
    // Each session has its own process, which has started now.
    let up = call("2", "playwright__browser_navigate", "{}");
    let up = second.request(&up).await.text;
    assert!(up.contains("\"result\""), "{up}");
    let wrong = second.request(&call("3", "navigate_browser", "{}")).await;
    assert!(
        wrong.text.contains("playwright__browser_navigate"),
        "{}",
        wrong.text
    );
    // A session without a list uses the last list of its principal.
    let third = RawClient::streamable(&line.proxy.riglm.url, Answers::default());
    third.initialize(&initialize("0", "2025-11-25")).await;
    for id in [session_of(&second), session_of(&third)] {
        let path = format!("/predictions/{id}");
        let predicted = line.operate(Method::GET, &path, &Value::Null).await;
        assert_eq!(predicted.status, 200, "{}", predicted.body);
        let predicted: Value = serde_json::from_str(&predicted.body).unwrap();
        let tools = predicted["tools"].as_array().unwrap();
        let sentences: Vec<&str> = (tools.iter())
            .filter_map(|tool| tool["sentence"].as_str())
            .collect();
        assert!(
            sentences
                .iter()
                .all(|sentence| sentence.contains("% likely"))
        );
        for tool in tools {
            let decimals = tool["probability"].to_string();
            let decimals = decimals.split_once('.').map_or("", |(_, after)| after);
            assert!(decimals.len() <= 6 || decimals.contains('e'), "{tool}");
        }
        let asked = json!({ "query": LOGIN, "session": id });
        assert!(!names(&line.recommendation(&asked).await).is_empty());
    }
}

#[tokio::test]
async fn sessions_without_list_selection_get_recommendations() {
    let line = start_proxy_with("none", "", "true").await;
    let id = session_of(&line.client);
    let asked = json!({ "query": LOGIN, "session": id });
    assert!(!names(&line.recommendation(&asked).await).is_empty());
    let path = format!("/predictions/{id}");
    let predicted = line.operate(Method::GET, &path, &Value::Null).await;
    assert_eq!(predicted.status, 409);
    assert!(
        predicted.body.contains("filtering.strategy"),
        "{}",
        predicted.body
    );
}
