//! Texts of servers that are not messages.

use axum::http::Method;
use axum::response::Response;
use riglm_ports::upstream::UpstreamError;

use crate::support::{
    Connection, Log, ReceivedRequest, Server, StreamEnd, call, events, handshake, json, number,
    open_initialized, result, status, url_connector,
};

/// A server that responds to calls with `answer`, and to a GET with `stream`.
async fn server(
    answer: impl Fn(&ReceivedRequest) -> Response + Send + Sync + 'static,
    stream: impl Fn() -> Response + Send + Sync + 'static,
) -> Server {
    Server::start(move |asked| {
        if asked.method == Method::GET {
            return stream();
        }
        handshake(asked).unwrap_or_else(|| answer(asked))
    })
    .await
}

async fn open(server: &Server) -> Connection {
    open_initialized(url_connector(&server.url("/mcp"), |_| {}).as_ref()).await
}

fn n_warnings(log: &Log) -> usize {
    log.text().matches("WARN").count()
}

#[tokio::test]
async fn bodies_of_invalid_messages_are_abandoned_and_logged_once() {
    let (log, _logging) = Log::of_this_thread(tracing::Level::WARN);
    let server = server(
        |asked| match asked.body.as_str() {
            body if body == call(1) => json("{}".repeat(200_000) + &result(1)),
            body if body == call(2) => json("{}\n".repeat(90) + &result(2)),
            _ => status(404),
        },
        || status(405),
    )
    .await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    let (request, error) = connection.event().await.unwrap_unanswered();
    assert_eq!(request, number(1));
    assert!(matches!(error, UpstreamError::Garbled { .. }), "{error}");
    assert_eq!(n_warnings(&log), 1, "{}", log.text());
    // A body with a few invalid texts is still read completely.
    connection.send(&call(2)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
    assert_eq!(n_warnings(&log), 2, "{}", log.text());
}

#[tokio::test]
async fn invalid_events_are_logged_once_per_exchange_or_stream() {
    const GARBAGE: &str = "retry: 20\ndata: garbage\n\n";
    let (log, _logging) = Log::of_this_thread(tracing::Level::WARN);
    let server = server(
        |asked| {
            let answer = result(asked.id());
            events(
                "data: garbage\n\n".repeat(1_000) + "data: " + &answer + "\n\n",
                StreamEnd::End,
            )
        },
        || events(GARBAGE, StreamEnd::End),
    )
    .await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(1));
    let of_exchange = 1;
    // The server's own stream ends after each event and is opened again.
    let n_opened = || {
        let asked = server.received_requests();
        asked
            .iter()
            .filter(|asked| asked.method == Method::GET)
            .count()
    };
    for _ in 0..1_000 {
        if n_opened() > 4 {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    assert!(n_opened() > 4, "the stream is opened again");
    assert_eq!(n_warnings(&log), of_exchange + 1, "{}", log.text());
    connection.close().await;
}
