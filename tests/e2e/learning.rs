//! Attribution of calls to searches, and predictions of the next calls, both over a restart.

use std::path::Path;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request, request_with};
use serde_json::Value;

/// A query without a word in common with any tool.
const QUERY: &str = "water the tomatoes in the greenhouse";
/// Another query with the same meaning.
const SIMILAR_QUERY: &str = "please give the greenhouse tomatoes some water";

struct RunningProxy {
    proxy: Proxy,
    client: RawClient,
}

async fn start_proxy(data_dir: &Path) -> RunningProxy {
    start_proxy_with(data_dir, "prediction", &[]).await
}

async fn start_proxy_with(
    data_dir: &Path,
    strategy: &str,
    environment: &[(&str, &str)],
) -> RunningProxy {
    let mut proxy = proxy()
        .before(server("plain").tools(40).upstream())
        .variable("RIGLM__LOGGING__LEVEL", "debug")
        .strategy(strategy)
        .with_control();
    for (name, value) in environment {
        proxy = proxy.variable(name, value);
    }
    let proxy = proxy.start_in(data_dir).await;
    let client = proxy.client().connect().await;
    client.request(&request("\"list\"", "tools/list")).await;
    let is_ready = |line: &str| line.contains("embedding complete").then_some(());
    let log = &proxy.riglm.process;
    log.line(Duration::from_mins(1), "vectors of the tools", is_ready)
        .await;
    RunningProxy { proxy, client }
}

/// Returns the structured content of a search.
async fn ask(client: &RawClient, id: &str, query: &str) -> Value {
    let arguments = format!(r#"{{"query":"{query}"}}"#);
    let text = call(id, "search_available_tools", &arguments);
    let answer = client.request(&text).await;
    let mut answer: Value = serde_json::from_str(&answer.text).expect("an answer is JSON");
    answer["result"]["structuredContent"].take()
}

impl RunningProxy {
    /// Returns the names of the found tools, best first.
    async fn search(&self, id: &str, query: &str) -> Vec<String> {
        let answer = ask(&self.client, id, query).await;
        let matches = answer["matches"].as_array().expect("an answer has matches");
        let names = matches.iter().map(|found| found["name"].as_str());
        names.flatten().map(str::to_owned).collect()
    }

    async fn health(&self) -> Value {
        self.proxy.control_response("/health").await
    }

    /// Waits until this number of calls is learned, and all earlier ones.
    async fn wait_until_learned(&self, n_calls: u64) {
        for _ in 0..300 {
            let learning = self.health().await["prediction"].take();
            let n_learned = learning["learned_calls"].as_u64().expect("a number");
            if learning["status"] == "ok" && n_learned >= n_calls {
                assert_eq!(learning["failures"], 0, "{learning}");
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("calls were not learned from: {}", self.health().await);
    }
}

#[tokio::test]
async fn health_reports_the_search_encoder_as_ready() {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    let line = start_proxy(data_dir.path()).await;
    let health = line.health().await;
    assert_eq!(health["encoders"][0]["state"], "ready", "{health}");
    assert_eq!(health["status"], "ok", "{health}");
}

#[tokio::test]
async fn called_tools_are_found_by_similar_queries_after_restarts() {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut line = self::start_proxy(data_dir.path()).await;
    let (wanted, usual) = ("tool-037", "tool-005");
    // The most frequent tool is not the wanted one.
    for number in 0..5 {
        let id = format!("\"usual {number}\"");
        line.client.request(&call(&id, usual, "{}")).await;
    }
    let before = line.search("1", QUERY).await;
    let first = before.first().map(String::as_str);
    assert_ne!(first, Some(wanted), "{before:?}");
    line.client.request(&call("2", wanted, "{}")).await;
    assert_eq!(line.proxy.riglm.stop().await, Some(0));

    let line = self::start_proxy(data_dir.path()).await;
    // The data of a principal is loaded during its first search.
    line.search("1", "anything").await;
    let found = line.search("2", SIMILAR_QUERY).await;
    assert_eq!(
        found.first().map(String::as_str),
        Some(wanted),
        "{found:?} after {before:?}"
    );
}

/// A tool that is hidden from lists, together with others.
const HIDDEN: &str = "tool-037";
const HIDES_IT: (&str, &str) = ("RIGLM__FILTERING__DENY", r#"["tool-02*", "tool-03*"]"#);

/// Returns the `predicted_next` tools of a new client after a call and an unrelated search.
async fn predicted_after(line: &RunningProxy, tool: &str) -> Vec<Value> {
    let client = line.proxy.riglm.client(Answers::default());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.request(&request("\"list\"", "tools/list")).await;
    client.request(&call("1", tool, "{}")).await;
    let mut answer = ask(&client, "2", QUERY).await;
    let next = answer["predicted_next"].take();
    next.as_array().expect("an array").clone()
}

#[tokio::test]
async fn predicted_hidden_tools_come_with_search_results() {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    // No match reaches this fit, so results contain only the predicted tools.
    let finds_nothing = ("RIGLM__SEARCH__MIN_FIT", "1");
    let mut line = start_proxy_with(data_dir.path(), "denylist", &[HIDES_IT, finds_nothing]).await;
    line.wait_until_learned(0).await;
    for next in predicted_after(&line, "tool-005").await {
        assert!(!next["reason"].to_string().contains("tool-005"), "{next}");
    }
    for number in 0..20 {
        for tool in ["tool-005", HIDDEN] {
            let id = format!("\"{tool} {number}\"");
            line.client.request(&call(&id, tool, "{}")).await;
        }
    }
    line.wait_until_learned(41).await;
    let next = predicted_after(&line, "tool-005").await;
    assert_eq!(next[0]["name"], HIDDEN, "{next:?}");
    for next in &next {
        let name = next["name"].as_str().expect("a text");
        assert!(name.starts_with("tool-02") || name.starts_with("tool-03"));
    }
    assert!(next[0]["input_schema"].is_object(), "{next:?}");
    let reason = next[0]["reason"].as_str().expect("a text");
    assert!(reason.contains("tool-005"), "{reason}");
    assert_eq!(line.proxy.riglm.stop().await, Some(0));

    // Old calls are not learned again, but their predictions are available.
    let line = start_proxy_with(data_dir.path(), "denylist", &[HIDES_IT, finds_nothing]).await;
    line.wait_until_learned(0).await;
    let learned = line.health().await["prediction"]["learned_calls"].clone();
    assert!(learned.as_u64() <= Some(1), "{learned}");
    let again = predicted_after(&line, "tool-005").await;
    assert_eq!(again[0]["name"], HIDDEN);
}

/// Returns the handshake of a client with this session key.
fn initialize_for(work: &str) -> String {
    let work = Value::from(format!("{work:?}"));
    let meta = format!(r#""params":{{"_meta":{{"io.github.riglm/session":{work}}},"#);
    initialize("0", "2025-11-25").replace(r#""params":{"#, &meta)
}

/// Declares a task in a new session, by `set_context` or by a search, and returns the names of the
/// found and of the predicted tools.
async fn declare_task(
    line: &RunningProxy,
    tool: &str,
    query: &str,
    limit: &str,
) -> [Vec<String>; 2] {
    let client = line.proxy.riglm.client(Answers::default());
    client
        .initialize(&initialize_for(&format!("asking {query} {limit}")))
        .await;
    client.request(&request("\"list\"", "tools/list")).await;
    let arguments = format!(r#"{{"query":"{query}"{limit}}}"#);
    let answer = client.request(&call("1", tool, &arguments)).await;
    let answer: Value = serde_json::from_str(&answer.text).expect("an answer is JSON");
    ["matches", "predicted_next"].map(|key| {
        let all = answer["result"]["structuredContent"][key].as_array();
        let names = all.expect("an array").iter();
        let names = names.map(|tool| tool["name"].as_str().expect("a text"));
        names.map(str::to_owned).collect()
    })
}

/// The hidden tools that are called to water the greenhouse.
const WATERING: [&str; 2] = ["tool-037", "tool-024"];

#[tokio::test]
async fn previously_found_tools_come_first_for_similar_contexts() {
    for tool in ["set_context", "search_available_tools"] {
        let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
        let mut line = start_proxy_with(data_dir.path(), "denylist", &[HIDES_IT]).await;
        line.wait_until_learned(0).await;
        let [before, _] = declare_task(&line, tool, SIMILAR_QUERY, "").await;
        let first = before.first().map(String::as_str);
        assert!(
            first.is_none_or(|first| !WATERING.contains(&first)),
            "{before:?}"
        );
        let mut n_calls = 0;
        for round in 0..10 {
            // Every other session has another task.
            for (query, mut tools) in [
                (QUERY, WATERING),
                ("paint the fence", ["tool-003", "tool-004"]),
            ] {
                let client = line.proxy.riglm.client(Answers::default());
                let work = format!("{query} {round}");
                client.initialize(&initialize_for(&work)).await;
                client.request(&request("\"list\"", "tools/list")).await;
                let said = format!(r#"{{"query":"{query}"}}"#);
                client.request(&call("1", tool, &said)).await;
                // In alternating order.
                tools.rotate_left(round % 2);
                for called in tools {
                    let id = format!("\"{called} {round}\"");
                    client.request(&call(&id, called, "{}")).await;
                    n_calls += 1;
                }
            }
        }
        line.wait_until_learned(n_calls).await;
        assert_eq!(line.proxy.riglm.stop().await, Some(0));

        let line = start_proxy_with(data_dir.path(), "denylist", &[HIDES_IT]).await;
        line.wait_until_learned(0).await;
        // The data of a principal is loaded during its first search.
        line.search("1", "anything").await;
        let [mut found, _] = declare_task(&line, tool, SIMILAR_QUERY, "").await;
        found.truncate(2);
        found.sort_unstable();
        assert_eq!(found, ["tool-024", "tool-037"], "{tool}: {before:?}");
        // A tool that exceeds the limit of the result is predicted instead.
        let [found, next] = declare_task(
            &line,
            "search_available_tools",
            SIMILAR_QUERY,
            r#","limit":1"#,
        )
        .await;
        let other = WATERING.iter().find(|tool| **tool != found[0]);
        let other = other.expect("one of them was found");
        assert!(WATERING.contains(&&*found[0]), "{tool}: {found:?}");
        assert_eq!(
            next.first().map(String::as_str),
            Some(*other),
            "{tool}: {next:?}"
        );
    }
}

/// Returns the listed tools of a new session that declares its task with the list request, without
/// own tools.
async fn listed_for(line: &RunningProxy, work: &str, context: &str) -> Vec<String> {
    let client = line.proxy.riglm.client(Answers::default());
    client.initialize(&initialize_for(work)).await;
    let params = format!(r#"{{"_meta":{{"io.github.riglm/context":"{context}"}}}}"#);
    let list = request_with("\"list\"", "tools/list", &params);
    let answer = client.request(&list).await;
    let answer: Value = serde_json::from_str(&answer.text).expect("an answer is JSON");
    let tools = answer["result"]["tools"].as_array().expect("a list");
    let names = tools
        .iter()
        .map(|tool| tool["name"].as_str().expect("a name"));
    let mut names: Vec<String> = names
        .filter(|name| name.starts_with("tool-"))
        .map(str::to_owned)
        .collect();
    names.sort_unstable();
    names
}

#[tokio::test]
async fn tools_called_after_searches_are_listed_for_similar_contexts() {
    // A list has room for two tools.
    let few = [
        ("RIGLM__FILTERING__MIN_TOOLS", "2"),
        ("RIGLM__FILTERING__MAX_TOOLS", "2"),
        ("RIGLM__FILTERING__TOKEN_BUDGET", "400"),
        // A busy machine must not miss the timeout of the encoder.
        ("RIGLM__SEARCH__ENCODER__TIMEOUT", "30s"),
    ];
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut line = start_proxy_with(data_dir.path(), "prediction", &few).await;
    line.wait_until_learned(0).await;
    let first = listed_for(&line, "first", QUERY).await;
    assert_eq!(
        first.len(),
        2,
        "the bounds hold before anything is known: {first:?}"
    );
    let mut n_calls = 0;
    for round in 0..10 {
        for (query, mut tools) in [
            (QUERY, WATERING),
            ("paint the fence", ["tool-003", "tool-004"]),
        ] {
            let client = line.proxy.riglm.client(Answers::default());
            client
                .initialize(&initialize_for(&format!("{query} {round}")))
                .await;
            client.request(&request("\"list\"", "tools/list")).await;
            ask(&client, "1", query).await;
            tools.rotate_left(round % 2);
            for called in tools {
                let id = format!("\"{called} {round}\"");
                client.request(&call(&id, called, "{}")).await;
                n_calls += 1;
            }
        }
    }
    line.wait_until_learned(n_calls).await;
    assert_eq!(line.proxy.riglm.stop().await, Some(0));

    let line = start_proxy_with(data_dir.path(), "prediction", &few).await;
    line.wait_until_learned(0).await;
    line.search("1", "anything").await;
    let watering = listed_for(&line, "later", SIMILAR_QUERY).await;
    assert_eq!(watering, ["tool-024", "tool-037"]);
    let painting = listed_for(&line, "other", "give the fence a coat of paint").await;
    assert_eq!(painting, ["tool-003", "tool-004"]);
    // The list of a work session does not change after a search ...
    let client = line.proxy.riglm.client(Answers::default());
    client.initialize(&initialize_for("later")).await;
    ask(&client, "2", "paint the fence").await;
    assert_eq!(listed_for(&line, "later", SIMILAR_QUERY).await, watering);
    // ... until its client declares another task.
    let again = listed_for(&line, "later", "paint the fence").await;
    assert_eq!(again, painting);
}

#[tokio::test]
async fn learning_requires_recording_and_can_be_disabled() {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    for off in [
        ("RIGLM__RECORDING__MODE", "off"),
        ("RIGLM__PREDICTION__ENABLED", "false"),
    ] {
        let line = start_proxy_with(data_dir.path(), "denylist", &[HIDES_IT, off]).await;
        assert_eq!(line.health().await["prediction"]["status"], "off");
        assert_eq!(predicted_after(&line, "tool-005").await, [] as [Value; 0]);
    }
}
