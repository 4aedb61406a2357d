//! Credentials that a program prints: presentation, renewal after a refusal, and failures.

use std::path::Path;

use http::Method;
use riglm_adapters_mcp::upstream::UpstreamCredentials;
use riglm_ports::upstream::UpstreamError;
use tempfile::TempDir;

use crate::support::{
    Connection, ReceivedRequest, Server, call, handshake, json, number, result, status,
    url_connector,
};

/// Returns a server that wants the key in a file.
async fn guarded_server(folder: &Path) -> Server {
    let wanted = folder.join("wanted");
    Server::start(move |asked: &ReceivedRequest| {
        if asked.header("x-api-key") != std::fs::read_to_string(&wanted).unwrap() {
            return status(401);
        }
        if asked.method != Method::POST {
            return status(405);
        }
        handshake(asked).unwrap_or_else(|| {
            if asked.body.contains("\"id\":") {
                json(result(asked.id()))
            } else {
                status(202)
            }
        })
    })
    .await
}

/// Returns a connection with the credentials of a shell command that runs in the folder.
async fn open(server: &Server, script: &str) -> Connection {
    let section = serde_json::json!({"type": "command", "command": ["sh", "-c", script],
                                     "timeout": "5s"});
    let credentials: UpstreamCredentials = serde_json::from_value(section).unwrap();
    let upstream = url_connector(&server.url("/mcp"), |config| {
        config.credentials = Some(credentials);
    });
    Connection::open(upstream.as_ref()).await.unwrap()
}

#[tokio::test]
async fn printed_credentials_are_used_until_the_server_refuses_them() {
    let folder = TempDir::new().unwrap();
    let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).unwrap();
    write("wanted", "key-1");
    write("key", "key-1");
    let server = guarded_server(folder.path()).await;
    let script = format!(
        "cd {} && echo run >> runs && echo \"X-Api-Key: $(cat key)\"",
        folder.path().display()
    );
    let runs = || {
        let text = std::fs::read_to_string(folder.path().join("runs")).unwrap_or_default();
        text.lines().count()
    };
    let connection = open(&server, &script).await;
    for id in 1..=3 {
        connection.send(&call(id)).await.unwrap();
        assert_eq!(connection.event().await.text(), result(id));
    }
    assert_eq!(runs(), 1, "the headers are kept");

    write("wanted", "key-2");
    write("key", "key-2");
    connection.send(&call(4)).await.unwrap();
    assert_eq!(connection.event().await.text(), result(4));
    assert_eq!(runs(), 2);

    // Another key does not help, and the program is not run for each request.
    write("wanted", "key-3");
    for id in 5..=6 {
        connection.send(&call(id)).await.unwrap();
        let (request, error) = connection.event().await.unwrap_unanswered();
        assert_eq!(request, number(id));
        assert!(
            matches!(error, UpstreamError::Unauthorized { .. }),
            "{error}"
        );
    }
    assert_eq!(runs(), 2);
}

#[tokio::test]
async fn a_program_that_fails_is_the_reason_of_the_error() {
    let folder = TempDir::new().unwrap();
    std::fs::write(folder.path().join("wanted"), "key-1").unwrap();
    let server = guarded_server(folder.path()).await;
    let connection = open(&server, "echo s3cret; exit 1").await;
    connection.send(&call(1)).await.unwrap();
    let (_, error) = connection.event().await.unwrap_unanswered();
    assert_eq!(
        error,
        UpstreamError::Unauthorized {
            reason: "the program of its credentials failed".into()
        }
    );
    assert!(server.received_requests().is_empty(), "nothing is sent");
}
