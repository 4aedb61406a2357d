//! HTTP+SSE of revision 2024-11-05.

use axum::body::{Body, Bytes};
use axum::http::{Method, header};
use axum::response::Response;
use futures_util::stream;
use parking_lot::Mutex;
use riglm_adapters_mcp::upstream::UpstreamConfig;
use riglm_ports::upstream::UpstreamError;
use tokio::sync::mpsc;

use crate::support::{
    Connection, ReceivedRequest, Server, StreamEnd, call, events, number, result, status,
    url_connector,
};

/// An HTTP+SSE server at `/sse` that responds to every request with an empty result. The method
/// `end` ends the stream. A POST to `/sse` gets `post_status`.
pub(crate) async fn legacy(post_status: u16) -> Server {
    let stream_of: Mutex<Option<mpsc::UnboundedSender<String>>> = Mutex::new(None);
    Server::start(move |asked| {
        let mut stream_of = stream_of.lock();
        if asked.method == Method::GET {
            let (sender, receiver) = mpsc::unbounded_channel();
            sender
                .send("event: endpoint\ndata: /messages?sessionId=1\n\n".to_owned())
                .unwrap();
            *stream_of = Some(sender);
            return channel(receiver);
        }
        if asked.path != "/messages?sessionId=1" {
            return status(post_status);
        }
        if asked.is_post_of("end") {
            *stream_of = None;
        } else if let (Some(sender), true) = (stream_of.as_ref(), asked.body.contains("\"id\"")) {
            let event = format!("event: message\ndata: {}\n\n", result(asked.id()));
            sender.send(event).unwrap();
        }
        status(if asked.is_post_of("gone") { 404 } else { 202 })
    })
    .await
}

/// Returns an event stream of the texts from a channel.
fn channel(receiver: mpsc::UnboundedReceiver<String>) -> Response {
    let parts = stream::unfold(receiver, |mut receiver| async move {
        let text = receiver.recv().await?;
        Some((Ok::<_, std::io::Error>(Bytes::from(text)), receiver))
    });
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .body(Body::from_stream(parts))
        .unwrap()
}

async fn open(
    server: &Server,
    change: impl FnOnce(&mut UpstreamConfig),
) -> Result<Connection, UpstreamError> {
    let url = format!("sse+{}", server.url("/sse"));
    Connection::open(url_connector(&url, change).as_ref()).await
}

#[tokio::test]
async fn messages_are_posted_and_answers_are_streamed() {
    let server = legacy(405).await;
    let connection = open(&server, |config| {
        config.headers.insert("X-Key".into(), "k".into());
    })
    .await
    .unwrap();
    for id in 1..=20 {
        connection.send(&call(id)).await.unwrap();
        let event = connection.event().await;
        assert_eq!(event.text(), result(id));
        assert_eq!(event.related_request(), None);
    }
    connection.send(r#"{"method":"note"}"#).await.unwrap();
    let asked = server.received_requests();
    assert!(asked.iter().all(|asked| asked.header("x-key") == "k"));
    assert!(asked.last().unwrap().is_post_of("note"));
    connection.close().await;
    assert!(connection.rest().await.is_empty());
    assert!(matches!(
        connection.send(&call(99)).await,
        Err(UpstreamError::Lost { .. })
    ));
}

#[tokio::test]
async fn the_end_of_the_stream_is_the_loss_of_the_connection() {
    let server = legacy(405).await;
    let connection = open(&server, |_| {}).await.unwrap();
    connection.send(r#"{"method":"end"}"#).await.unwrap();
    assert_eq!(
        connection.event().await.unwrap_lost().to_string(),
        "the connection was lost: the server ended the event stream"
    );
    assert!(connection.rest().await.is_empty());
    connection.close().await;
}

#[tokio::test]
async fn expired_sessions_are_reported() {
    let server = legacy(405).await;
    let connection = open(&server, |_| {}).await.unwrap();
    let note = r#"{"method":"gone"}"#;
    assert_eq!(
        connection.send(note).await,
        Err(UpstreamError::SessionExpired)
    );
}

#[tokio::test]
async fn an_endpoint_on_another_origin_is_refused() {
    let elsewhere = legacy(405).await;
    for endpoint in [
        elsewhere.url("/messages"),
        "//example.invalid/m".into(),
        "ftp:x".into(),
    ] {
        let server = Server::start(move |_| {
            events(
                format!("event: endpoint\ndata: {endpoint}\n\n"),
                StreamEnd::StayOpen,
            )
        })
        .await;
        assert_eq!(
            open(&server, |_| {}).await.unwrap_err(),
            UpstreamError::Unreachable {
                reason: "its endpoint has another origin"
            }
        );
    }
    assert!(elsewhere.received_requests().is_empty());
}

#[tokio::test]
async fn a_server_without_an_event_stream_cannot_be_reached() {
    let server = Server::start(|_: &ReceivedRequest| status(404)).await;
    assert_eq!(
        open(&server, |_| {}).await.unwrap_err(),
        UpstreamError::Unreachable {
            reason: "no event stream"
        }
    );
}

#[tokio::test]
async fn an_endless_event_ends_the_connection() {
    let server = Server::start(|_| {
        let part = format!("data: {}\n", "x".repeat(10_000));
        let text = format!("event: endpoint\ndata: /m\n\n{}", part.repeat(20));
        events(text, StreamEnd::StayOpen)
    })
    .await;
    let connection = open(&server, |config| config.max_message_bytes = 50_000)
        .await
        .unwrap();
    assert_eq!(
        connection.event().await.unwrap_lost(),
        UpstreamError::TooLarge { limit: 50_000 }
    );
}

#[tokio::test]
async fn a_refused_request_is_reported() {
    let server = Server::start(|asked| {
        if asked.method == Method::GET {
            events("event: endpoint\ndata: m\n\n", StreamEnd::StayOpen)
        } else {
            status(500)
        }
    })
    .await;
    let connection = open(&server, |_| {}).await.unwrap();
    connection.send(&call(1)).await.unwrap();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::Status { status: 500 })
    );
    assert_eq!(server.received_requests().last().unwrap().path, "/m");
}
