//! The life cycle of an experiment, from its configuration to its end.

use std::path::Path;
use std::time::Duration;

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::riglm::read_store;
use serde_json::{Value, json};
use tempfile::TempDir;

/// With these shares the only principal is in the arm `whole`.
const EXPERIMENT: &str = r#"
[recommend.experiments.lists]
metric = "call_success"
window = "1h"

[recommend.experiments.lists.arms.control]
share = 0.0001

[recommend.experiments.lists.arms.whole]
share = 0.9999
policy = "all"
"#;

async fn status(data: &Path, configuration: &Path) -> Value {
    let configuration = configuration.to_str().unwrap();
    let arguments = [
        "experiment",
        "status",
        "lists",
        "--json",
        "--config",
        configuration,
    ];
    let text = read_store(data, &arguments).await;
    let reports: Value = serde_json::from_str(&text).unwrap();
    reports[0].clone()
}

async fn operate(proxy: &Proxy, method: Method, path: &str) -> (u16, Value) {
    let body = if method == Method::GET { "" } else { "{}" };
    let answer = proxy.operate(method, path, body).await;
    (answer.status, serde_json::from_str(&answer.body).unwrap())
}

#[tokio::test]
async fn an_experiment_runs_is_measured_and_stopped() {
    let mut proxy = proxy()
        .server(&server("plain").tools(3))
        .configuration(EXPERIMENT)
        .strategy("prediction")
        .with_control()
        .start()
        .await;
    let client = proxy.client().connect().await;
    let listed = client.request(&request("1", "tools/list")).await;
    assert!(listed.text.contains("tool-000"), "{}", listed.text);
    client.request(&call("2", "tool-000", "{}")).await;

    // Assignments and calls are stored with a short delay.
    let mut report = Value::Null;
    for _ in 0..100 {
        let shown = operate(&proxy, Method::GET, "/experiments/lists").await;
        assert_eq!(shown.0, 200, "{}", shown.1);
        report = shown.1;
        if report["arms"][1]["trials"] == 1 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let whole = &report["arms"][1];
    assert_eq!(
        (&whole["name"], &whole["assigned"]),
        (&json!("whole"), &json!(1)),
        "{report}"
    );
    assert_eq!(
        (&whole["trials"], &whole["open_units"]),
        (&json!(1), &json!(1)),
        "{report}"
    );
    assert_eq!(report["arms"][0]["assigned"], 0, "{report}");

    let path = "/experiments/lists/stop";
    let (stopped, end) = operate(&proxy, Method::POST, path).await;
    assert_eq!(
        (stopped, &end["stopped_by"]),
        (200, &json!("control")),
        "{end}"
    );
    let (_, trail) = operate(&proxy, Method::GET, "/audit?limit=1").await;
    assert_eq!(trail["entries"][0]["action"], "experiment.stop", "{trail}");
    proxy.riglm.stop().await;

    let configuration = proxy.data_dir.join("experiment.toml");
    let toml = std::fs::read_to_string(proxy.data_dir.join("test.toml")).unwrap();
    let prediction = format!("{toml}\n[filtering]\nstrategy = \"prediction\"\n");
    std::fs::write(&configuration, prediction).unwrap();
    let report = status(&proxy.data_dir, &configuration).await;
    assert_eq!(report["state"], "stopped", "{report}");
    assert_eq!(report["stop"]["stopped_at"], end["stopped_at"]);
    assert_eq!(report["arms"][1]["arm"], "whole");
    assert_eq!(report["arms"][1]["assigned"], 1);
}

/// Two arms: one predicts the tools that follow the last call, the other the most frequent tools.
const PREDICTORS: &str = r#"
[filtering]
strategy = "prediction"
min_tools = 1
max_tools = 1
token_budget = 400

[prediction]
predictor = "mix"
bands = { search_prominent_below = 0.0 }

[recommend.experiments.predictors]
metric = "coverage"
window = "1h"
control = "what_follows"

[recommend.experiments.predictors.arms.what_follows]
share = 0.5
predictors = ["markov"]

[recommend.experiments.predictors.arms.what_is_frequent]
share = 0.5
predictors = ["frequency"]
"#;

/// The number of principals. The probability that all are in one arm is 1 in 2^19.
const N_PRINCIPALS: usize = 20;

/// The repeated calls of a principal.
const ROUND: [&str; 10] = [
    "tool-001", "tool-001", "tool-005", "tool-006", "tool-001", "tool-001", "tool-005", "tool-006",
    "tool-010", "tool-011",
];

fn key_of(principal: usize) -> String {
    format!("k3y-0123456789-{principal:04}")
}

/// A proxy with principals in two arms.
struct ExperimentProxy {
    proxy: Proxy,
    n_sessions: std::sync::atomic::AtomicUsize,
}

impl ExperimentProxy {
    async fn start(data: &Path) -> Self {
        let keys = (0..N_PRINCIPALS).map(|n| format!("p{n} = \"{}\"\n", key_of(n)));
        let keys: String = keys.collect();
        let proxy = proxy()
            .server(&server("plain").tools(40))
            .configuration(&format!("[auth.keys]\n{keys}{PREDICTORS}"))
            .strategy("prediction")
            .with_control()
            .start_in(data)
            .await;
        Self {
            proxy,
            n_sessions: std::sync::atomic::AtomicUsize::default(),
        }
    }

    /// Returns a client of a principal with a new work session.
    async fn client(&self, principal: usize) -> RawClient {
        let n = (self.n_sessions).fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let client = self.proxy.riglm.client(Answers::default());
        client.set_header("authorization", &format!("Bearer {}", key_of(principal)));
        let process = self.proxy.riglm.process.pid();
        let meta =
            format!(r#""params":{{"_meta":{{"io.github.riglm/session":"work {process} {n}"}},"#);
        let hello = initialize("0", "2025-11-25").replace(r#""params":{"#, &meta);
        client.initialize(&hello).await;
        client
    }

    /// Makes the calls of a principal in a new session.
    async fn run_session(&self, principal: usize, tools: impl IntoIterator<Item = &str>) {
        let client = self.client(principal).await;
        for (n, tool) in tools.into_iter().enumerate() {
            client.request(&call(&n.to_string(), tool, "{}")).await;
        }
        client.delete().await;
    }

    async fn control_response(&self, path: &str) -> Value {
        let (status, body) = operate(&self.proxy, Method::GET, path).await;
        assert_eq!(status, 200, "{path}: {body}");
        body
    }

    /// Returns the predicted next tools of a principal after a call, the most likely first, and the
    /// client of that session.
    async fn predicted_after(&self, principal: usize, tool: &str) -> (Vec<String>, RawClient) {
        let client = self.client(principal).await;
        client.request(&call("1", tool, "{}")).await;
        client.request(&request("2", "tools/list")).await;
        let session = client.session_id().unwrap();
        let predicted = self
            .control_response(&format!("/predictions/{session}?limit=3"))
            .await;
        let tools = predicted["tools"].as_array().unwrap().iter();
        let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
        (names.collect(), client)
    }

    /// Waits until the predicted next tool of a principal after one tool is another one.
    async fn until_predicted(&self, principal: usize, (after, next): (&str, &str)) {
        let mut predicted = Vec::new();
        for _ in 0..100 {
            let (names, client) = self.predicted_after(principal, after).await;
            client.delete().await;
            if names[0] == next {
                return;
            }
            predicted = names;
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        panic!("{next} was expected after {after}, and not {predicted:?}");
    }

    async fn until_learned(&self, n_calls: u64) {
        let mut learning = Value::Null;
        for _ in 0..300 {
            learning = self.control_response("/health").await["prediction"].take();
            if learning["status"] == "ok" && learning["learned_calls"].as_u64() >= Some(n_calls) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
        panic!("{learning}");
    }
}

async fn listed_names(client: &RawClient) -> Vec<String> {
    let answer = client.request(&request("\"list\"", "tools/list")).await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("tool-")).collect()
}

/// Returns the `predicted_next` tools of an unrelated search.
async fn predicted_next(client: &RawClient) -> Vec<String> {
    let arguments = r#"{"query":"water the tomatoes in the greenhouse","limit":1}"#;
    let answer = client
        .request(&call("\"search\"", "search_available_tools", arguments))
        .await;
    let answer: Value = serde_json::from_str(&answer.text).unwrap();
    let next = answer["result"]["structuredContent"]["predicted_next"].as_array();
    let names = next.unwrap().iter();
    names
        .map(|tool| tool["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test]
async fn arms_have_different_predictions_and_both_learn() {
    let data = TempDir::new().unwrap();
    let proxy = ExperimentProxy::start(data.path()).await;
    for principal in 0..N_PRINCIPALS {
        proxy.run_session(principal, ROUND.repeat(3)).await;
    }
    proxy.until_learned(30 * N_PRINCIPALS as u64).await;

    // All made the same calls, but their predictions differ by arm.
    let (mut follows, mut frequent) = (Vec::new(), Vec::new());
    for principal in 0..N_PRINCIPALS {
        let (predicted, _) = proxy.predicted_after(principal, "tool-005").await;
        match &*predicted[0] {
            "tool-006" => follows.push(principal),
            "tool-001" => frequent.push(principal),
            _ => panic!("{predicted:?}"),
        }
    }
    let ([one, ..], [other, ..]) = (&*follows, &*frequent) else {
        panic!("all are in one arm: {follows:?} {frequent:?}");
    };
    let (one, other) = (*one, *other);

    // Lists and searches use the predictor of the arm.
    let (_, client) = proxy.predicted_after(one, "tool-005").await;
    let list = listed_names(&client).await;
    assert!(list.contains(&"tool-006".to_owned()), "{list:?}");
    client.request(&call("3", "tool-010", "{}")).await;
    let next = predicted_next(&client).await;
    assert_eq!(next.first().map(String::as_str), Some("tool-011"));
    let (_, client) = proxy.predicted_after(other, "tool-005").await;
    let list = listed_names(&client).await;
    assert!(list.contains(&"tool-001".to_owned()), "{list:?}");
    assert!(!list.contains(&"tool-006".to_owned()), "{list:?}");
    client.request(&call("3", "tool-010", "{}")).await;
    let next = predicted_next(&client).await;
    assert_eq!(next.first().map(String::as_str), Some("tool-006"));

    // A principal takes part from its first list on. After that it called two tools for the first
    // time, the second of them outside its list.
    let expected = json!([[follows.len(), 2, 1], [frequent.len(), 2, 1]]);
    let mut found = Value::Null;
    for _ in 0..100 {
        let report = proxy.control_response("/experiments/predictors").await;
        assert_eq!(report["arms"][0]["name"], "what_follows", "{report}");
        let of_arm = |n: usize| {
            let arm = &report["arms"][n];
            json!([arm["assigned"], arm["trials"], arm["succeeded"]])
        };
        found = json!([of_arm(0), of_arm(1)]);
        if found == expected {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_eq!(found, expected);

    // Both predictors learn from further calls.
    for principal in [one, other] {
        let pairs = ["tool-005", "tool-007", "tool-002", "tool-002"].repeat(20);
        proxy.run_session(principal, pairs).await;
    }
    proxy.until_predicted(one, ("tool-005", "tool-007")).await;
    proxy.until_predicted(other, ("tool-005", "tool-002")).await;
    let mut proxy = proxy;
    assert_eq!(proxy.proxy.riglm.stop().await, Some(0));

    // Both keep their state over a restart.
    let proxy = ExperimentProxy::start(data.path()).await;
    proxy.until_predicted(one, ("tool-005", "tool-007")).await;
    proxy.until_predicted(other, ("tool-005", "tool-002")).await;
    let learned = proxy.control_response("/health").await["prediction"]["learned_calls"].take();
    assert!(learned.as_u64() < Some(100), "{learned}");
}
