//! Streamable HTTP: messages, headers, statuses.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use axum::http::{Method, header};
use axum::response::Response;
use riglm_adapters_mcp::upstream::{UpstreamConfig, UpstreamCredentials, connector};
use riglm_ports::upstream::UpstreamError;
use tokio::net::TcpListener;

use crate::support::{
    Connection, INITIALIZE, INITIALIZED, ReceivedRequest, Server, StreamEnd, call, events,
    handshake, json, message, name, number, open_initialized, result, status, url_connector,
};

/// A server with a session that responds to every request with an empty result.
fn plain(asked: &ReceivedRequest) -> Response {
    if asked.method == Method::POST {
        handshake(asked).unwrap_or_else(|| {
            if asked.body.contains("\"id\":") {
                json(result(asked.id()))
            } else {
                status(202)
            }
        })
    } else {
        status(405)
    }
}

fn with_status(code: u16, mut response: Response) -> Response {
    *response.status_mut() = code.try_into().unwrap();
    response
}

async fn open(server: &Server) -> Connection {
    open_initialized(url_connector(&server.url("/mcp"), |_| {}).as_ref()).await
}

#[tokio::test]
async fn an_answer_comes_back_with_the_bytes_it_was_sent_with() {
    const ANSWER: &str =
        r#"{ "result":{"n":1.0e3,"x":18446744073709551616},"id":1 , "jsonrpc":"2.0"}"#;
    let server = Server::start(|asked| handshake(asked).unwrap_or_else(|| json(ANSWER))).await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    let event = connection.event().await;
    assert_eq!(event.text(), ANSWER);
    assert_eq!(event.related_request(), Some(&number(1)));
    assert_eq!(server.received_requests().last().unwrap().body, call(1));
    connection.close().await;
}

#[tokio::test]
async fn session_and_revision_are_sent_back_once_they_are_known() {
    let server = Server::start(plain).await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    connection.event().await;

    let asked = server.received_requests();
    let posts: Vec<&ReceivedRequest> = asked
        .iter()
        .filter(|asked| asked.method == Method::POST)
        .collect();
    let known = |asked: &ReceivedRequest| {
        (
            asked.header("mcp-session-id").to_owned(),
            asked.header("mcp-protocol-version").to_owned(),
        )
    };
    assert_eq!(known(posts[0]), (String::new(), String::new()));
    assert_eq!(known(posts[1]), ("s1".into(), "2025-06-18".into()));
    assert_eq!(known(posts[2]), ("s1".into(), "2025-06-18".into()));
    for post in posts {
        assert_eq!(post.header("accept"), "application/json, text/event-stream");
        assert_eq!(post.header("content-type"), "application/json");
        assert_eq!(post.header("content-length"), post.body.len().to_string());
    }
}

#[tokio::test]
async fn configured_headers_and_credentials_go_with_every_request() {
    let server = Server::start(plain).await;
    let upstream = url_connector(&server.url("/mcp"), |config| {
        config.headers.insert("X-Team".into(), "blue".into());
        config.credentials = Some(UpstreamCredentials::bearer("marker".into()));
    });
    let connection = open_initialized(upstream.as_ref()).await;
    server
        .wait_for_request(|asked| asked.method == Method::GET)
        .await;
    connection.close().await;
    assert_eq!(server.received_requests().len(), 4);
    for asked in server.received_requests() {
        assert_eq!(asked.header("authorization"), "Bearer marker");
        assert_eq!(asked.header("x-team"), "blue");
    }
    assert!(!format!("{upstream:?} {connection:?}").contains("marker"));
}

#[tokio::test]
async fn messages_arrive_in_the_order_they_were_sent_in() {
    let server = Server::start(plain).await;
    let connection = open(&server).await;
    for id in 1..=50 {
        connection.send(&call(id)).await.unwrap();
        let notification = format!(r#"{{"method":"after","params":{id}}}"#);
        connection.send(&notification).await.unwrap();
        connection.event().await;
    }
    let order: Vec<bool> = server
        .received_requests()
        .iter()
        .filter(|asked| asked.body.contains("after") || asked.body.contains("tools/call"))
        .map(|asked| asked.body.contains("after"))
        .collect();
    assert_eq!(order, [false, true].repeat(50));
}

#[tokio::test]
async fn a_large_message_passes_in_both_directions() {
    let server = Server::start(|asked| {
        handshake(asked).unwrap_or_else(|| {
            let text = message(&asked.body);
            let params = text.params(text.single().unwrap()).unwrap().to_owned();
            json(format!(r#"{{"id":{},"result":{params}}}"#, asked.id()))
        })
    })
    .await;
    let connection = open(&server).await;
    let body = "x".repeat(1024 * 1024);
    connection
        .send(&format!(r#"{{"id":1,"method":"m","params":"{body}"}}"#))
        .await
        .unwrap();
    let event = connection.event().await;
    assert!(
        event.text() == format!(r#"{{"id":1,"result":"{body}"}}"#),
        "it was changed"
    );
}

#[tokio::test]
async fn oversized_answers_fail_only_their_request() {
    let server = Server::start(|asked| match asked.body.as_str() {
        body if body == call(1) => json(format!(r#"{{"id":1,"result":"{:05000}"}}"#, 0)),
        _ => plain(asked),
    })
    .await;
    let upstream = url_connector(&server.url("/mcp"), |config| {
        config.max_message_bytes = 2_000;
    });
    let connection = open_initialized(upstream.as_ref()).await;
    connection.send(&call(1)).await.unwrap();
    let too_large = UpstreamError::TooLarge { limit: 2_000 };
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), too_large)
    );
    connection.send(&call(2)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
}

#[tokio::test]
async fn unreachable_servers_are_detected_immediately() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let upstream = url_connector(&format!("http://{address}/mcp"), |_| {});
    let connection = Connection::open(upstream.as_ref()).await.unwrap();
    let asked_at = Instant::now();
    connection.send(INITIALIZE).await.unwrap();
    let refused = UpstreamError::Unreachable {
        reason: "connection refused",
    };
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(0), refused.clone())
    );
    assert_eq!(connection.send(INITIALIZED).await, Err(refused));
    assert!(
        asked_at.elapsed() < Duration::from_millis(500),
        "{:?}",
        asked_at.elapsed()
    );
    connection.close().await;
}

#[tokio::test]
async fn expired_sessions_are_reported_for_every_message_kind() {
    let server = Server::start(|asked| {
        let session_is_over = with_status(
            404,
            json(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32001}}"#),
        );
        match asked.header("mcp-session-id") {
            "" => plain(asked),
            _ if asked.body == INITIALIZED => status(202),
            _ => session_is_over,
        }
    })
    .await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::SessionExpired)
    );
    assert_eq!(
        connection
            .send(r#"{"method":"notifications/roots/list_changed"}"#)
            .await,
        Err(UpstreamError::SessionExpired)
    );
}

#[tokio::test]
async fn connections_can_be_reinitialized_after_session_expiry() {
    let n_sessions = AtomicUsize::new(0);
    let server = Server::start(move |asked| {
        if asked.is_post_of("initialize") {
            assert_eq!(asked.header("mcp-session-id"), "");
            assert_eq!(asked.header("mcp-protocol-version"), "");
            let mut response = handshake(asked).unwrap();
            let id = format!("s{}", n_sessions.fetch_add(1, Ordering::Relaxed));
            response
                .headers_mut()
                .insert("mcp-session-id", id.parse().unwrap());
            return response;
        }
        match asked.header("mcp-session-id") {
            "s0" if asked.body == call(1) => status(404),
            _ => plain(asked),
        }
    })
    .await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::SessionExpired)
    );
    connection.send(INITIALIZE).await.unwrap();
    connection.event().await;
    connection.send(INITIALIZED).await.unwrap();
    let of_new_session = |asked: &ReceivedRequest| {
        asked.method == Method::GET && asked.header("mcp-session-id") == "s1"
    };
    server.wait_for_request(of_new_session).await;
    connection.send(&call(1)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(1));
}

#[tokio::test]
async fn an_error_status_with_a_json_rpc_error_is_an_answer() {
    let server = Server::start(|asked| match asked.body.as_str() {
        body if body == call(1) => with_status(
            400,
            json(r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"no"}}"#),
        ),
        _ => plain(asked),
    })
    .await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    let event = connection.event().await;
    assert_eq!(
        event.text(),
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32600,"message":"no"}}"#
    );
    assert_eq!(event.related_request(), Some(&number(1)));
}

#[tokio::test]
async fn invalid_responses_have_fixed_error_texts() {
    let server = Server::start(|asked| match asked.body.as_str() {
        body if body == call(1) => with_status(401, json(r#"{"error":"invalid_token"}"#)),
        body if body == call(2) => with_status(500, json("secret of the server")),
        body if body == call(3) => json("not json"),
        body if body == call(4) => Response::builder()
            .header(header::CONTENT_TYPE, "text/html")
            .body("<html>".into())
            .unwrap(),
        body if body == call(5) => status(202),
        body if body == call(6) => json(result(66)),
        _ => plain(asked),
    })
    .await;
    let connection = open(&server).await;
    let garbled = |reason| UpstreamError::Garbled { reason };
    for (id, error) in [
        (
            1,
            UpstreamError::Unauthorized {
                reason: "the server answered with HTTP status 401".into(),
            },
        ),
        (2, UpstreamError::Status { status: 500 }),
        (3, garbled("not JSON")),
        (4, garbled("neither JSON nor an event stream")),
        (5, UpstreamError::NoAnswer),
    ] {
        connection.send(&call(id)).await.unwrap();
        assert_eq!(
            connection.event().await.unwrap_unanswered(),
            (number(id), error)
        );
    }
    connection.send(&call(6)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(66));
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(6), UpstreamError::NoAnswer)
    );
}

#[tokio::test]
async fn several_messages_in_one_body_of_json_are_reported_each() {
    let progress = r#"{"method":"notifications/progress" , "params":{"n":1.0}}"#;
    let server = Server::start(move |asked| match asked.body.as_str() {
        body if body == call(1) => json(format!("{progress}\n{}\n", result(1))),
        body if body == call(2) => json(format!("{progress}{}", result(2))),
        body if body == call(3) => json(format!("{{\"x\":1}}\n{}", result(3))),
        body if body == call(4) => json(progress),
        _ => plain(asked),
    })
    .await;
    let connection = open(&server).await;
    for id in [1, 2] {
        connection.send(&call(id)).await.unwrap();
        let event = connection.event().await;
        assert_eq!(event.text(), progress);
        assert_eq!(event.related_request(), Some(&number(id)));
        assert_eq!(connection.event().await.text(), result(id));
    }
    // Invalid messages are skipped, and the others are received.
    connection.send(&call(3)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(3));
    connection.send(&call(4)).await.unwrap();
    assert_eq!(connection.event().await.text(), progress);
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(4), UpstreamError::NoAnswer)
    );
}

#[tokio::test]
async fn untyped_bodies_are_recognized_by_their_beginning() {
    let untyped = |body: String| Response::new(body.into());
    let server = Server::start(move |asked| match asked.body.as_str() {
        body if body == call(1) => untyped(format!("\n {}", result(1))),
        body if body == call(2) => untyped(format!(": hello\n\ndata: {}\n\n", result(2))),
        body if body == call(3) => untyped(format!("\nid: 7\ndata: {}\n\n", result(3))),
        body if body == call(4) => untyped(format!("\u{1e}{}\n", result(4))),
        body if body == call(5) => untyped("<html>".into()),
        body if body == call(6) => untyped(String::new()),
        _ => plain(asked),
    })
    .await;
    let connection = open(&server).await;
    for id in 1..=4 {
        connection.send(&call(id)).await.unwrap();
        assert_eq!(connection.event().await.text(), result(id));
    }
    for id in [5, 6] {
        connection.send(&call(id)).await.unwrap();
        let (request, error) = connection.event().await.unwrap_unanswered();
        assert_eq!(request, number(id));
        assert!(matches!(error, UpstreamError::Garbled { .. }), "{error:?}");
    }
}

/// Returns a body that starts with `first` and stays open.
fn open_body(content_type: &str, first: String) -> Response {
    let body = futures_util::stream::once(async move { Ok::<_, std::io::Error>(first) });
    let body = futures_util::StreamExt::chain(body, futures_util::stream::pending());
    Response::builder()
        .header(header::CONTENT_TYPE, content_type)
        .body(axum::body::Body::from_stream(body))
        .unwrap()
}

#[tokio::test]
async fn messages_are_reported_before_their_body_ends() {
    let server = Server::start(|asked| match asked.body.as_str() {
        body if body == call(1) => open_body("application/json", result(1)),
        body if body == call(2) => open_body("application/x-ndjson", result(2) + "\n{\"id"),
        body if body == call(3) => open_body("text/event-stream;charset=latin1", {
            format!("data:{}\n\n", result(3))
        }),
        body if body == call(4) => open_body(
            "application/json",
            format!(r#"{{"id":4,"result":"{:05000}"#, 0),
        ),
        _ => plain(asked),
    })
    .await;
    let upstream = url_connector(&server.url("/mcp"), |config| {
        config.max_message_bytes = 2_000;
    });
    let connection = open_initialized(upstream.as_ref()).await;
    for id in 1..=3 {
        connection.send(&call(id)).await.unwrap();
        assert_eq!(connection.event().await.text(), result(id));
    }
    connection.send(&call(4)).await.unwrap();
    let too_large = UpstreamError::TooLarge { limit: 2_000 };
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(4), too_large)
    );
}

#[tokio::test]
async fn a_batch_is_one_exchange_for_all_its_requests() {
    let batch = format!("[{},{},{}]", call(1), call(2), call(3));
    let expected = batch.clone();
    let server = Server::start(move |asked| match asked.body.as_str() {
        body if body == expected => json(format!("[{},{}]", result(2), result(1))),
        _ => plain(asked),
    })
    .await;
    let connection = open(&server).await;
    connection.send(&batch).await.unwrap();
    let event = connection.event().await;
    assert_eq!(event.text(), format!("[{},{}]", result(2), result(1)));
    assert_eq!(event.related_request(), Some(&number(1)));
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(3), UpstreamError::NoAnswer)
    );
}

#[tokio::test]
async fn only_same_origin_redirects_preserving_the_method_are_followed() {
    let elsewhere = Server::start(plain).await;
    let target = elsewhere.url("/mcp");
    let server = Server::start(move |asked| {
        let (code, location) = match asked.path.as_str() {
            "/near" => (307, "/mcp"),
            "/far" => (307, target.as_str()),
            "/changed" => (302, "/mcp"),
            "/loop" => (308, "/loop"),
            _ => return plain(asked),
        };
        let mut response = status(code);
        response
            .headers_mut()
            .insert(header::LOCATION, location.parse().unwrap());
        response
    })
    .await;

    let near = open_initialized(url_connector(&server.url("/near"), |_| {}).as_ref()).await;
    near.send(&call(1)).await.unwrap();
    assert_eq!(near.event().await.text(), result(1));
    for (path, code) in [("/far", 307), ("/changed", 302), ("/loop", 308)] {
        let upstream = url_connector(&server.url(path), |_| {});
        let connection = Connection::open(upstream.as_ref()).await.unwrap();
        connection.send(INITIALIZE).await.unwrap();
        assert_eq!(
            connection.event().await.unwrap_unanswered(),
            (number(0), UpstreamError::Status { status: code })
        );
    }
    assert!(elsewhere.received_requests().is_empty());
}

#[tokio::test]
async fn closing_ends_open_streams_and_the_session() {
    let server = Server::start(|asked| match asked.body.as_str() {
        body if body == call(1) => events(": open\n\n", StreamEnd::StayOpen),
        _ => plain(asked),
    })
    .await;
    let connection = open(&server).await;
    connection.send(&call(1)).await.unwrap();
    server.wait_for_request(|asked| asked.body == call(1)).await;
    connection.close().await;
    connection.close().await;
    let deletes: Vec<ReceivedRequest> = server
        .received_requests()
        .into_iter()
        .filter(|asked| asked.method == Method::DELETE)
        .collect();
    assert_eq!(deletes.len(), 1);
    assert_eq!(deletes[0].header("mcp-session-id"), "s1");
    assert!(connection.rest().await.is_empty());
    assert!(matches!(
        connection.send(&call(2)).await,
        Err(UpstreamError::Lost { .. })
    ));
}

#[tokio::test]
async fn dropping_the_sender_does_not_truncate_messages() {
    let server = Server::start(plain).await;
    let connection = open(&server).await;
    let notification = format!(r#"{{"method":"large","params":"{}"}}"#, "x".repeat(500_000));
    let sending = connection.link.send(message(&notification));
    tokio::select! {
        biased;
        _ = sending => panic!("it cannot be done yet"),
        () = std::future::ready(()) => {}
    }
    let arrived = server
        .wait_for_request(|asked| asked.is_post_of("large"))
        .await;
    assert!(arrived.body == notification, "it was cut short");
}

#[test]
fn a_metadata_address_cannot_be_configured() {
    let config = UpstreamConfig {
        url: Some("http://169.254.169.254/latest".into()),
        ..UpstreamConfig::default()
    };
    assert_eq!(
        connector(name(), &config, None, Path::new("/nowhere"))
            .unwrap_err()
            .to_string(),
        "upstream url names an address that is not allowed"
    );
}
