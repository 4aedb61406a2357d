//! Predictors of other programs: the examples, and programs that fail.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use riglm_tests::client::RawClient;
use riglm_tests::kit::{Proxy, ProxyBuilder, proxy, server};
use riglm_tests::messages::{call, request};
use riglm_tests::{binary, process};
use serde_json::Value;

const N_TOOLS: usize = 12;
const N_CALLS: usize = 6;

/// Calls of agents that follow one tool with another in four of five cases.
#[derive(Debug)]
struct Agent(u64);

impl Agent {
    fn random(&mut self, n: u64) -> usize {
        // A linear congruential generator (Knuth).
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((self.0 >> 33) % n).unwrap()
    }

    fn session(&mut self) -> Vec<usize> {
        let mut calls = vec![self.random(N_TOOLS as u64)];
        while calls.len() < N_CALLS {
            let usual = (calls[calls.len() - 1] * 5 + 1) % N_TOOLS;
            let next = if self.random(5) < 4 {
                usual
            } else {
                self.random(N_TOOLS as u64)
            };
            calls.push(next);
        }
        calls
    }
}

fn name(tool: usize) -> String {
    format!("tool-{tool:03}")
}

async fn connect(proxy: &Proxy) -> RawClient {
    let client = proxy.client().connect().await;
    client.request(&request("\"list\"", "tools/list")).await;
    client
}

async fn play(client: &RawClient, number: usize, tool: usize) {
    let answer = client
        .request(&call(&number.to_string(), &name(tool), "{}"))
        .await;
    assert!(answer.text.contains("\"result\""), "{}", answer.text);
}

/// Returns the number of calls, of 50 in 10 held sessions, whose tool was predicted as the most
/// likely one, after 25 sessions were learned.
async fn n_predicted(proxy: ProxyBuilder) -> usize {
    let proxy = proxy
        .before(server("plain").tools(N_TOOLS).upstream())
        .strategy("prediction")
        .with_control()
        .start()
        .await;
    let mut agent = Agent(7);
    for _ in 0..25 {
        let client = connect(&proxy).await;
        for (number, tool) in agent.session().into_iter().enumerate() {
            play(&client, number, tool).await;
        }
        client.delete().await;
    }
    wait_until_learned(&proxy, 25 * N_CALLS).await;
    let mut n_predicted = 0;
    for _ in 0..10 {
        let client = connect(&proxy).await;
        let calls = agent.session();
        for (number, pair) in calls.windows(2).enumerate() {
            play(&client, number, pair[0]).await;
            let session = client.session_id().unwrap();
            let path = format!("/predictions/{session}?limit=1");
            let predicted = proxy.control_response(&path).await;
            let best = predicted["tools"][0]["name"].as_str();
            n_predicted += usize::from(best == Some(&name(pair[1])));
        }
        client.delete().await;
    }
    n_predicted
}

async fn wait_until_learned(proxy: &Proxy, n_calls: usize) {
    let started = Instant::now();
    loop {
        let health = proxy.control_response("/health").await;
        let learning = &health["prediction"];
        let n_learned = learning["learned_calls"].as_u64().expect("a number");
        if n_learned >= n_calls as u64 {
            assert_eq!(learning["failures"], 0, "{health}");
            return;
        }
        assert!(started.elapsed() < Duration::from_mins(2), "{health}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

async fn n_predicted_by_frequency() -> usize {
    n_predicted(proxy().configuration("[prediction]\npredictor = \"frequency\"")).await
}

fn python_example() -> PathBuf {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    tests.join("../examples/python-predictor/predictor.py")
}

fn python_configuration(more: &str) -> String {
    let example = python_example().display().to_string();
    // A slow machine must not decide this.
    format!(
        "[prediction]\npredictor = {{ command = [\"python3\", {example:?}], deadline = \"5s\"{more} }}"
    )
}

#[tokio::test]
async fn the_example_in_rust_predicts_better_than_frequency() {
    let frequency = n_predicted_by_frequency().await;
    let example = n_predicted(proxy().program(binary::example_predictor())).await;
    assert!(example >= frequency + 15, "{example} and {frequency} of 50");
}

#[tokio::test]
#[ignore = "needs python3"]
async fn the_example_in_python_predicts_better_than_frequency() {
    let frequency = n_predicted_by_frequency().await;
    let alone = python_configuration(", role = \"alone\"");
    let alone = n_predicted(proxy().configuration(&alone)).await;
    assert!(alone >= frequency + 15, "{alone} and {frequency} of 50");
    let expert = n_predicted(proxy().configuration(&python_configuration(""))).await;
    assert!(expert >= frequency + 15, "{expert} and {frequency} of 50");
}

/// Runs `riglm predictor check` and returns its exit code and its output.
async fn check(arguments: &[&str]) -> (Option<i32>, Value) {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut command = process::command(binary::riglm(), &["predictor", "check", "--json"]);
    command.arg("--data-dir").arg(data_dir.path());
    command.args(arguments);
    let ended = tokio::time::timeout(Duration::from_mins(2), command.output());
    let output = ended.await.expect("the check ends").expect("it can be run");
    let text = String::from_utf8_lossy(&output.stdout);
    let report = serde_json::from_str(&text);
    (
        output.status.code(),
        report.unwrap_or_else(|error| panic!("{error}: {output:?}")),
    )
}

#[tokio::test]
#[ignore = "needs python3"]
async fn the_example_in_python_keeps_the_promises_of_an_external_predictor() {
    let example = python_example().display().to_string();
    let (code, report) = check(&["--", "python3", &example]).await;
    assert_eq!(code, Some(0), "{report}");
    assert!(report["median_ms"].as_f64().unwrap() > 0.0);

    let mut server = process::command(Path::new("python3"), &[&example, "--port", "0"]);
    server
        .stdout(std::process::Stdio::piped())
        .kill_on_drop(true);
    let mut server = server.spawn().expect("python3 can be started");
    let output = server.stdout.take().unwrap();
    let mut lines = tokio::io::AsyncBufReadExt::lines(tokio::io::BufReader::new(output));
    let url = lines.next_line().await.unwrap().unwrap();
    let (code, report) = check(&["--url", &url]).await;
    assert_eq!(code, Some(0), "{report}");
    server.kill().await.unwrap();
}

#[tokio::test]
async fn a_program_that_keeps_no_promise_fails_the_check() {
    let (code, report) = check(&["--", "cat"]).await;
    assert_eq!(code, Some(1), "{report}");
    let clauses = report["clauses"].as_array().unwrap();
    let first = &clauses[0];
    assert_eq!(first["clause"], "each_tool_has_a_score");
    assert_eq!(first["ok"], false);
    let error = first["error"].as_str().unwrap();
    assert!(error.contains("0 scores for 1 tools"), "{error}");
}

#[tokio::test]
async fn a_program_that_hangs_delays_no_list_longer_than_its_deadline() {
    let hanging = "[prediction]\n\
                   predictor = { command = [\"sleep\", \"600\"], deadline = \"200ms\" }";
    let proxy = proxy()
        .configuration(hanging)
        .before(server("plain").tools(40).upstream())
        .strategy("prediction")
        .with_control()
        .start()
        .await;
    let client = connect(&proxy).await;
    for number in 0..5 {
        play(&client, number, number).await;
    }
    wait_until_learned(&proxy, 5).await;
    // The first list may wait for the deadline. During the pause after it none waits.
    for _ in 0..5 {
        let client = connect(&proxy).await;
        let session = client.session_id().unwrap();
        let predicted = proxy
            .control_response(&format!("/predictions/{session}?limit=3"))
            .await;
        assert_eq!(
            predicted["tools"].as_array().unwrap().len(),
            3,
            "{predicted}"
        );
        client.delete().await;
    }
    let metrics = proxy.operate(http::Method::GET, "/metrics", "").await.body;
    let name = "riglm_external_predictor_failures_total";
    let line = metrics.lines().find(|line| line.starts_with(name));
    let line = line.unwrap_or_else(|| panic!("{metrics}"));
    let (_, n_failures) = line.rsplit_once(' ').unwrap();
    assert!(n_failures.parse::<f64>().unwrap() >= 1.0, "{line}");
}
