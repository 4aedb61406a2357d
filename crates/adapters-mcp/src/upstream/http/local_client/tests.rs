use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::BodyExt as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use super::*;

#[test]
fn only_servers_on_this_machine_are_asked_without_a_general_client() {
    let is_local = |url: &str| {
        let url = Url::parse(url).unwrap();
        LocalClient::new(&url, Duration::from_secs(1)).is_some()
    };
    assert!(is_local("http://127.0.0.1:3000/mcp"));
    assert!(is_local("http://[::1]/mcp?a=b#c"));
    assert!(is_local("http://localhost:3000/"));
    assert!(!is_local("https://localhost:3000/"));
    assert!(!is_local("http://localhost.example/"));
    assert!(!is_local("http://10.0.0.1/mcp"));
    assert!(!is_local("http://user:secret@127.0.0.1/mcp"));
    assert!(!is_local("http://:secret@127.0.0.1/mcp"));
}

/// A server that answers every request with the same bytes.
struct Server {
    client: LocalClient,
    url: Url,
    n_connections: Arc<AtomicUsize>,
}

impl Server {
    /// Starts a server. With `closes` it closes each connection after the first response.
    async fn start(response: &'static str, closes: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/mcp?a=b#c", listener.local_addr().unwrap());
        let url = Url::parse(&url).unwrap();
        let n_connections = Arc::new(AtomicUsize::new(0));
        let n = Arc::clone(&n_connections);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                n.fetch_add(1, Ordering::SeqCst);
                tokio::spawn(answer_all(stream, response, closes));
            }
        });
        Self {
            client: LocalClient::new(&url, Duration::from_secs(1)).unwrap(),
            url,
            n_connections,
        }
    }

    async fn post(&self, text: &'static str) -> Response {
        let body = PostBody::new(Bytes::from_static(text.as_bytes()), None);
        let answered = self
            .client
            .execute(Method::POST, &self.url, HeaderMap::new(), body);
        answered.await.unwrap()
    }

    fn n_connections(&self) -> usize {
        self.n_connections.load(Ordering::SeqCst)
    }
}

/// Answers each request, whose body is `hello`, and checks its head.
async fn answer_all(mut stream: TcpStream, response: &'static str, closes: bool) {
    let mut received = Vec::new();
    let mut buffer = [0; 1024];
    loop {
        let n = stream.read(&mut buffer).await.unwrap_or(0);
        if n == 0 {
            return;
        }
        received.extend_from_slice(&buffer[..n]);
        let text = String::from_utf8(received.clone()).unwrap();
        if !text.ends_with("\r\n\r\nhello") {
            continue;
        }
        let port = stream.local_addr().unwrap();
        assert!(text.starts_with("POST /mcp?a=b HTTP/1.1\r\n"), "{text}");
        assert!(text.contains(&format!("host: {port}\r\n")), "{text}");
        received.clear();
        stream.write_all(response.as_bytes()).await.unwrap();
        if closes {
            return;
        }
    }
}

const HELLO: &str = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nhi";
const EMPTY: &str = "HTTP/1.1 202 Accepted\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
const OPEN: &str = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nhi\r\n";

#[tokio::test]
async fn requests_share_a_connection() {
    let server = Server::start(HELLO, false).await;
    for _ in 0..3 {
        let response = server.post("hello").await;
        assert_eq!(response.url(), &server.url);
        assert_eq!(response.content_length(), Some(2));
        assert_eq!(response.bytes().await.unwrap(), "hi");
    }
    assert_eq!(server.n_connections(), 1);
    let (one, two) = tokio::join!(server.post("hello"), server.post("hello"));
    assert_eq!(one.text().await.unwrap(), two.text().await.unwrap());
    assert_eq!(server.n_connections(), 2);
}

#[tokio::test]
async fn an_empty_body_that_nobody_reads_keeps_the_connection() {
    let server = Server::start(EMPTY, false).await;
    for _ in 0..3 {
        drop(server.post("hello").await);
    }
    assert_eq!(server.n_connections(), 1);
}

#[tokio::test]
async fn a_body_that_goes_on_and_is_dropped_closes_the_connection() {
    let server = Server::start(OPEN, false).await;
    for n in 1..=2 {
        let mut response = server.post("hello").await;
        assert_eq!(response.chunk().await.unwrap().unwrap(), "hi");
        drop(response);
        assert_eq!(server.n_connections(), n);
    }
}

#[tokio::test]
async fn a_request_is_sent_again_if_the_server_has_closed_the_connection() {
    let server = Server::start(HELLO, true).await;
    for n in 1..=3 {
        let response = server.post("hello").await;
        assert_eq!(response.text().await.unwrap(), "hi");
        assert_eq!(server.n_connections(), n);
        // The end of the connection arrives after the response.
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn an_answer_that_ends_early_is_an_error() {
    let server = Server::start("HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nhi", true).await;
    let response = server.post("hello").await;
    assert!(response.bytes().await.is_err());
    let server = Server::start("HTTP/1.1 200", true).await;
    let body = PostBody::new(Bytes::from_static(b"hello"), None);
    let sent = server
        .client
        .execute(Method::POST, &server.url, HeaderMap::new(), body);
    assert!(matches!(sent.await, Err(UpstreamError::Lost { .. })));
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let server = Server::start(HELLO, false).await;
    let body = http::Response::from(server.post("hello").await).into_body();
    assert_eq!(body.collect().await.unwrap().to_bytes(), "hi");
    assert_eq!(server.client.pool.len(), 1);
    tokio::time::pause();
    tokio::time::sleep(Duration::from_secs(5)).await;
    assert_eq!(server.client.pool.len(), 0);
}

#[tokio::test]
async fn a_message_waits_for_a_server_that_begins_to_listen() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let url = Url::parse(&format!("http://{address}/mcp?a=b")).unwrap();
    let post = |patience| {
        let client = LocalClient::new(&url, Duration::from_secs(1)).unwrap();
        let client = client.with_patience(patience);
        let url = url.clone();
        async move {
            let body = PostBody::new(Bytes::from_static(b"hello"), None);
            let sent = client.execute(Method::POST, &url, HeaderMap::new(), body);
            sent.await.map(|response| response.status())
        }
    };
    let refused = post(Patience::default()).await.unwrap_err();
    assert_eq!(refused, UpstreamError::Unreachable { reason: REFUSED });
    let short = Patience {
        time: AGAIN,
        reason: "gone",
    };
    let gone = post(short).await.unwrap_err();
    assert_eq!(gone, UpstreamError::Unreachable { reason: "gone" });
    let long = Patience {
        time: Duration::from_secs(20),
        reason: "gone",
    };
    let waiting = tokio::spawn(post(long));
    tokio::time::sleep(AGAIN).await;
    let listener = TcpListener::bind(address).await.unwrap();
    let (stream, _) = listener.accept().await.unwrap();
    tokio::spawn(answer_all(stream, HELLO, true));
    assert_eq!(waiting.await.unwrap().unwrap(), 200);
}
