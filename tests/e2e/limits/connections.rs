//! Connections that send nothing, or very slowly.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use http::Method;
use riglm_tests::plain_http;
use riglm_tests::process::free_port;
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::{connect, result};
use crate::odd_over_stdio;

/// Sends the head of a request byte by byte. Returns when the proxy has closed the connection.
async fn send_slowly(address: String) {
    let stream = TcpStream::connect(address).await.unwrap();
    let (mut input, mut output) = stream.into_split();
    let write = async {
        let _ = output
            .write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx: ")
            .await;
        while output.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    let closed = async {
        let mut answer = Vec::new();
        let _ = input.read_to_end(&mut answer).await;
    };
    tokio::select! {
        () = write => {}
        () = closed => {}
    }
}

#[tokio::test]
async fn slow_connections_are_closed_without_blocking_the_control_port() {
    const LIMIT: usize = 8;
    let data = TempDir::new().unwrap();
    let control = format!("127.0.0.1:{}", free_port());
    let options = Options {
        arguments: vec!["--control".into(), control.clone()],
        ..Options::with_configuration(&format!("[limits]\nconnections = {LIMIT}\n"))
    };
    let mut riglm = Riglm::serve(&odd_over_stdio(), data.path(), &options).await;
    let address = riglm.url.authority().to_owned();
    let begun = Instant::now();
    let slow: Vec<_> = (0..LIMIT)
        .map(|_| tokio::spawn(send_slowly(address.clone())))
        .collect();
    let full = |line: &str| line.contains("limits.connections").then_some(());
    // The warning comes with the last allowed connection, or with one more.
    let waiting = TcpStream::connect(&address).await.unwrap();
    riglm
        .process
        .line(Duration::from_secs(10), "that all are taken", full)
        .await;
    let health = format!("http://{control}/health").parse().unwrap();
    let health = plain_http::exchange(Method::GET, &health, &[], "").await;
    assert_eq!(health.unwrap().status, 200);
    drop(waiting);
    // Connections without a complete request are closed after ten seconds, whatever they have sent.
    let client = tokio::time::timeout(Duration::from_secs(50), connect(&riglm, None, "w"));
    let client = client.await.expect("a place becomes free");
    assert!(
        begun.elapsed() >= Duration::from_secs(5),
        "{:?}",
        begun.elapsed()
    );
    result(&client, 1, "empty", "{}").await;
    let ended = tokio::time::timeout(Duration::from_secs(30), join_all(slow)).await;
    assert!(ended.is_ok(), "slow connections stay open");
    assert_eq!(riglm.stop().await, Some(0));
}

/// Sends a request over an open connection and returns the status line of the response.
async fn send(stream: &mut TcpStream, request: &str) -> String {
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut response = Vec::new();
    let mut buffer = [0; 4096];
    loop {
        let n = stream.read(&mut buffer).await.unwrap();
        assert!(n > 0, "the connection was closed");
        response.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8_lossy(&response);
        let Some((head, body)) = text.split_once("\r\n\r\n") else {
            continue;
        };
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            let is_length = name.eq_ignore_ascii_case("content-length");
            is_length.then(|| value.trim().parse::<usize>().unwrap())
        });
        if body.len() >= length.expect("the response has a length") {
            return head.lines().next().unwrap_or_default().into();
        }
    }
}

#[tokio::test]
async fn idle_connections_stay_open_for_the_next_request() {
    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"idle","version":"1"}}}"#;
    let data = TempDir::new().unwrap();
    let mut riglm = Riglm::serve(&odd_over_stdio(), data.path(), &Options::default()).await;
    let address = riglm.url.authority().to_owned();
    let request = |accept: &str| {
        format!(
            "POST /mcp HTTP/1.1\r\nhost: {address}\r\naccept: {accept}\r\n\
             content-type: application/json\r\ncontent-length: {}\r\n\r\n{INITIALIZE}",
            INITIALIZE.len()
        )
    };
    let good = request("application/json, text/event-stream");
    let mut idle = TcpStream::connect(&address).await.unwrap();
    let mut refused = TcpStream::connect(&address).await.unwrap();
    assert_eq!(send(&mut idle, &good).await, "HTTP/1.1 200 OK");
    let refusal = send(&mut refused, &request("text/html")).await;
    assert_eq!(refusal, "HTTP/1.1 406 Not Acceptable");
    tokio::time::sleep(Duration::from_secs(12)).await;
    assert_eq!(send(&mut idle, &good).await, "HTTP/1.1 200 OK");
    let mut rest = [0; 16];
    let closed = tokio::time::timeout(Duration::from_secs(20), refused.read(&mut rest));
    assert_eq!(
        closed.await.expect("a refused client is not kept").unwrap(),
        0
    );
    assert_eq!(riglm.stop().await, Some(0));
}
