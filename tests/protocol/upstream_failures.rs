//! Failing upstreams: the affected call ends with an error, and the session goes on.

use std::time::{Duration, Instant};

use riglm_tests::envelope::{integer_at, raw_at, string_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::{call, call_with_progress, initialize, request};
use riglm_tests::relay::Relay;
use riglm_tests::riglm::{Options, ProxiedClient};

use crate::{answers, connect, connect_with, odd, odd_over_stdio};

/// Asserts a code that the proxy uses for its own errors.
fn assert_own_error(answer: &ReceivedMessage) {
    let code = integer_at(&answer.text, &["error", "code"])
        .unwrap_or_else(|| panic!("no error: {}", answer.text));
    assert!(!(-32_768..=-32_000).contains(&code), "{code} is reserved");
}

async fn first_answer(command: &[&str]) -> ReceivedMessage {
    let command = command.iter().map(|word| (*word).to_owned()).collect();
    let upstream = Upstream::of_command(command);
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstream,
        &Options::default(),
        answers(),
    )
    .await;
    line.client.request(&initialize("0", "2025-11-25")).await
}

#[tokio::test]
async fn initialize_fails_for_a_missing_command() {
    assert_own_error(&first_answer(&["/no/such/program"]).await);
}

#[tokio::test]
async fn initialize_fails_for_an_exiting_command() {
    assert_own_error(&first_answer(&["false"]).await);
}

#[tokio::test]
async fn invalid_output_of_a_command_fails_initialization() {
    assert_own_error(&first_answer(&["echo", "usage: nonsense"]).await);
}

#[tokio::test]
async fn calls_killing_their_server_fail_without_affecting_the_next() {
    for tool in ["exit", "exit_silently"] {
        let line = connect(Transport::Streamable, &odd_over_stdio()).await;
        let start = Instant::now();
        let failed = line.client.request(&call("1", tool, "{}")).await;
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        assert_own_error(&failed);
        let start = Instant::now();
        let next = line.client.request(&call("2", "odd", "{}")).await;
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "{:?}",
            start.elapsed()
        );
        assert!(raw_at(&next.text, &["result"]).is_some(), "{}", next.text);
    }
}

#[tokio::test]
async fn all_calls_in_flight_end_when_their_server_dies() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let start = line.client.n_received();
    for n in 0..10 {
        line.client.send(&call(&n.to_string(), "hang", "{}")).await;
    }
    line.client.request(&call("\"exit\"", "exit", "{}")).await;
    for n in 0..10 {
        assert_own_error(&line.client.answer_after(start, &n.to_string()).await);
    }
}

#[tokio::test]
async fn garbage_between_messages_fails_at_most_one_call() {
    for tool in ["garbage", "non_utf8", "answer_twice", "unknown_id", "drip"] {
        for upstream in Transport::ALL {
            let upstream = odd().start(upstream).await;
            // Captured, and shown if the test fails.
            println!("{tool} over {:?}", upstream.transport);
            let line = connect(Transport::Streamable, &upstream).await;
            let answer = line.client.request(&call("1", tool, "{}")).await;
            if answer.text.contains("after all") {
                assert!(
                    raw_at(&answer.text, &["result"]).is_some(),
                    "{}",
                    answer.text
                );
            } else {
                assert!(
                    tool == "garbage" || tool == "non_utf8",
                    "{tool}: {}",
                    answer.text
                );
                assert_own_error(&answer);
            }
            let next = line.client.request(&call("2", "empty", "{}")).await;
            assert!(
                raw_at(&next.text, &["result"]).is_some(),
                "{tool}, {:?}: {}",
                upstream.transport,
                next.text
            );
        }
    }
}

#[tokio::test]
async fn unanswered_calls_end_at_their_deadline() {
    let options = Options::with_configuration("[limits]\ncall_timeout = \"500ms\"\n");
    for upstream in Transport::ALL {
        let upstream = odd().start(upstream).await;
        let line = connect_with(Transport::Streamable, &upstream, &options).await;
        let start = Instant::now();
        let answer = line.client.request(&call("1", "hang", "{}")).await;
        assert_eq!(integer_at(&answer.text, &["error", "code"]), Some(-31_002));
        assert!(
            start.elapsed() >= Duration::from_millis(500),
            "{:?}",
            start.elapsed()
        );
        assert!(
            start.elapsed() < Duration::from_secs(3),
            "{:?}",
            start.elapsed()
        );
        // The error for the client does not wait until the cancellation has reached the server.
        let end = Instant::now() + Duration::from_secs(5);
        loop {
            let seen = line.client.request(&call("2", "seen", "{}")).await;
            if seen.text.contains("notifications/cancelled") {
                break;
            }
            assert!(
                Instant::now() < end,
                "the server was not told: {}",
                seen.text
            );
        }
    }
}

#[tokio::test]
async fn log_messages_do_not_prolong_a_call() {
    let options = Options::with_configuration("[limits]\ncall_timeout = \"500ms\"\n");
    for upstream in Transport::ALL {
        let upstream = odd().start(upstream).await;
        let line = connect_with(Transport::Streamable, &upstream, &options).await;
        // The call would be answered after the deadline.
        let text = call_with_progress("1", "chatter", r#"{"steps":100,"ms":100}"#, "5");
        let answer = line.client.request(&text).await;
        assert_eq!(integer_at(&answer.text, &["error", "code"]), Some(-31_002));
        let logged = line.client.received_messages();
        assert!(
            logged
                .iter()
                .any(|it| it.is_method("notifications/message"))
        );
    }
}

#[tokio::test]
async fn progress_prolongs_a_call() {
    let options = Options::with_configuration("[limits]\ncall_timeout = \"3s\"\n");
    for upstream in Transport::ALL {
        let upstream = odd().start(upstream).await;
        let line = connect_with(Transport::Streamable, &upstream, &options).await;
        let text = call_with_progress("1", "progress", r#"{"steps":10,"ms":400}"#, "5");
        let answer = line.client.request(&text).await;
        assert!(answer.text.contains("told"), "{}", answer.text);
    }
}

#[tokio::test]
async fn a_refused_connection_is_an_error_at_once() {
    let port = riglm_tests::process::free_port();
    for (transport, path) in [(Transport::Streamable, "mcp"), (Transport::Legacy, "sse")] {
        let url = format!("http://127.0.0.1:{port}/{path}");
        let upstream = Upstream::at(transport, url.parse().expect("the address is a URL"));
        let line = ProxiedClient::through(
            Transport::Streamable,
            &upstream,
            &Options::default(),
            answers(),
        )
        .await;
        let start = Instant::now();
        let answer = line.client.request(&initialize("0", "2025-11-25")).await;
        assert_own_error(&answer);
        assert!(
            start.elapsed() < Duration::from_secs(5),
            "{:?}",
            start.elapsed()
        );
    }
}

#[tokio::test]
async fn a_session_survives_an_outage_of_its_http_upstream() {
    let server = odd().start(Transport::Streamable).await;
    let url = server.url.clone().expect("the server has an address");
    let mut relay = Relay::before(&url);
    let upstream = Upstream::at(Transport::Streamable, relay.url(&url));
    let line = connect(Transport::Streamable, &upstream).await;
    for round in 0..5 {
        relay.down().await;
        let start = Instant::now();
        let failed = line.client.request(&call("\"down\"", "empty", "{}")).await;
        assert_own_error(&failed);
        assert!(
            start.elapsed() < Duration::from_secs(2),
            "round {round}: {:?}",
            start.elapsed()
        );
        relay.up();
        let start = Instant::now();
        let answer = line.client.request(&call("\"up\"", "empty", "{}")).await;
        assert!(
            raw_at(&answer.text, &["result"]).is_some(),
            "round {round}: {}",
            answer.text
        );
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "round {round}: {:?}",
            start.elapsed()
        );
    }
}

#[tokio::test]
async fn a_legacy_server_is_detected_at_a_plain_address() {
    let upstream = odd().start(Transport::Legacy).await;
    let url = upstream.url.clone().expect("the server has an address");
    // Without the prefix `sse+`, the proxy first tries Streamable HTTP.
    let plain = Upstream::at(Transport::Streamable, url);
    let line = connect(Transport::Streamable, &plain).await;
    let answer = line.client.request(&call("1", "odd", "{}")).await;
    assert!(
        raw_at(&answer.text, &["result"]).is_some(),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn large_results_arrive_and_oversized_ones_are_errors() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let answer = line
        .client
        .request(&call("1", "large", r#"{"bytes":8000000}"#))
        .await;
    assert!(answer.text.len() > 8_000_000);
    let answer = line
        .client
        .request(&call("2", "large", r#"{"bytes":40000000}"#))
        .await;
    assert_own_error(&answer);
    let answer = line.client.request(&request("3", "tools/list")).await;
    assert!(
        raw_at(&answer.text, &["result"]).is_some(),
        "{}",
        answer.text
    );
}

#[tokio::test]
async fn proxy_errors_describe_the_failure_without_paths() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let failed = line.client.request(&call("1", "exit", "{}")).await;
    let message = string_at(&failed.text, &["error", "message"]).unwrap_or_default();
    assert!(!message.is_empty());
    assert!(!message.contains('/'), "{message}");
}
