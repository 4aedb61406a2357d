//! Distributed traces: a proxy between a client that sends a trace context and a server that
//! receives it.

mod receiver;

use std::time::{Duration, Instant};

use opentelemetry_proto::tonic::trace::v1::Span;
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::messages::{call, initialize, request_with};
use riglm_tests::modern::Meta;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, ProxiedClient, Riglm, rows};
use serde_json::Value;
use tempfile::TempDir;

use self::receiver::{Receiver, attribute, hex, section};
use crate::{odd, odd_over_stdio};

const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const SPAN: &str = "b7ad6b7169203331";
const OTHER_TRACE: &str = "11111111111111111111111111111111";

fn parent(trace: &str) -> String {
    format!("00-{trace}-{SPAN}-01")
}

/// Returns a call of the tool `given` with a trace context in its `_meta`.
fn call_in_trace(trace: &str) -> String {
    let params = format!(
        r#"{{"name":"given","arguments":{{"n":1.0}},"_meta":{{"tracestate":"a=1","traceparent":"{}"}}}}"#,
        parent(trace)
    );
    request_with("7", "tools/call", &params)
}

/// Returns the parameters and the headers in the result of the tool `given`.
fn received_by_upstream(answer: &str) -> (Value, Value) {
    let answer: Value = serde_json::from_str(answer).unwrap();
    let told = &answer["result"]["structuredContent"];
    (told["params"].clone(), told["headers"].clone())
}

/// Checks the spans of a call of that tool, and returns the trace context that the upstream must
/// receive.
async fn check_call(receiver: &Receiver, trace: &str, upstream: &str) -> String {
    let request = receiver
        .span(trace, SpanKind::Server, "tools/call given")
        .await;
    let asked = receiver
        .span(trace, SpanKind::Client, "tools/call given")
        .await;
    assert_eq!(hex(&request.parent_span_id), SPAN);
    assert_eq!(asked.parent_span_id, request.span_id);
    let of = |span: &Span, key: &str| attribute(span, key).unwrap_or_default();
    assert_eq!(of(&request, "mcp.method.name"), "tools/call");
    assert_eq!(of(&request, "gen_ai.tool.name"), "given");
    assert_eq!(of(&request, "mcp.protocol.version"), "2025-11-25");
    assert_eq!(attribute(&request, "error.type"), None);
    assert_eq!(of(&asked, "upstream.name"), upstream);
    let within = |inner: &Span, outer: &Span| {
        inner.start_time_unix_nano >= outer.start_time_unix_nano
            && inner.end_time_unix_nano <= outer.end_time_unix_nano
    };
    assert!(within(&asked, &request));
    let all = receiver.of_trace(trace);
    let stored: Vec<&Span> = all.iter().filter(|span| span.name == "store").collect();
    assert_eq!((stored.len(), all.len()), (2, 4), "{all:#?}");
    assert!(
        stored
            .iter()
            .all(|stored| stored.parent_span_id == request.span_id)
    );
    // Both writes of the row happen during the request: before the upstream is called, and before
    // the client has its response.
    assert!(stored.iter().all(|stored| within(stored, &request)));
    format!("00-{trace}-{}-01", hex(&asked.span_id))
}

async fn connect(client: &RawClient) {
    client.initialize(&initialize("0", "2025-11-25")).await;
}

#[tokio::test]
async fn traces_pass_from_client_headers_to_upstream_and_receiver() {
    let receiver = Receiver::start().await;
    let upstream = odd().start(Transport::Streamable).await;
    let options = Options::with_configuration(&receiver.section());
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstream,
        &options,
        Answers::default(),
    )
    .await;
    connect(&line.client).await;
    line.client.set_header("traceparent", &parent(TRACE));
    line.client.set_header("tracestate", "a=1,b=2");
    let answer = line
        .client
        .request(&call("7", "given", r#"{"n":1.0}"#))
        .await;
    let (params, headers) = received_by_upstream(&answer.text);
    let name = rows(line.data_dir.path(), &["calls", "--json"]).await[0]["upstream"].clone();
    let place = check_call(&receiver, TRACE, name.as_str().unwrap()).await;
    assert_eq!(headers["traceparent"], place.as_str());
    assert_eq!(headers["tracestate"], "a=1,b=2");
    assert_eq!(params["_meta"]["traceparent"], place.as_str());
    assert_eq!(params["_meta"]["tracestate"], "a=1,b=2");
    // The span contains the id of the session row, not the session id of the transport.
    let request = receiver
        .span(TRACE, SpanKind::Server, "tools/call given")
        .await;
    let session = attribute(&request, "mcp.session.id").unwrap();
    let sessions = rows(line.data_dir.path(), &["sessions", "--json"]).await;
    assert_eq!(sessions[0]["id"], session.as_str(), "{sessions:?}");
    assert!(receiver.all_requests_had("x-receiver-key", "hunter2"));
}

#[tokio::test]
async fn traces_pass_from_client_meta_to_stdio_servers() {
    let receiver = Receiver::start().await;
    let options = Options::with_configuration(&receiver.section());
    let line = ProxiedClient::through(
        Transport::Stdio,
        &odd_over_stdio(),
        &options,
        Answers::default(),
    )
    .await;
    connect(&line.client).await;
    let answer = line.client.request(&call_in_trace(TRACE)).await;
    let (params, _) = received_by_upstream(&answer.text);
    let name = rows(line.data_dir.path(), &["calls", "--json"]).await[0]["upstream"].clone();
    let place = check_call(&receiver, TRACE, name.as_str().unwrap()).await;
    assert_eq!(params["_meta"]["traceparent"], place.as_str());
    assert_eq!(params["_meta"]["tracestate"], "a=1");
    assert_eq!(params["arguments"]["n"].to_string(), "1.0");
}

#[tokio::test]
async fn meta_precedes_headers_and_unsampled_traces_are_only_forwarded() {
    let receiver = Receiver::start().await;
    let upstream = odd().start(Transport::Streamable).await;
    let options = Options::with_configuration(&receiver.section());
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstream,
        &options,
        Answers::default(),
    )
    .await;
    connect(&line.client).await;
    line.client.set_header("traceparent", &parent(OTHER_TRACE));
    let answer = line.client.request(&call_in_trace(TRACE)).await;
    let (_, headers) = received_by_upstream(&answer.text);
    assert!(headers["traceparent"].as_str().unwrap().contains(TRACE));
    let unsampled = parent(OTHER_TRACE).replace("-01", "-00");
    line.client.set_header("traceparent", &unsampled);
    let answer = line.client.request(&call("8", "given", "{}")).await;
    let (_, headers) = received_by_upstream(&answer.text);
    let passed = headers["traceparent"].as_str().unwrap();
    assert!(
        passed.contains(OTHER_TRACE) && passed.ends_with("-00"),
        "{passed}"
    );
    assert!(!passed.contains(SPAN), "{passed}");
    receiver
        .span(TRACE, SpanKind::Server, "tools/call given")
        .await;
    assert_eq!(receiver.of_trace(OTHER_TRACE).len(), 0);
}

#[tokio::test]
async fn upstream_requests_are_child_spans_of_the_client_request() {
    let receiver = Receiver::start().await;
    let command = odd_over_stdio().command;
    let section = format!(
        "{}[upstreams.one]\ncommand = {command:?}\n[upstreams.two]\ncommand = {command:?}\n",
        receiver.section()
    );
    let options = Options::with_configuration(&section);
    let upstreams = Upstream::from_configuration();
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstreams,
        &options,
        Answers::default(),
    )
    .await;
    connect(&line.client).await;
    line.client.set_header("traceparent", &parent(TRACE));
    line.client
        .request(&request_with("3", "tools/list", "{}"))
        .await;
    line.client.set_header("traceparent", &parent(OTHER_TRACE));
    let answer = line.client.request(&call("7", "two__given", "{}")).await;
    let (params, _) = received_by_upstream(&answer.text);
    let request = receiver
        .span(OTHER_TRACE, SpanKind::Server, "tools/call two__given")
        .await;
    let asked = receiver
        .span(OTHER_TRACE, SpanKind::Client, "tools/call given")
        .await;
    assert_eq!(asked.parent_span_id, request.span_id);
    assert_eq!(attribute(&asked, "upstream.name").as_deref(), Some("two"));
    let place = format!("00-{OTHER_TRACE}-{}-01", hex(&asked.span_id));
    assert_eq!(params["_meta"]["traceparent"], place.as_str());
    let listed = receiver.span(TRACE, SpanKind::Server, "tools/list").await;
    let all = receiver.of_trace(TRACE);
    let mut names: Vec<String> = all
        .iter()
        .filter(|span| span.kind == SpanKind::Client as i32)
        .inspect(|span| assert_eq!(span.parent_span_id, listed.span_id))
        .filter_map(|span| attribute(span, "upstream.name"))
        .collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names, ["one", "two"]);
}

#[tokio::test]
async fn a_search_and_a_chosen_list_are_predictions() {
    let receiver = Receiver::start().await;
    let options = Options {
        arguments: vec!["--strategy".into(), "prediction".into()],
        ..Options::with_configuration(&receiver.section())
    };
    let upstream = odd_over_stdio();
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstream,
        &options,
        Answers::default(),
    )
    .await;
    connect(&line.client).await;
    line.client.set_header("traceparent", &parent(TRACE));
    line.client
        .request(&request_with("3", "tools/list", "{}"))
        .await;
    let listed = receiver.span(TRACE, SpanKind::Server, "tools/list").await;
    let predicted = receiver.span(TRACE, SpanKind::Internal, "prediction").await;
    assert_eq!(predicted.parent_span_id, listed.span_id);
    line.client.set_header("traceparent", &parent(OTHER_TRACE));
    let search = call("4", "search_available_tools", r#"{"query":"m4rker echo"}"#);
    line.client.request(&search).await;
    let name = "tools/call search_available_tools";
    let searched = receiver.span(OTHER_TRACE, SpanKind::Server, name).await;
    let ranked = receiver
        .span(OTHER_TRACE, SpanKind::Internal, "prediction")
        .await;
    assert_eq!(ranked.parent_span_id, searched.span_id);
    assert!(!receiver.has("m4rker"));
}

#[tokio::test]
async fn trace_headers_are_forwarded_unchanged_without_a_receiver() {
    for transport in [Transport::Streamable, Transport::Legacy] {
        let upstream = odd().start(transport).await;
        let options = Options::default();
        let line = ProxiedClient::through(
            Transport::Streamable,
            &upstream,
            &options,
            Answers::default(),
        )
        .await;
        connect(&line.client).await;
        line.client.set_header("traceparent", &parent(TRACE));
        line.client.set_header("tracestate", "a=1");
        let answer = line
            .client
            .request(&call("7", "given", r#"{"n":1.0}"#))
            .await;
        let (_, headers) = received_by_upstream(&answer.text);
        assert_eq!(headers["traceparent"], parent(TRACE).as_str());
        assert_eq!(headers["tracestate"], "a=1");
        let given = r#""params":{"name":"given","arguments":{"n":1.0}}"#;
        assert!(answer.text.contains(given), "{}", answer.text);
        line.client.set_header("traceparent", "00-malformed");
        let answer = line.client.request(&call("8", "given", "{}")).await;
        assert_eq!(
            received_by_upstream(&answer.text).1["traceparent"],
            Value::Null
        );
    }
}

#[tokio::test]
async fn a_trace_crosses_the_eras() {
    let receiver = Receiver::start().await;
    for (n, section) in [receiver.section(), String::new()].into_iter().enumerate() {
        let upstream = odd().start(Transport::Streamable).await;
        let options = Options::with_configuration(&section);
        let line = ProxiedClient::modern(Transport::Streamable, &upstream, &options).await;
        line.client.set_header("traceparent", &parent(TRACE));
        let answer = line
            .client
            .request(&Meta::default().call("7", "given", "{}"))
            .await;
        let (params, headers) = received_by_upstream(&answer.text);
        if n == 1 {
            assert_eq!(headers["traceparent"], parent(TRACE).as_str());
            assert_eq!(params["_meta"]["traceparent"], Value::Null);
            continue;
        }
        let request = receiver
            .span(TRACE, SpanKind::Server, "tools/call given")
            .await;
        let asked = receiver
            .span(TRACE, SpanKind::Client, "tools/call given")
            .await;
        assert_eq!(asked.parent_span_id, request.span_id);
        let place = format!("00-{TRACE}-{}-01", hex(&asked.span_id));
        assert_eq!(headers["traceparent"], place.as_str());
        assert_eq!(params["_meta"]["traceparent"], place.as_str());
        let revision = attribute(&request, "mcp.protocol.version");
        assert_eq!(revision.as_deref(), Some("2026-07-28"));
    }
}

#[tokio::test]
async fn an_unreachable_receiver_fails_no_call_and_delays_no_shutdown() {
    let upstream = odd_over_stdio();
    let data = TempDir::new().unwrap();
    let options = Options::with_configuration(&section(free_port()));
    let mut riglm = Riglm::serve(&upstream, data.path(), &options).await;
    let client = riglm.client(Answers::default());
    connect(&client).await;
    let began = Instant::now();
    for id in 1..=50 {
        let answer = client.request(&call(&id.to_string(), "mark-a", "{}")).await;
        assert!(answer.text.contains("result"), "{}", answer.text);
    }
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{:?}",
        began.elapsed()
    );
    let began = Instant::now();
    assert_eq!(riglm.stop().await, Some(0));
    assert!(
        began.elapsed() < Duration::from_secs(8),
        "{:?}",
        began.elapsed()
    );
    let log = riglm.process.output();
    assert_eq!(log.matches(" trace spans: ").count(), 1, "{log}");
    assert!(!log.contains("hunter2"), "{log}");
}

#[tokio::test]
async fn pending_spans_are_sent_at_shutdown() {
    let receiver = Receiver::start().await;
    let data = TempDir::new().unwrap();
    let options = Options::with_configuration(&receiver.section());
    let mut riglm = Riglm::serve(&odd_over_stdio(), data.path(), &options).await;
    let client = riglm.client(Answers::default());
    connect(&client).await;
    client.set_header("traceparent", &parent(TRACE));
    client.request(&call("1", "mark-a", "{}")).await;
    assert_eq!(riglm.stop().await, Some(0));
    assert_eq!(receiver.of_trace(TRACE).len(), 4);
}

#[tokio::test]
async fn spans_and_logs_contain_no_content_at_any_level() {
    let receiver = Receiver::start().await;
    let key = "k3y-0123456789abcdef";
    let text = format!(
        "{}[auth.keys]\nalice = \"{key}\"\n[logging]\nlevel = \"trace\"\n",
        receiver.section()
    );
    let over_http = odd().start(Transport::Streamable).await;
    let ways_in = [
        (
            "pretty",
            format!("command = {:?}", odd_over_stdio().command),
        ),
        (
            "json",
            format!(
                "url = \"{}\"\nheaders = {{ x-up = \"t0ken-of-upstream\" }}",
                over_http.url.as_ref().unwrap()
            ),
        ),
    ];
    for (format, way_in) in ways_in {
        let data = TempDir::new().unwrap();
        let text = format!("{text}format = \"{format}\"\n[upstream]\n{way_in}\n");
        let options = Options::with_configuration(&text);
        let mut riglm = Riglm::serve(&Upstream::from_configuration(), data.path(), &options).await;
        let client = riglm.client(Answers::default());
        client.set_header("authorization", &format!("Bearer {key}"));
        let hello = initialize("0", "2025-11-25").replace("raw-client", "n4me-of-the-client");
        client.initialize(&hello).await;
        let secret = r#"{"text":"s3cret-of-the-call","code":-31999,"data":"s3cret-of-the-call"}"#;
        for (id, tool) in [("1", "echo"), ("2", "fail"), ("3", "mark-a")] {
            client.request(&call(id, tool, secret)).await;
        }
        let odd_method = request_with(
            "4",
            "s3cret/method",
            r#"{"_meta":{"x":"s3cret-of-the-call"}}"#,
        );
        client.request(&odd_method).await;
        let session = client.session_id().unwrap();
        assert_eq!(riglm.stop().await, Some(0));
        let log = riglm.process.output();
        for marker in [
            "s3cret-of-the-call",
            "n4me-of-the-client",
            key,
            &session,
            "hunter2",
        ] {
            assert!(!receiver.has(marker), "{marker} in a span");
            let of_log = log.lines().find(|line| line.contains(marker));
            assert_eq!(of_log, None, "{marker} in the log");
        }
        assert!(!receiver.has("s3cret") && receiver.has("execute_tool"));
    }
    assert!(receiver.n_spans() > 20, "{}", receiver.n_spans());
}
