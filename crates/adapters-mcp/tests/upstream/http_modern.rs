//! Streamable HTTP of revision 2026-07-28: no handshake, no session, no resumption.

use axum::body::{Body, Bytes};
use axum::http::{Method, header};
use axum::response::Response;
use futures_util::stream;
use riglm_domain::mcp::message::ParamHeader;
use riglm_ports::upstream::{SendOutcome, UpstreamError};
use tokio_util::sync::CancellationToken;

use crate::support::{
    Connection, Event, INITIALIZE, INITIALIZED, ReceivedRequest, Server, StreamEnd, call, events,
    handshake, json, message, number, result, status, url_connector,
};

const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;

/// Returns a modern request with these members in its `params`.
pub(crate) fn modern(id: u32, method: &str, members: &str) -> String {
    let comma = if members.is_empty() { "" } else { "," };
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"{method}","params":{{{members}{comma}{META}}}}}"#
    )
}

fn cancelled_notification(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{id}}}}}"#
    )
}

fn answering(code: u16, body: &str) -> Response {
    let mut response = json(body);
    *response.status_mut() = code.try_into().unwrap();
    response
}

async fn open(server: &Server) -> Connection {
    let upstream = url_connector(&server.url("/mcp"), |_| {});
    Connection::open(upstream.as_ref()).await.unwrap()
}

async fn plain() -> Server {
    Server::start(|asked| {
        if asked.body.contains("\"id\":") {
            json(result(asked.id()))
        } else {
            status(202)
        }
    })
    .await
}

/// Returns a stream that cancels `closed` when its reader closes it.
fn watched_stream(text: String, closed: &CancellationToken) -> Response {
    let guard = closed.clone().drop_guard();
    let parts = stream::unfold((Some(text), guard), |(text, guard)| async {
        match text {
            Some(text) => Some((Ok::<_, std::io::Error>(Bytes::from(text)), (None, guard))),
            None => std::future::pending().await,
        }
    });
    Response::builder()
        .header(header::CONTENT_TYPE, "text/event-stream")
        .body(Body::from_stream(parts))
        .unwrap()
}

#[tokio::test]
async fn headers_repeat_the_body_and_name_no_session() {
    let server = Server::start(|asked| {
        let mut response = json(result(asked.id()));
        response
            .headers_mut()
            .insert("mcp-session-id", "s1".parse().unwrap());
        response
    })
    .await;
    let connection = open(&server).await;
    let requests = [
        ("server/discover", "", ""),
        ("tools/call", r#""name":"a tool""#, "a tool"),
        ("prompts/get", r#""name":"p""#, "p"),
        ("resources/read", r#""uri":"file:///a""#, "file:///a"),
        ("tasks/get", r#""taskId":"t1""#, "t1"),
        ("tasks/update", r#""taskId":"t2""#, "t2"),
        ("tasks/cancel", r#""taskId":"t3""#, "t3"),
        ("tools/call", r#""name":" h\u00e9 ""#, "=?base64?IGjDqSA=?="),
    ];
    for (id, (method, members, name)) in (1..).zip(requests) {
        let request = modern(id, method, members);
        connection.send(&request).await.unwrap();
        let event = connection.event().await;
        assert_eq!(event.text(), result(id));
        assert_eq!(event.related_request(), Some(&number(id)));
        let asked = server.received_requests().pop().unwrap();
        assert_eq!(asked.body, request);
        assert_eq!(asked.header("mcp-method"), method);
        assert_eq!(asked.header("mcp-name"), name);
        assert_eq!(asked.header("mcp-protocol-version"), "2026-07-28");
        assert_eq!(
            asked.header("accept"),
            "application/json, text/event-stream"
        );
        assert_eq!(asked.header("content-type"), "application/json");
        assert_eq!(asked.header("mcp-session-id"), "");
    }
    connection.close().await;
    let is_post = |asked: &ReceivedRequest| asked.method == Method::POST;
    assert!(
        server.received_requests().iter().all(is_post),
        "{:?}",
        server.received_requests()
    );
}

#[tokio::test]
async fn headers_of_arguments_are_sent_as_they_are_given() {
    let server = plain().await;
    let connection = open(&server).await;
    let given: Vec<ParamHeader> = vec![
        ("Mcp-Param-Region".into(), "us-west1".into()),
        (
            "Mcp-Param-Greeting".into(),
            "=?base64?SGVsbG8sIOS4lueVjA==?=".into(),
        ),
        ("Authorization".into(), "Bearer of-the-client".into()),
    ];
    let request = message(&modern(1, "tools/call", r#""name":"n""#)).with_param_headers(given);
    let SendOutcome::UnderWay(exchange) = connection.link.send(request).await.unwrap() else {
        panic!("it has an exchange of its own");
    };
    exchange.run.await;
    assert_eq!(connection.event().await.text(), result(1));
    let asked = server.received_requests().pop().unwrap();
    assert_eq!(asked.header("mcp-param-region"), "us-west1");
    assert_eq!(
        asked.header("mcp-param-greeting"),
        "=?base64?SGVsbG8sIOS4lueVjA==?="
    );
    assert_eq!(asked.header("authorization"), "");
}

#[tokio::test]
async fn json_rpc_errors_are_answers_with_any_http_status() {
    const NO_METHOD: &str =
        r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32601,"message":"Method not found"}}"#;
    const VERSION: &str = r#"{"jsonrpc":"2.0","id":2,"error":{"code":-32022,"message":"v","data":{"supported":["2027-01-01"],"n":1.0}}}"#;
    const INTERNAL: &str = r#"{"jsonrpc":"2.0","id":3,"error":{"code":-32603,"message":"i"}}"#;
    const NOT_ALLOWED: &str = r#"{"jsonrpc":"2.0","id":4,"error":{"code":1,"message":"f"}}"#;
    let server = Server::start(|asked| match asked.id().as_str() {
        "1" => answering(404, NO_METHOD),
        "2" => answering(400, VERSION),
        "3" => answering(500, INTERNAL),
        "4" => answering(403, NOT_ALLOWED),
        _ => answering(
            400,
            r#"{"jsonrpc":"2.0","error":{"code":-32020,"message":"h"}}"#,
        ),
    })
    .await;
    let connection = open(&server).await;
    for (id, answer) in [
        (1, NO_METHOD),
        (2, VERSION),
        (3, INTERNAL),
        (4, NOT_ALLOWED),
        (
            5,
            r#"{"jsonrpc":"2.0","id":5,"error":{"code":-32020,"message":"h"}}"#,
        ),
    ] {
        connection.send(&modern(id, "x/y", "")).await.unwrap();
        assert_eq!(connection.event().await.text(), answer);
    }
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}

#[tokio::test]
async fn an_error_status_alone_leaves_the_request_unanswered() {
    let server = Server::start(|asked| match asked.id().as_str() {
        "1" => json(result(1)),
        "2" => status(404),
        "3" => answering(404, r#"{"error":"no such page"}"#),
        "4" => status(503),
        _ => status(401),
    })
    .await;
    let connection = open(&server).await;
    connection.send(&modern(1, "a", "")).await.unwrap();
    assert_eq!(connection.event().await.text(), result(1));
    let unauthorized = UpstreamError::Unauthorized {
        reason: "the server answered with HTTP status 401".into(),
    };
    for (id, error) in [
        (2, UpstreamError::Status { status: 404 }),
        (3, UpstreamError::Status { status: 404 }),
        (4, UpstreamError::Status { status: 503 }),
        (5, unauthorized),
    ] {
        connection.send(&modern(id, "a", "")).await.unwrap();
        assert_eq!(
            connection.event().await.unwrap_unanswered(),
            (number(id), error)
        );
    }
}

#[tokio::test]
async fn listen_stream_events_are_related_to_their_request() {
    let acknowledged = r#"{"jsonrpc":"2.0","method":"notifications/subscriptions/acknowledged","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#;
    let changed = r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}}"#;
    let server = Server::start(move |asked| {
        if asked.is_post_of("subscriptions/listen") {
            let text = format!("data: {acknowledged}\n\n:\n\n: alive\n\ndata: {changed}\n\n");
            return events(text, StreamEnd::End);
        }
        json(result(asked.id()))
    })
    .await;
    let connection = open(&server).await;
    connection
        .send(&modern(7, "subscriptions/listen", r#""notifications":{}"#))
        .await
        .unwrap();
    for expected in [acknowledged, changed] {
        let event = connection.event().await;
        assert_eq!(event.text(), expected);
        assert_eq!(event.related_request(), Some(&number(7)));
    }
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(7), UpstreamError::NoAnswer)
    );
}

#[tokio::test]
async fn broken_streams_are_not_resumed() {
    let server = Server::start(|asked| {
        assert_eq!(asked.method, Method::POST);
        let text = "id: 1\nretry: 20\ndata: {\"method\":\"notifications/progress\"}\n\n";
        events(text, StreamEnd::Break)
    })
    .await;
    let connection = open(&server).await;
    connection.send(&modern(1, "tools/call", "")).await.unwrap();
    connection.event().await.text();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::NoAnswer)
    );
    connection.close().await;
    assert_eq!(server.received_requests().len(), 1);
}

#[tokio::test]
async fn cancelled_streams_are_closed_without_messages_to_either_side() {
    let closed = CancellationToken::new();
    let watch = closed.clone();
    let server = Server::start(move |asked| {
        if asked.id() == "1" {
            return watched_stream("data: {\"method\":\"one\"}\n\n".into(), &watch);
        }
        json(result(asked.id()))
    })
    .await;
    let connection = open(&server).await;
    connection
        .send(&modern(1, "subscriptions/listen", ""))
        .await
        .unwrap();
    assert_eq!(connection.event().await.text(), r#"{"method":"one"}"#);
    connection.send(&cancelled_notification(1)).await.unwrap();
    tokio::time::timeout(crate::support::DEADLINE, closed.cancelled())
        .await
        .expect("the server never notices");
    connection.send(&cancelled_notification(1)).await.unwrap();
    connection.send(&modern(2, "tools/list", "")).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
    connection.close().await;
    assert!(connection.rest().await.is_empty());
    let posts: Vec<String> = server
        .received_requests()
        .iter()
        .map(ReceivedRequest::id)
        .collect();
    assert_eq!(posts, ["1", "2"]);
}

#[tokio::test]
async fn requests_cancelled_before_an_answer_are_dropped() {
    let server = Server::start(|asked| match asked.id().as_str() {
        "1" => events("", StreamEnd::StayOpen),
        _ => json(result(asked.id())),
    })
    .await;
    let connection = open(&server).await;
    let request = message(&modern(1, "tools/call", ""));
    let SendOutcome::UnderWay(exchange) = connection.link.send(request).await.unwrap() else {
        panic!("it has an exchange of its own");
    };
    connection.send(&cancelled_notification(1)).await.unwrap();
    exchange.run.await;
    connection.send(&modern(2, "tools/call", "")).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
    assert_eq!(server.received_requests().len(), 1);
}

#[tokio::test]
async fn other_notifications_are_posted_by_the_same_rules() {
    let server = plain().await;
    let connection = open(&server).await;
    let named = format!(r#"{{"method":"notifications/x","params":{{{META}}}}}"#);
    connection.send(&named).await.unwrap();
    connection.send(&modern(1, "tools/list", "")).await.unwrap();
    connection.event().await;
    connection
        .send(r#"{"method":"notifications/y"}"#)
        .await
        .unwrap();
    let asked = server.received_requests();
    let headers: Vec<_> = asked
        .iter()
        .map(|asked| {
            (
                asked.header("mcp-method"),
                asked.header("mcp-protocol-version"),
            )
        })
        .collect();
    assert_eq!(
        headers,
        [
            ("notifications/x", "2026-07-28"),
            ("tools/list", "2026-07-28"),
            ("notifications/y", "2026-07-28")
        ]
    );
}

#[tokio::test]
async fn clients_can_fall_back_to_a_handshake() {
    let server = Server::start(|asked| match asked {
        asked if asked.is_post_of("server/discover") => status(400),
        asked if asked.method != Method::POST => status(405),
        asked => handshake(asked).unwrap_or_else(|| json(result(asked.id()))),
    })
    .await;
    let upstream = url_connector(&server.url("/mcp"), |_| {});
    // With an unknown transport, a bare 400 would count as a sign of HTTP+SSE.
    let first = crate::support::open_initialized(upstream.as_ref()).await;
    first.close().await;
    let connection = Connection::open(upstream.as_ref()).await.unwrap();
    connection
        .send(&modern(1, "server/discover", ""))
        .await
        .unwrap();
    assert_eq!(
        connection.event().await.unwrap_unanswered(),
        (number(1), UpstreamError::Status { status: 400 })
    );
    connection.send(INITIALIZE).await.unwrap();
    assert!(matches!(connection.event().await, Event::Received(..)));
    connection.send(INITIALIZED).await.unwrap();
    connection.send(&call(2)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
    let asked = server.wait_for_request(|asked| asked.body == call(2)).await;
    let header = |name| asked.header(name);
    assert_eq!(header("mcp-session-id"), "s1");
    assert_eq!(header("mcp-protocol-version"), "2025-06-18");
    assert_eq!(header("mcp-method"), "");
    connection.send(&cancelled_notification(2)).await.unwrap();
    server
        .wait_for_request(|asked| asked.is_post_of("notifications/cancelled"))
        .await;
    connection.close().await;
    let is_delete = |asked: &ReceivedRequest| asked.method == Method::DELETE;
    assert_eq!(
        server
            .received_requests()
            .iter()
            .filter(|asked| is_delete(asked))
            .count(),
        2
    );
}

#[tokio::test]
async fn modern_answers_settle_the_transport() {
    const VERSION: &str = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32022,"message":"v"}}"#;
    let server = Server::start(|asked| {
        assert_eq!(asked.method, Method::POST);
        answering(400, VERSION)
    })
    .await;
    let connection = open(&server).await;
    for _ in 0..2 {
        connection
            .send(&modern(1, "server/discover", ""))
            .await
            .unwrap();
        assert_eq!(connection.event().await.text(), VERSION);
    }
}

#[tokio::test]
async fn modern_requests_detect_http_sse_servers_too() {
    let server = crate::sse::legacy(405).await;
    let upstream = url_connector(&server.url("/sse"), |_| {});
    let connection = Connection::open(upstream.as_ref()).await.unwrap();
    connection
        .send(&modern(1, "server/discover", ""))
        .await
        .unwrap();
    assert_eq!(connection.event().await.text(), result(1));
    let is_trial = |asked: &ReceivedRequest| asked.path == "/sse" && asked.method == Method::POST;
    let trials = server.received_requests().into_iter().filter(is_trial);
    assert_eq!(trials.count(), 1);
}

#[tokio::test]
async fn requests_succeed_after_a_cancelled_first_request() {
    let server = Server::start(|asked| match asked.id().as_str() {
        "1" => events(": alive\n\n", StreamEnd::StayOpen),
        _ => json(result(asked.id())),
    })
    .await;
    let connection = open(&server).await;
    connection.send(&modern(1, "tools/call", "")).await.unwrap();
    connection.send(&cancelled_notification(1)).await.unwrap();
    connection.send(&modern(2, "tools/call", "")).await.unwrap();
    assert_eq!(connection.event().await.text(), result(2));
    connection.close().await;
    assert!(connection.rest().await.is_empty());
}
