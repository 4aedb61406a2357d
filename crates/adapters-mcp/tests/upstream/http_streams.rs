//! Streamable HTTP: event streams of requests, the server's own stream, and the resumption of both.

use std::sync::atomic::{AtomicUsize, Ordering};

use axum::http::Method;
use axum::response::Response;
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_ports::upstream::UpstreamError;

use crate::support::{
    Connection, ReceivedRequest, Server, StreamEnd, call, events, handshake, json, number,
    open_initialized, result, status, url_connector,
};

const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/progress"}"#;

/// A server that responds to call 1 with `stream`, and to GET requests that resume it with
/// `resume`.
async fn streaming(
    stream: impl Fn() -> Response + Send + Sync + 'static,
    resume: impl Fn(&str) -> Response + Send + Sync + 'static,
) -> Server {
    Server::start(move |asked| match asked.header("last-event-id") {
        "" if asked.method == Method::GET => status(405),
        "" if asked.body == call(1) => stream(),
        "" => handshake(asked).unwrap_or_else(|| json(result(asked.id()))),
        last => resume(last),
    })
    .await
}

async fn open(server: &Server, change: impl FnOnce(&mut UpstreamConfig)) -> Connection {
    open_initialized(url_connector(&server.url("/mcp"), change).as_ref()).await
}

fn never(_: &str) -> Response {
    status(500)
}

#[tokio::test]
async fn request_events_keep_their_order_and_request_id() {
    let server = streaming(
        || {
            let ask = r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"}"#;
            let text = format!(
                ": hello\n\nevent: message\nid: 1\ndata: {PROGRESS}\n\n\
                 event: ping\ndata: x\n\ndata: garbage\n\ndata: {ask}\r\n\r\n\
                 data: {{\"jsonrpc\":\"2.0\",\ndata: \"id\":1,\"result\":{{}}}}\n\n"
            );
            events(text, StreamEnd::End)
        },
        never,
    )
    .await;
    let connection = open(&server, |_| {}).await;
    connection.send(&call(1)).await.unwrap();
    for expected in [
        PROGRESS,
        r#"{"jsonrpc":"2.0","id":"s","method":"sampling/createMessage"}"#,
        "{\"jsonrpc\":\"2.0\",\n\"id\":1,\"result\":{}}",
    ] {
        let event = connection.event().await;
        assert_eq!(event.text(), expected);
        assert_eq!(event.related_request(), Some(&number(1)));
    }
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn a_broken_stream_is_resumed_without_loss_and_without_repetition() {
    let server = streaming(
        || {
            let text = format!("id: 1\nretry: 20\ndata: {PROGRESS}\n\nid: 2\ndata: {{\"meth");
            events(text, StreamEnd::Break)
        },
        |last| match last {
            "1" => events(
                format!("id: 1\ndata: {PROGRESS}\n\nid: 2\ndata: {{\"method\":\"two\"}}\n\n"),
                StreamEnd::End,
            ),
            "2" => events(format!("id: 3\ndata: {}\n\n", result(1)), StreamEnd::End),
            other => panic!("resumed after {other}"),
        },
    )
    .await;
    let connection = open(&server, |_| {}).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), PROGRESS);
    assert_eq!(connection.event().await.text(), r#"{"method":"two"}"#);
    let answer = connection.event().await;
    assert_eq!(answer.text(), result(1));
    assert_eq!(answer.related_request(), Some(&number(1)));
    let resumed = server
        .wait_for_request(|asked| asked.header("last-event-id") == "2")
        .await;
    assert_eq!(resumed.header("mcp-session-id"), "s1");
    assert_eq!(resumed.header("accept"), "text/event-stream");
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn answers_are_polled_after_an_early_stream_end() {
    let n_polls = AtomicUsize::new(0);
    let server = streaming(
        || events("id: 0\nretry: 20\ndata:\n\n", StreamEnd::End),
        move |_| match n_polls.fetch_add(1, Ordering::Relaxed) {
            0 => status(503),
            1 => events("", StreamEnd::End),
            _ => events(format!("data: {}\n\n", result(1)), StreamEnd::End),
        },
    )
    .await;
    let connection = open(&server, |_| {}).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(1));
}

#[tokio::test]
async fn unresumable_streams_end_the_request() {
    let lost = UpstreamError::Lost {
        reason: "the event stream was interrupted".into(),
    };
    for (text, then, expected) in [
        (
            "data: {\"method\":\"a\"}\n\n",
            StreamEnd::End,
            UpstreamError::NoAnswer,
        ),
        (
            "data: {\"method\":\"a\"}\n\n",
            StreamEnd::Break,
            lost.clone(),
        ),
        (
            "id: 1\nretry: 20\ndata: {\"method\":\"a\"}\n\n",
            StreamEnd::Break,
            lost,
        ),
    ] {
        let server = streaming(move || events(text, then), never).await;
        let connection = open(&server, |_| {}).await;
        connection.send(&call(1)).await.unwrap();
        assert_eq!(connection.event().await.text(), r#"{"method":"a"}"#);
        assert_eq!(
            connection.event().await.unwrap_unanswered(),
            (number(1), expected)
        );
    }
}

#[tokio::test]
async fn sessions_ended_before_resumption_are_reported() {
    let server = streaming(
        || events("id: 0\nretry: 20\ndata:\n\n", StreamEnd::End),
        |_| status(404),
    )
    .await;
    let connection = open(&server, |_| {}).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::SessionExpired)
    );
}

#[tokio::test]
async fn endless_events_fail_only_their_request() {
    let server = streaming(
        || {
            let part = format!("data: {}\n", "x".repeat(10_000));
            events(part.repeat(20), StreamEnd::StayOpen)
        },
        never,
    )
    .await;
    let connection = open(&server, |config| config.max_message_bytes = 50_000).await;
    connection.send(&call(1)).await.unwrap();
    let too_large = UpstreamError::TooLarge { limit: 50_000 };
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), too_large)
    );
    connection.send(&call(2)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
}

#[tokio::test]
async fn a_cancelled_request_does_not_keep_its_stream() {
    let server = streaming(
        || events("data: {\"method\":\"a\"}\n\n", StreamEnd::StayOpen),
        never,
    )
    .await;
    let connection = open(&server, |_| {}).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), r#"{"method":"a"}"#);
    connection
        .send(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await
        .unwrap();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::NoAnswer)
    );
}

#[tokio::test]
async fn a_cancelled_request_ends_also_when_the_server_refuses_the_cancellation() {
    let server = Server::start(|asked| match asked {
        asked if asked.method == Method::GET => status(405),
        asked if asked.is_post_of("notifications/cancelled") => status(500),
        asked if asked.body == call(1) => {
            events("data: {\"method\":\"a\"}\n\n", StreamEnd::StayOpen)
        }
        asked => handshake(asked).unwrap_or_else(|| status(500)),
    })
    .await;
    let connection = open(&server, |_| {}).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), r#"{"method":"a"}"#);
    let refused = connection
        .send(r#"{"method":"notifications/cancelled","params":{"requestId":1}}"#)
        .await;
    assert_eq!(refused, Err(UpstreamError::Status { status: 500 }));
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::NoAnswer)
    );
}

#[tokio::test]
async fn many_events_may_together_exceed_the_limit_of_one() {
    let server = streaming(
        || {
            let event = format!("data: {{\"method\":\"{}\"}}\n\n", "x".repeat(1_000));
            events(
                format!("{}data: {}\n\n", event.repeat(500), result(1)),
                StreamEnd::End,
            )
        },
        never,
    )
    .await;
    let connection = open(&server, |config| config.max_message_bytes = 2_000).await;
    connection.send(&call(1)).await.unwrap();
    for _ in 0..500 {
        assert_eq!(connection.event().await.text().len(), 1_013);
    }
    assert_eq!(connection.event().await.text(), result(1));
}

#[tokio::test]
async fn standalone_streams_follow_the_handshake_and_are_resumed() {
    let server = Server::start(|asked| {
        if asked.method == Method::POST {
            return handshake(asked).unwrap_or_else(|| status(202));
        }
        match asked.header("last-event-id") {
            "" => events(
                "id: a\nretry: 20\ndata: {\"method\":\"one\"}\n\n",
                StreamEnd::Break,
            ),
            "a" => events("id: b\ndata: {\"method\":\"two\"}\n\n", StreamEnd::StayOpen),
            other => panic!("resumed after {other}"),
        }
    })
    .await;
    let connection = open(&server, |_| {}).await;
    for expected in [r#"{"method":"one"}"#, r#"{"method":"two"}"#] {
        let event = connection.event().await;
        assert_eq!(event.text(), expected);
        assert_eq!(event.related_request(), None);
    }
    let asked = server.received_requests();
    let first_get = asked
        .iter()
        .position(|asked| asked.method == Method::GET)
        .unwrap();
    assert!(
        asked[..first_get]
            .iter()
            .any(|asked| asked.is_post_of("notifications/initialized"))
    );
    assert_eq!(asked[first_get].header("mcp-session-id"), "s1");
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn a_server_without_a_stream_of_its_own_is_asked_once() {
    let server = streaming(|| json(result(1)), never).await;
    let connection = open(&server, |_| {}).await;
    server
        .wait_for_request(|asked| asked.method == Method::GET)
        .await;
    connection.send(&call(1)).await.unwrap();
    connection.event().await;
    connection.close().await;
    let is_get = |asked: &ReceivedRequest| asked.method == Method::GET;
    assert_eq!(
        server
            .received_requests()
            .iter()
            .filter(|asked| is_get(asked))
            .count(),
        1
    );
}
