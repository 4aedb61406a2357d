//! Connections that send nothing.

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::server::{HEAD_WITHIN, MAX_CONNECTIONS, serve};

#[tokio::test]
async fn silent_connections_are_closed_after_a_timeout() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stop = CancellationToken::new();
    let parts = scene::parts(scene::health(), None);
    let serving = serve(listener, ControlConfig::default(), parts, stop.clone());
    let serving = tokio::spawn(serving);
    let mut silent = Vec::new();
    for _ in 0..MAX_CONNECTIONS {
        silent.push(TcpStream::connect(address).await.unwrap());
    }
    let mut late = TcpStream::connect(address).await.unwrap();
    late.write_all(b"GET /health HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        .await
        .unwrap();
    let mut begin = [0; 12];
    let answered = tokio::time::timeout(HEAD_WITHIN * 3, late.read_exact(&mut begin)).await;
    answered.unwrap().unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    stop.cancel();
    let ended = tokio::time::timeout(HEAD_WITHIN, serving).await;
    ended.unwrap().unwrap();
}
