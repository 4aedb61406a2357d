//! Profiles: several addresses of one proxy, each with its own lists.

use std::path::Path;

use http::Method;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http::HttpResponse;
use riglm_tests::process;
use riglm_tests::riglm::{Options, Riglm, rows, serve_command};
use riglm_tests::{binary, plain_http};
use serde_json::Value;
use tempfile::TempDir;

/// Two profiles: one shows tools by name, the other hides one tool of the default list.
const CONFIGURATION: &str = r#"
[filtering]
strategy = "prediction"

[profiles.few.filtering]
policy = "allowlist"
allow = ["tool-00*"]

[profiles.careful.filtering]
bans = ["tool-011"]

[profiles.plain]
"#;

async fn upstream() -> Upstream {
    let program = env!("CARGO_BIN_EXE_odd-server").into();
    let arguments = ["--tools", "12", "--name", "plain"].map(str::to_owned);
    let server = Server::OddWith(program, arguments.to_vec());
    server.start(Transport::Stdio).await
}

fn options() -> Options {
    let strategy = ["--strategy", "prediction"].map(str::to_owned);
    Options {
        arguments: strategy.to_vec(),
        ..Options::with_configuration(CONFIGURATION)
    }
}

async fn serve(data_dir: &Path) -> Riglm {
    Riglm::serve(&upstream().await, data_dir, &options()).await
}

/// Returns the listed tools of the server.
fn tools_in(answer: &str) -> Vec<String> {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let tools = answer["result"]["tools"].as_array().unwrap().iter();
    let names = tools.map(|tool| tool["name"].as_str().unwrap().to_owned());
    names.filter(|name| name.starts_with("tool-")).collect()
}

async fn connect(riglm: &Riglm, path: &str) -> RawClient {
    let client = RawClient::streamable(&riglm.at(path), Answers::default());
    client.initialize(&initialize("0", "2025-11-25")).await;
    client
}

/// Requests the list and returns its tools of the server.
async fn list(client: &RawClient, id: &str) -> Vec<String> {
    tools_in(&client.request(&request(id, "tools/list")).await.text)
}

#[tokio::test]
async fn each_address_has_the_lists_of_its_profile() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path()).await;
    let all: Vec<String> = (0..12).map(|n| format!("tool-{n:03}")).collect();
    for (path, expected) in [
        ("/mcp", &all[..]),
        ("/mcp/plain", &all[..]),
        ("/mcp/careful", &all[..11]),
        ("/mcp/few", &all[..10]),
    ] {
        let client = connect(&riglm, path).await;
        assert_eq!(list(&client, "1").await, expected, "{path}");
        let modern = RawClient::modern(&riglm.at(path));
        let asked = Meta::default().request("2", "tools/list", "");
        let answer = modern.request(&asked).await;
        assert_eq!(tools_in(&answer.text), expected, "{path}");
        // A profile does not prevent calls of tools.
        let answer = client.request(&call("3", "tool-011", "{}")).await;
        assert!(answer.text.contains("\"result\""), "{}", answer.text);
    }
    let sessions = rows(data.path(), &["sessions", "--json"]).await;
    let profiles: Vec<&Value> = sessions.iter().map(|session| &session["profile"]).collect();
    for (name, n) in [("few", 2), ("careful", 2), ("plain", 2)] {
        let found = profiles.iter().filter(|profile| **profile == name);
        assert_eq!(found.count(), n, "{name} in {profiles:?}");
    }
    let few = sessions.iter().find(|session| session["profile"] == "few");
    let id = few.unwrap()["id"].as_str().unwrap();
    let lists = rows(data.path(), &["lists", "--session", id, "--json"]).await;
    let selected = lists[0]["selected"].as_array().map(Vec::len);
    let removed = lists[0]["removed"].as_array().map(Vec::len);
    assert_eq!((selected, removed), (Some(10), Some(2)), "{lists:?}");
    assert_eq!(
        (&lists[0]["policy"], &lists[0]["mode"]),
        (&"allowlist".into(), &"names".into())
    );
    // One client at several addresses has several work sessions.
    let calls = rows(data.path(), &["calls", "--json"]).await;
    let work: std::collections::BTreeSet<&str> = calls
        .iter()
        .map(|call| call["work_session"].as_str().unwrap())
        .collect();
    assert_eq!(work.len(), 4);
}

async fn post(riglm: &Riglm, path: &str, session: Option<&str>, body: &str) -> HttpResponse {
    let mut headers = vec![
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
    ];
    headers.extend(session.map(|id| ("mcp-session-id", id)));
    let url = riglm.at(path);
    let answer = plain_http::exchange(Method::POST, &url, &headers, body.to_owned());
    answer.await.unwrap()
}

#[tokio::test]
async fn unknown_profile_addresses_are_refused_and_sessions_keep_theirs() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path()).await;
    let hello = initialize("0", "2025-11-25");
    for path in [
        "/mcp/nobody",
        "/mcp/Few",
        "/mcp/a%2Fb",
        "/mcp/%ff",
        "/mcp/%F0%9F%94%A7",
    ] {
        let answer = post(&riglm, path, None, &hello).await;
        assert_eq!(answer.status, 404, "{path}: {}", answer.body);
        assert!(answer.body.contains("unknown profile"), "{}", answer.body);
    }
    let client = connect(&riglm, "/mcp/few").await;
    let id = client.session_id().unwrap();
    for (path, status) in [("/mcp", 404), ("/mcp/plain", 404), ("/mcp/few", 200)] {
        let answer = post(&riglm, path, Some(&id), &request("1", "ping")).await;
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
    }
}

#[tokio::test]
async fn a_client_over_standard_input_has_the_profile_of_the_option() {
    let data = TempDir::new().unwrap();
    let command = serve_command(
        &upstream().await,
        data.path(),
        &options(),
        &["--stdio", "--profile", "few"],
    );
    let client = RawClient::stdio(command, Answers::default());
    client.initialize(&initialize("0", "2025-11-25")).await;
    assert_eq!(list(&client, "1").await.len(), 10);

    let file = data.path().join("test.toml");
    let file = file.to_str().unwrap();
    for (option, expected) in [
        (
            &["--stdio", "--profile", "none"][..],
            "command line: --profile: unknown profile \"none\"; known are careful, few, plain",
        ),
        (&["--profile", "few"], "--stdio"),
    ] {
        let mut command = process::command(binary::riglm(), &["serve", "--config", file]);
        command.args(option).args(["--", "true"]);
        let output = command.output().await.unwrap();
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(
            !output.status.success() && said.contains(expected),
            "{said}"
        );
    }
}
