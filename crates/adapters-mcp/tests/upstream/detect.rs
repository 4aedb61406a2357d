//! Detection of the HTTP transport of a server.

use axum::http::Method;
use riglm_ports::upstream::UpstreamError;

use crate::sse::legacy;
use crate::support::{
    Connection, INITIALIZE, INITIALIZED, ReceivedRequest, Server, call, handshake, json, number,
    open_initialized, result, status, url_connector,
};

fn count(server: &Server, fits: impl Fn(&ReceivedRequest) -> bool) -> usize {
    server
        .received_requests()
        .iter()
        .filter(|asked| fits(asked))
        .count()
}

#[tokio::test]
async fn servers_refusing_the_first_post_use_http_sse() {
    for code in [400, 404, 405, 406, 415] {
        let server = legacy(code).await;
        let upstream = url_connector(&server.url("/sse"), |_| {});
        for id in 1..=3 {
            let connection = Connection::open(upstream.as_ref()).await.unwrap();
            connection
                .send(&INITIALIZE.replace("\"id\":0", &format!("\"id\":{id}")))
                .await
                .unwrap();
            connection.send(INITIALIZED).await.unwrap();
            assert_eq!(connection.event().await.text(), result(id));
            connection.send(&call(9)).await.unwrap();
            assert_eq!(connection.event().await.text(), result(9));
            connection.close().await;
            assert!(connection.rest().await.is_empty());
        }
        let is_trial =
            |asked: &ReceivedRequest| asked.path == "/sse" && asked.method == Method::POST;
        assert_eq!(count(&server, is_trial), 1);
    }
}

#[tokio::test]
async fn servers_answering_the_first_post_use_streamable_http() {
    let server = Server::start(|asked| match asked.method {
        Method::POST => handshake(asked).unwrap_or_else(|| json(result(asked.id()))),
        _ => status(405),
    })
    .await;
    let upstream = url_connector(&server.url("/mcp"), |_| {});
    for _ in 0..2 {
        let connection = open_initialized(upstream.as_ref()).await;
        connection.send(&call(1)).await.unwrap();
        assert_eq!(connection.event().await.text(), result(1));
        connection.close().await;
        assert!(connection.rest().await.is_empty());
    }
    assert_eq!(count(&server, |asked| asked.method == Method::DELETE), 2);
}

#[tokio::test]
async fn json_rpc_errors_cause_no_http_sse_fallback() {
    let server = Server::start(|asked| {
        assert_eq!(asked.method, Method::POST);
        let mut response =
            json(r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"v"}}"#);
        *response.status_mut() = axum::http::StatusCode::BAD_REQUEST;
        response
    })
    .await;
    let upstream = url_connector(&server.url("/mcp"), |_| {});
    let connection = Connection::open(upstream.as_ref()).await.unwrap();
    connection.send(INITIALIZE).await.unwrap();
    assert!(connection.event().await.text().contains("-32602"));
}

#[tokio::test]
async fn servers_of_unknown_transport_are_reported_and_retried() {
    let server = Server::start(|_| status(404)).await;
    let upstream = url_connector(&server.url("/mcp"), |_| {});
    let connection = Connection::open(upstream.as_ref()).await.unwrap();
    for _ in 0..2 {
        connection.send(INITIALIZE).await.unwrap();
        assert_eq!(
            connection.event().await.unwrap_unanswered(),
            (number(0), UpstreamError::Status { status: 404 })
        );
    }
    assert_eq!(count(&server, |asked| asked.method == Method::GET), 2);
    connection.close().await;
}
