//! What was searched for and called is remembered over a restart.

use std::path::Path;
use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm};
use serde_json::Value;

/// A query that has no word in common with any tool.
const QUERY: &str = "water the tomatoes in the greenhouse";
/// Another text of the same meaning.
const ALIKE: &str = "please give the greenhouse tomatoes some water";

async fn upstream() -> Upstream {
    let program = env!("CARGO_BIN_EXE_odd-server").into();
    let arguments = ["--tools", "40", "--name", "plain"].map(str::to_owned);
    let server = Server::OddWith(program, arguments.to_vec());
    server.start(Transport::Stdio).await
}

/// A proxy with one client.
struct Line {
    riglm: Riglm,
    client: RawClient,
    control: u16,
}

async fn line(data_dir: &Path) -> Line {
    let control = free_port();
    let address = format!("127.0.0.1:{control}");
    let arguments = ["--strategy", "prediction", "--control", &address];
    let options = Options {
        arguments: arguments.map(str::to_owned).to_vec(),
        environment: vec![("RIGLM__LOGGING__LEVEL".into(), "debug".into())],
        ..Options::default()
    };
    let riglm = Riglm::serve(&upstream().await, data_dir, &options).await;
    let client = riglm.client(Answers::default());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client.request(&request("\"list\"", "tools/list")).await;
    let is_ready = |line: &str| line.contains("vectors of").then_some(());
    riglm
        .process
        .line(Duration::from_mins(1), "vectors of the tools", is_ready)
        .await;
    Line {
        riglm,
        client,
        control,
    }
}

impl Line {
    /// Returns the names that a search finds, best first.
    async fn search(&self, id: &str, query: &str) -> Vec<String> {
        let arguments = format!(r#"{{"query":"{query}"}}"#);
        let text = call(id, "search_available_tools", &arguments);
        let answer = self.client.request(&text).await;
        let answer: Value = serde_json::from_str(&answer.text).expect("an answer is JSON");
        let matches = &answer["result"]["structuredContent"]["matches"];
        let matches = matches.as_array().expect("an answer has matches");
        let names = matches.iter().map(|found| found["name"].as_str());
        names.flatten().map(str::to_owned).collect()
    }
}

#[tokio::test]
async fn health_names_the_encoder_whose_vectors_searches_have() {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    let line = line(data_dir.path()).await;
    let url = format!("http://127.0.0.1:{}/health", line.control);
    let url = url.parse().expect("an address");
    let answer = plain_http::exchange(http::Method::GET, &url, &[], "").await;
    let health: Value = serde_json::from_str(&answer.expect("an answer").body).expect("JSON");
    assert_eq!(health["encoders"][0]["state"], "ready", "{health}");
    assert_eq!(health["status"], "ok", "{health}");
}

#[tokio::test]
async fn a_tool_that_was_called_after_a_search_is_found_by_its_like_after_a_restart() {
    let data_dir = tempfile::tempdir().expect("a temporary folder can be made");
    let mut line = self::line(data_dir.path()).await;
    let (wanted, usual) = ("tool-037", "tool-005");
    // What is called most is not what is meant.
    for number in 0..5 {
        let id = format!("\"usual {number}\"");
        line.client.request(&call(&id, usual, "{}")).await;
    }
    let before = line.search("1", QUERY).await;
    let first = before.first().map(String::as_str);
    assert_ne!(first, Some(wanted), "{before:?}");
    line.client.request(&call("2", wanted, "{}")).await;
    assert_eq!(line.riglm.stop().await, Some(0));

    let line = self::line(data_dir.path()).await;
    // What is known of a principal is read beside the first search.
    line.search("1", "anything").await;
    let found = line.search("2", ALIKE).await;
    assert_eq!(
        found.first().map(String::as_str),
        Some(wanted),
        "{found:?} after {before:?}"
    );
}
