//! Invalid messages: each is refused with a clear error, and the session goes on.

use std::time::Duration;

use http::Method;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::{Envelope, integer_at};
use riglm_tests::fixture::Transport;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http::{self, HttpResponse};

use crate::{connect, odd_over_stdio};

/// Texts that are not JSON-RPC messages.
const MALFORMED: [&str; 24] = [
    "",
    "{",
    "}",
    "nonsense",
    "\u{0}",
    "\"text\"",
    "7",
    "null",
    "true",
    "{}",
    "[]",
    "[1,2]",
    "[[]]",
    r#"{"jsonrpc":"2.0"}"#,
    r#"{"jsonrpc":"2.0","id":1}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
    r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":[1],"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":true,"method":"ping"}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping""#,
    r#"{"jsonrpc":"2.0","id":1,"method":"ping",}"#,
    r#"{"jsonrpc":"2.0","id":1,"method":"\ud800"}"#,
    r#"{"jsonrpc":"2.0","id":01,"method":"ping"}"#,
];

/// Fails if an error of the proxy uses a code that the protocol reserves.
fn assert_own_code(body: &str) {
    for envelope in Envelope::all(body) {
        let code = envelope
            .member("error")
            .and_then(|error| integer_at(error, &["code"]));
        if let Some(code) = code {
            assert!(!(-32_099..=-32_000).contains(&code), "{code} in {body}");
        }
    }
}

async fn post(client: &RawClient, url: &url::Url, body: impl Into<bytes::Bytes>) -> HttpResponse {
    let id = client.session_id().unwrap_or_default();
    let headers = [
        ("content-type", "application/json"),
        ("accept", "application/json, text/event-stream"),
        ("mcp-session-id", id.as_str()),
        ("mcp-protocol-version", "2025-11-25"),
    ];
    plain_http::exchange(Method::POST, url, &headers, body)
        .await
        .unwrap_or_else(|error| panic!("{}", error.0))
}

#[tokio::test]
async fn malformed_bodies_are_refused_without_ending_the_session() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let url = &line.riglm.as_ref().expect("the proxy listens").url;
    for text in MALFORMED {
        let answer = post(&line.client, url, text).await;
        assert!(
            (400..500).contains(&answer.status),
            "{text:?} was answered with {} {}",
            answer.status,
            answer.body
        );
        assert_own_code(&answer.body);
    }
    for bytes in [
        &b"\xff\xfe{}"[..],
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"\xc3\"}",
    ] {
        assert_eq!(post(&line.client, url, bytes.to_vec()).await.status, 400);
    }
    line.client.request(&request("\"after\"", "ping")).await;
}

#[tokio::test]
async fn invalid_json_is_a_parse_error() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let url = &line.riglm.as_ref().expect("the proxy listens").url;
    let answer = post(&line.client, url, "{\"jsonrpc\":").await;
    assert_eq!(answer.status, 400);
    assert_eq!(integer_at(&answer.body, &["error", "code"]), Some(-32_700));
    let answer = post(&line.client, url, "{\"hello\":1}").await;
    assert_eq!(answer.status, 400);
    assert_eq!(integer_at(&answer.body, &["error", "code"]), Some(-32_600));
}

#[tokio::test]
async fn malformed_lines_are_answered_without_ending_the_session() {
    let line = connect(Transport::Stdio, &odd_over_stdio()).await;
    for text in ["{", "nonsense", "[]", "7", r#"{"jsonrpc":"2.0"}"#] {
        let start = line.client.n_received();
        line.client.send(text).await;
        line.client.answer_after(start, "null").await;
    }
    line.client.send_bytes(b"\xff\xfe\xc3\n\n\r\n  \n").await;
    line.client.request(&request("\"after\"", "ping")).await;
    for message in line.client.received_messages() {
        assert_own_code(&message.text);
    }
}

#[tokio::test]
async fn deeply_nested_input_does_not_end_the_session() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        let line = connect(downstream, &odd_over_stdio()).await;
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        line.client.send(&call("\"deep\"", "echo", &deep)).await;
        line.client.request(&request("\"after\"", "ping")).await;
    }
}

#[tokio::test]
async fn a_batch_is_refused_in_revisions_without_batches() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let url = &line.riglm.as_ref().expect("the proxy listens").url;
    let batch = format!("[{},{}]", request("1", "ping"), request("2", "ping"));
    let answer = post(&line.client, url, batch).await;
    assert_eq!(answer.status, 400, "{}", answer.body);
    assert_eq!(integer_at(&answer.body, &["error", "code"]), Some(-32_600));
}

#[tokio::test]
async fn unknown_and_missing_session_ids_get_different_errors() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let url = &line.riglm.as_ref().expect("the proxy listens").url;
    let ask = async |session: Option<&str>, method: Method| {
        let mut headers = vec![
            ("content-type", "application/json"),
            ("accept", "application/json, text/event-stream"),
            ("mcp-protocol-version", "2025-11-25"),
        ];
        headers.extend(session.map(|id| ("mcp-session-id", id)));
        let answer = plain_http::exchange(method, url, &headers, request("1", "ping"))
            .await
            .unwrap_or_else(|error| panic!("{}", error.0));
        assert_own_code(&answer.body);
        answer.status
    };
    for method in [Method::POST, Method::GET, Method::DELETE] {
        assert_eq!(
            ask(Some("no-such-session"), method.clone()).await,
            404,
            "{method}"
        );
        assert_eq!(ask(None, method.clone()).await, 400, "{method}");
    }
}

#[tokio::test]
async fn an_unknown_revision_in_the_header_is_refused() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    line.client.set_header("mcp-protocol-version", "1999-01-01");
    assert_eq!(line.client.send(&request("1", "ping")).await.status, 400);
    line.client.set_header("mcp-protocol-version", "2025-11-25");
    line.client.request(&request("2", "ping")).await;
}

#[tokio::test]
async fn a_body_over_4_mebibytes_is_refused() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let url = &line.riglm.as_ref().expect("the proxy listens").url;
    let id = line.client.session_id().expect("the session has an id");
    let head = format!(
        "POST /mcp HTTP/1.1\r\nhost: {}\r\ncontent-type: application/json\r\n\
         accept: application/json, text/event-stream\r\nmcp-session-id: {id}\r\n",
        url.authority()
    );
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat(4 << 20));
    let body = call("1", "echo", &text);
    let announced = format!("{head}content-length: {}\r\n\r\n{body}", body.len());
    let chunked = format!(
        "{head}transfer-encoding: chunked\r\n\r\n{:x}\r\n{body}\r\n0\r\n\r\n",
        body.len()
    );
    for request in [announced, chunked] {
        let status = plain_http::status_of_raw(url, request.as_bytes())
            .await
            .unwrap_or_else(|error| panic!("{}", error.0));
        assert_eq!(status, 413);
    }
    let text = format!(r#"{{"text":"{}"}}"#, "x".repeat((4 << 20) - 1_000));
    line.client.request(&call("2", "echo", &text)).await;
}

#[tokio::test]
async fn two_requests_with_one_id_in_flight_both_end() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        let client = line.client.with_patience(Duration::from_secs(10));
        client
            .send(&call("\"twin\"", "sleep", r#"{"ms":400}"#))
            .await;
        client
            .send(&call("\"twin\"", "sleep", r#"{"ms":400}"#))
            .await;
        let answers = client
            .wait("two answers", |messages| {
                let found: Vec<_> = messages
                    .iter()
                    .filter(|message| message.answers("\"twin\""))
                    .cloned()
                    .collect();
                (found.len() == 2).then_some(found)
            })
            .await;
        let errors = answers
            .iter()
            .filter(|answer| {
                Envelope::one(&answer.text).is_some_and(|e| e.member("error").is_some())
            })
            .count();
        assert_eq!(errors, 1, "{downstream:?}: {answers:?}");
        for answer in &answers {
            assert_own_code(&answer.text);
        }
        client.request(&request("\"after\"", "ping")).await;
    }
}

#[tokio::test]
async fn a_second_initialize_does_not_hang() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let client = line.client.with_patience(Duration::from_secs(10));
    client.send(&initialize("\"again\"", "2025-11-25")).await;
    client.request(&request("\"after\"", "ping")).await;
}

#[tokio::test]
async fn unsolicited_responses_are_ignored() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        for text in [
            r#"{"jsonrpc":"2.0","id":"nobody","result":{}}"#,
            r#"{"jsonrpc":"2.0","id":4711,"error":{"code":1,"message":"m"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"none"}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/cancelled"}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":null}"#,
        ] {
            line.client.send(text).await;
        }
        line.client.request(&request("\"after\"", "ping")).await;
    }
}
