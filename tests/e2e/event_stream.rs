//! The event stream of the control port: events name their session.

use std::collections::BTreeSet;
use std::path::Path;
use std::time::{Duration, Instant};

use http::{Method, Response};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Server, Transport, Upstream};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm, rows};
use riglm_tests::sse::Decoder;
use serde_json::{Value, json};
use tempfile::TempDir;
use url::Url;

/// A generous deadline for an event.
const SOON: Duration = Duration::from_secs(30);

/// Returns the events of a stream up to the first one of this kind.
async fn events_until(events: &mut Response<Incoming>, kind: &str) -> Vec<Value> {
    let mut told: Vec<Value> = Vec::new();
    let mut decoder = Decoder::default();
    let started = Instant::now();
    while !told.iter().any(|event| event["type"] == kind) {
        assert!(started.elapsed() < SOON, "{told:?}");
        let frame = tokio::time::timeout(SOON, events.body_mut().frame()).await;
        let frame = frame.unwrap().unwrap().unwrap();
        let piece = frame.into_data().unwrap_or_default();
        let read = decoder.feed(&piece).into_iter();
        told.extend(read.map(|event| serde_json::from_str::<Value>(&event.data).unwrap()));
    }
    told
}

/// Starts a proxy and opens its event stream.
async fn open_event_stream(
    data: &Path,
    upstream: &Upstream,
    options: Options,
) -> (Riglm, Response<Incoming>) {
    let control = format!("127.0.0.1:{}", free_port());
    let arguments = ["--strategy", "prediction", "--control", &control];
    let options = Options {
        arguments: arguments.map(str::to_owned).to_vec(),
        ..options
    };
    let riglm = Riglm::serve(upstream, data, &options).await;
    let token = std::fs::read_to_string(data.join("control.token")).unwrap();
    let headers = [(
        "authorization".to_owned(),
        format!("Bearer {}", token.trim()),
    )];
    let url: Url = format!("http://{control}/events").parse().unwrap();
    let events = plain_http::open(Method::GET, &url, &headers, "")
        .await
        .unwrap();
    assert_eq!(events.status(), 200);
    (riglm, events)
}

#[tokio::test]
async fn events_of_sessionless_clients_identify_the_client() {
    let data = TempDir::new().unwrap();
    let odd = env!("CARGO_BIN_EXE_odd-server");
    let one = json!([odd, "stdio", "--name", "one", "--tools", "12"]);
    let other = json!([odd, "stdio", "--name", "other", "--tools", "3"]);
    let file = format!("[upstreams.one]\ncommand = {one}\n[upstreams.other]\ncommand = {other}\n");
    let options = Options::with_configuration(&file);
    let (riglm, mut events) =
        open_event_stream(data.path(), &Upstream::from_configuration(), options).await;

    let client = RawClient::modern(&riglm.url);
    client
        .request(&Meta::default().request("1", "tools/list", ""))
        .await;
    client
        .request(&Meta::default().call("2", "one__tool-003", "{}"))
        .await;
    client
        .request(&Meta::default().call("3", "other__made_up", "{}"))
        .await;
    let words = r#"{"query":"tool"}"#;
    client
        .request(&Meta::default().call("4", "search_available_tools", words))
        .await;

    let told = events_until(&mut events, "searched").await;
    let sessions = rows(data.path(), &["sessions", "--json"]).await;
    let row = &sessions[0];
    for kind in ["list_shown", "tool_called", "searched"] {
        let mut of_kind = told.iter().filter(|event| event["type"] == kind).peekable();
        assert!(of_kind.peek().is_some(), "{kind} is not among {told:?}");
        for event in of_kind {
            for (key, column) in [("session", "id"), ("client_id", "client_id")] {
                assert_eq!(event[key], row[column], "{event}");
                assert!(event[key].is_string(), "{event}");
            }
            assert!(event["work_session"].is_string(), "{event}");
            assert!(event["client"].is_string(), "{event}");
            assert_eq!(event["principal"], "local", "{event}");
        }
    }
}

#[tokio::test]
async fn events_of_a_session_name_it_its_client_and_its_principal() {
    let data = TempDir::new().unwrap();
    let program = env!("CARGO_BIN_EXE_odd-server").into();
    let arguments = ["--tools", "12", "--name", "plain"].map(str::to_owned);
    let upstream = Server::OddWith(program, arguments.to_vec());
    let upstream = upstream.start(Transport::Stdio).await;
    let options = Options {
        environment: vec![("RIGLM__RECOMMEND__TOOLS".into(), "true".into())],
        ..Options::default()
    };
    let (riglm, mut events) = open_event_stream(data.path(), &upstream, options).await;

    let client = RawClient::streamable(&riglm.url, Answers::default());
    let hello: Value = serde_json::from_str(&initialize("0", "2025-11-25")).unwrap();
    client.initialize(&hello.to_string()).await;
    client.request(&request("1", "tools/list")).await;
    client.request(&call("2", "tool-003", "{}")).await;
    let words = r#"{"query":"tool"}"#;
    client
        .request(&call("3", "search_available_tools", words))
        .await;
    client.request(&call("4", "recommend_tools", words)).await;
    let rating = r#"{"tool":"tool-003","rating":5}"#;
    client.request(&call("5", "rate_tool", rating)).await;
    client.delete().await;

    let told = events_until(&mut events, "session_closed").await;
    let started = Instant::now();
    let mut sessions = Vec::new();
    while sessions.is_empty() {
        assert!(started.elapsed() < SOON);
        sessions = rows(data.path(), &["sessions", "--json"]).await;
    }
    let row = &sessions[0];
    let calls = rows(data.path(), &["calls", "--json"]).await;
    let work = &calls[0]["work_session"];
    assert!(work.is_string(), "{calls:?}");
    // Before the first message of a connection, only its principal is known.
    let opened = told
        .iter()
        .find(|event| event["type"] == "session_opened")
        .unwrap();
    assert_eq!(opened["principal"], "local", "{opened}");
    assert_eq!(opened["session"], Value::Null, "{opened}");
    let mut kinds = BTreeSet::new();
    for event in &told {
        let kind = event["type"].as_str().unwrap();
        if ["session_opened", "upstream_changed", "config_changed"].contains(&kind) {
            continue;
        }
        kinds.insert(kind);
        assert_eq!(event["session"], row["id"], "{event}");
        assert_eq!(
            event["client"], hello["params"]["clientInfo"]["name"],
            "{event}"
        );
        assert_eq!(event["client_id"], row["client_id"], "{event}");
        assert_eq!(event["principal"], "local", "{event}");
        // Events before the first list or call have no work session yet.
        let is_before = ["session_introduced", "tools_seen"].contains(&kind)
            || event["data"]["method"] == "initialize";
        if !is_before || event["work_session"].is_string() {
            assert_eq!(event["work_session"], *work, "{event}");
        }
    }
    let expected = [
        "session_introduced",
        "request_ended",
        "list_shown",
        "tool_called",
        "searched",
        "recommended",
        "session_closed",
    ];
    for kind in expected {
        assert!(kinds.contains(kind), "{kind} is not among {kinds:?}");
    }
    assert_eq!(
        json!(
            told.iter()
                .filter(|one| one["type"] == "session_closed")
                .count()
        ),
        json!(1)
    );
}
