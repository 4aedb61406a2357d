//! Floods of messages over HTTP: their responses, and their effect on other clients.

use std::time::{Duration, Instant};

use http::{HeaderMap, Method};
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::plain_http::{self, HttpResponse};
use riglm_tests::riglm::Riglm;
use serde_json::Value;
use tempfile::TempDir;

use super::{KEYS, connect, serve};

fn retry_after(headers: &HeaderMap) -> Option<&str> {
    headers
        .get("retry-after")
        .and_then(|value| value.to_str().ok())
}

/// Sends a ping in the session of a client.
async fn ping(riglm: &Riglm, principal: &str, session: &str) -> HttpResponse {
    let bearer = format!("Bearer key-of-{principal}-0123456789");
    let headers = [
        ("authorization", bearer.as_str()),
        ("accept", "application/json, text/event-stream"),
        ("content-type", "application/json"),
        ("mcp-session-id", session),
    ];
    let text = request("7", "ping");
    let answer = plain_http::exchange(Method::POST, &riglm.url, &headers, text);
    answer.await.unwrap()
}

/// Runs `messages` within one second, after a second without messages. Repeats it if the machine
/// was too slow.
async fn run_within_a_second<T>(mut messages: impl AsyncFnMut() -> T) -> T {
    for _ in 0..20 {
        tokio::time::sleep(Duration::from_millis(1_050)).await;
        let start = Instant::now();
        let came = messages().await;
        if start.elapsed() < Duration::from_secs(1) {
            return came;
        }
    }
    panic!("the machine is too slow for this test");
}

#[tokio::test]
async fn too_many_messages_get_429_and_other_principals_are_served() {
    let data = TempDir::new().unwrap();
    let toml = format!("{KEYS}[limits]\nrequests_per_second = 5\n");
    let riglm = serve(data.path(), &toml).await;
    let ann = connect(&riglm, Some("ann"), "a").await;
    let bob = connect(&riglm, Some("bob"), "b").await;
    let (of_ann, of_bob) = (ann.session_id().unwrap(), bob.session_id().unwrap());
    let answers = run_within_a_second(async || {
        let mut answers = Vec::new();
        for _ in 0..8 {
            answers.push(ping(&riglm, "ann", &of_ann).await);
        }
        answers
    })
    .await;
    let statuses: Vec<u16> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(statuses, [200, 200, 200, 200, 200, 429, 429, 429]);
    let refused = &answers[7];
    assert_eq!(retry_after(&refused.headers), Some("1"));
    let body: Value = serde_json::from_str(&refused.body).unwrap();
    assert_eq!(body["error"]["code"], -31_005, "{body}");
    assert_eq!(body["jsonrpc"], "2.0");
    assert_eq!(ping(&riglm, "bob", &of_bob).await.status, 200);
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(ping(&riglm, "ann", &of_ann).await.status, 200);
}

#[tokio::test]
async fn posts_of_all_transports_count_towards_the_rate_limit() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path(), "[limits]\nrequests_per_second = 1\n").await;
    let meta = Meta::default();
    let modern = RawClient::modern(&riglm.url);
    let sse = RawClient::legacy(&riglm.at("/sse"), Answers::default()).await;
    let (first, refused, posted) = run_within_a_second(async || {
        let first = modern.send(&meta.request("1", "server/discover", "")).await;
        let refused = modern.send(&meta.request("2", "server/discover", "")).await;
        let posted = sse.send(&initialize("1", "2024-11-05")).await;
        (first, refused, posted)
    })
    .await;
    assert_eq!(
        (first.status, refused.status, posted.status),
        (200, 429, 429)
    );
    assert_eq!(retry_after(&refused.headers), Some("1"));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(sse.send(&initialize("1", "2024-11-05")).await.status, 202);
}

#[tokio::test]
async fn a_refused_request_gets_retry_after() {
    let data = TempDir::new().unwrap();
    let toml = "[limits]\nsessions = 2\nin_flight_per_session = 1\n";
    let riglm = serve(data.path(), toml).await;
    let meta = Meta::default();
    let modern = RawClient::modern(&riglm.url);
    modern.request(&meta.call("1", "echo", "{}")).await;
    // The stream of the response stays open, so the request counts as in flight.
    assert_eq!(modern.send(&meta.call("2", "hang", "{}")).await.status, 200);
    let full = modern.send(&meta.call("3", "empty", "{}")).await;
    assert_eq!(full.status, 503);
    assert_eq!(retry_after(&full.headers), Some("1"));
    let _second = connect(&riglm, None, "w").await;
    let third = RawClient::streamable(&riglm.url, Answers::default());
    let refused = third.send(&initialize("1", "2025-11-25")).await;
    assert_eq!(refused.status, 503);
    assert_eq!(retry_after(&refused.headers), Some("1"));
}
