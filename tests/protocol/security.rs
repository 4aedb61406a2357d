//! Access control over HTTP, and headers that are never forwarded.

use http::Method;
use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::Transport;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::plain_http::{self, HttpResponse};
use riglm_tests::riglm::{Options, Riglm};
use tempfile::TempDir;
use url::Url;

use crate::{connect, odd, odd_over_stdio};

const JSON: (&str, &str) = ("content-type", "application/json");
const BOTH: (&str, &str) = ("accept", "application/json, text/event-stream");

async fn serve() -> (Riglm, TempDir) {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let riglm = Riglm::serve(&odd_over_stdio(), data_dir.path(), &Options::default()).await;
    (riglm, data_dir)
}

async fn exchange(method: Method, url: &Url, headers: &[(&str, &str)], body: &str) -> HttpResponse {
    plain_http::exchange(method, url, headers, body.to_owned())
        .await
        .unwrap_or_else(|error| panic!("{}", error.0))
}

#[tokio::test]
async fn foreign_origins_are_refused_on_every_path_and_method() {
    let (riglm, _data) = serve().await;
    for origin in [
        "http://evil.example",
        "https://127.0.0.1.evil.example",
        "null",
    ] {
        let foreign = ("origin", origin);
        let text = initialize("0", "2025-11-25");
        for (method, path, body) in [
            (Method::POST, "/mcp", text.as_str()),
            (Method::GET, "/mcp", ""),
            (Method::DELETE, "/mcp", ""),
            (Method::GET, "/sse", ""),
            (Method::POST, "/messages?sessionId=x", text.as_str()),
        ] {
            let url = riglm.at(path);
            let answer = exchange(method.clone(), &url, &[JSON, BOTH, foreign], body).await;
            assert_eq!(answer.status, 403, "{method} {path} from {origin}");
        }
    }
}

#[tokio::test]
async fn foreign_hosts_are_refused() {
    let (riglm, _data) = serve().await;
    for host in [
        "evil.example",
        "evil.example:8642",
        "127.0.0.1.evil.example",
    ] {
        let headers = [JSON, BOTH, ("host", host)];
        let text = initialize("0", "2025-11-25");
        let answer = exchange(Method::POST, &riglm.url, &headers, &text).await;
        assert_eq!(answer.status, 403, "{host}");
        assert!(
            answer.body.contains("listen.allowed_hosts"),
            "{}",
            answer.body
        );
        let named = |line: &str| {
            (line.contains("listen.allowed_hosts") && line.contains("evil.example")).then_some(())
        };
        let patience = std::time::Duration::from_secs(20);
        riglm.process.line(patience, "the refusal", named).await;
        let answer = exchange(Method::GET, &riglm.at("/sse"), &headers, "").await;
        assert_eq!(answer.status, 403, "{host}");
    }
}

#[tokio::test]
async fn loopback_origins_are_allowed() {
    let (riglm, _data) = serve().await;
    let port = riglm.url.port().expect("the address has a port");
    for name in ["127.0.0.1", "localhost"] {
        let origin = format!("http://{name}:{port}");
        let host = format!("{name}:{port}");
        let headers = [
            JSON,
            BOTH,
            ("origin", origin.as_str()),
            ("host", host.as_str()),
        ];
        let text = initialize("0", "2025-11-25");
        let response = plain_http::open(
            Method::POST,
            &riglm.url,
            &headers.map(|(name, value)| (name.to_owned(), value.to_owned())),
            text,
        )
        .await
        .unwrap_or_else(|error| panic!("{}", error.0));
        assert_eq!(response.status().as_u16(), 200, "{origin}");
    }
}

#[tokio::test]
async fn a_response_has_no_cors_header_for_a_foreign_origin() {
    let (riglm, _data) = serve().await;
    let text = initialize("0", "2025-11-25");
    let headers = [JSON, BOTH, ("origin", "http://evil.example")];
    let answer = exchange(Method::POST, &riglm.url, &headers, &text).await;
    assert_eq!(answer.header("access-control-allow-origin"), None);
}

#[tokio::test]
async fn bodies_without_json_content_type_are_refused() {
    let (riglm, _data) = serve().await;
    let text = initialize("0", "2025-11-25");
    for kind in ["text/plain", "application/x-www-form-urlencoded"] {
        let headers = [("content-type", kind), BOTH];
        let answer = exchange(Method::POST, &riglm.url, &headers, &text).await;
        assert!(
            matches!(answer.status, 400 | 415),
            "{kind}: {}",
            answer.status
        );
    }
}

#[tokio::test]
async fn credentials_and_headers_for_the_proxy_are_not_passed_on() {
    for upstream in [Transport::Streamable, Transport::Legacy] {
        let upstream = odd().start(upstream).await;
        for downstream in [Transport::Streamable, Transport::Legacy] {
            let line = connect(downstream, &upstream).await;
            for (name, value) in [
                ("authorization", "Bearer marker-token"),
                ("cookie", "marker=cookie"),
                ("proxy-authorization", "Basic marker-proxy"),
                ("x-riglm-session", "marker-session"),
                ("x-riglm-context", "marker-context"),
                ("x-riglm-token-budget", "4711"),
            ] {
                line.client.set_header(name, value);
            }
            let answer = line.client.request(&call("1", "seen", "{}")).await;
            let headers = raw_at(&answer.text, &["result", "structuredContent", "headers"])
                .expect("the server saw headers");
            assert!(!headers.contains("marker"), "{headers}");
            assert!(!headers.contains("4711"), "{headers}");
        }
    }
}

#[tokio::test]
async fn upstreams_receive_the_revision_and_their_own_session() {
    let upstream = odd().start(Transport::Streamable).await;
    let line = connect(Transport::Stdio, &upstream).await;
    let answer = line.client.request(&call("1", "seen", "{}")).await;
    let header = |name: &str| {
        let path = ["result", "structuredContent", "headers", name];
        raw_at(&answer.text, &path)
    };
    assert_eq!(
        header("mcp-protocol-version").as_deref(),
        Some("\"2025-11-25\"")
    );
    // The check of the upstream has a session of its own.
    let session = header("mcp-session-id").expect("the request has a session");
    assert!(session.starts_with("\"odd-session-"), "{session}");
    assert_eq!(
        header("content-type").as_deref(),
        Some("\"application/json\"")
    );
    let accept = header("accept").unwrap_or_default();
    assert!(accept.contains("application/json") && accept.contains("text/event-stream"));
}

#[tokio::test]
async fn a_session_id_is_not_valid_on_the_other_transport() {
    let (riglm, _data) = serve().await;
    let client = riglm.client(crate::answers());
    client.initialize(&initialize("0", "2025-11-25")).await;
    let id = client.session_id().expect("the session has an id");
    let url = riglm.at(&format!("/messages?sessionId={id}"));
    let answer = exchange(Method::POST, &url, &[JSON], &request("1", "ping")).await;
    assert_eq!(answer.status, 404);
}
