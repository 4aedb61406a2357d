//! Messages that are nested too deeply for peers: the affected request ends with an error, and
//! everything else goes on.

use std::time::Duration;

use riglm_tests::envelope::{integer_at, string_at};
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::{call, initialize, notification, request};
use riglm_tests::modern::Meta;
use riglm_tests::process::eventually;
use riglm_tests::riglm::{Options, ProxiedClient};

use crate::{answers, connect, connect_with, modern_odd, odd, odd_over_stdio, odd_with};

/// Deeper than any realistic message.
const DEEP: usize = 100_000;

fn nested_arrays(n_levels: usize) -> String {
    ["[".repeat(n_levels), "]".repeat(n_levels)].concat()
}

/// Returns the arguments that make the server respond with a message of this depth.
fn levels(n_levels: usize) -> String {
    format!(r#"{{"levels":{n_levels}}}"#)
}

fn assert_error(answer: &ReceivedMessage, code: i64, n_levels: usize) {
    assert!(answer.text.len() < 1_000, "{} bytes", answer.text.len());
    assert_eq!(
        integer_at(&answer.text, &["error", "code"]),
        Some(code),
        "{}",
        answer.text
    );
    let text = string_at(&answer.text, &["error", "message"]).unwrap_or_default();
    let said = format!("nested deeper than {n_levels} levels");
    assert!(text.contains(&said), "{text}");
}

fn assert_result(answer: &ReceivedMessage) {
    assert!(answer.text.contains(r#""result""#), "{}", answer.text);
}

#[tokio::test]
async fn deeply_nested_results_become_errors() {
    for transport in Transport::ALL {
        let upstream = odd().start(transport).await;
        let line = connect(Transport::Streamable, &upstream).await;
        let client = &line.client;
        client
            .send(&call("\"other\"", "sleep", r#"{"ms":500}"#))
            .await;
        let answer = client.request(&call("1", "nested", &levels(DEEP))).await;
        assert_error(&answer, -31_003, 100);
        let answer = client.request(&call("2", "nested", &levels(101))).await;
        assert_error(&answer, -31_003, 100);
        let answer = client.request(&call("3", "nested", &levels(100))).await;
        assert!(answer.text.contains("[[["), "{}", answer.text);
        // The other call on the same connection goes on.
        assert_result(&client.answer("\"other\"").await);
        let pid = async |id: &str| client.request(&call(id, "pid", "{}")).await.text;
        let before = pid("\"pid\"").await;
        client.request(&call("4", "nested", &levels(DEEP))).await;
        assert_eq!(pid("\"pid\"").await, before);
    }
}

#[tokio::test]
async fn deeply_nested_modern_messages_are_refused_with_any_framing() {
    let mut upstreams = vec![modern_odd().start(Transport::Stdio).await];
    for framing in ["events", "lines", "nothing"] {
        let server = odd_with(&["--era", "modern", "--framing", framing]);
        upstreams.push(server.start(Transport::Streamable).await);
    }
    let meta = Meta::default();
    for upstream in &upstreams {
        let line =
            ProxiedClient::modern(Transport::Streamable, upstream, &Options::default()).await;
        let ask = async |id, n| {
            line.client
                .request(&meta.call(id, "nested", &levels(n)))
                .await
        };
        assert_error(&ask("1", DEEP).await, -31_003, 100);
        assert!(ask("2", 80).await.text.contains("[[["));
    }
}

#[tokio::test]
async fn legacy_clients_of_modern_servers_get_the_nesting_error() {
    let upstream = modern_odd().start(Transport::Streamable).await;
    let line = connect(Transport::Streamable, &upstream).await;
    let answer = line
        .client
        .request(&call("1", "nested", &levels(DEEP)))
        .await;
    assert_error(&answer, -31_003, 100);
    assert_result(&line.client.request(&call("2", "pid", "{}")).await);
}

#[tokio::test]
async fn deep_results_behind_several_servers_become_errors() {
    let toml = ["one", "two"].map(|name| {
        let program = env!("CARGO_BIN_EXE_odd-server");
        format!("[upstreams.{name}]\ncommand = [\"{program}\", \"stdio\"]\n")
    });
    let options =
        Options::with_configuration(&format!("{}[limits]\nmessage_depth = 30\n", toml.concat()));
    let line = connect_with(
        Transport::Streamable,
        &Upstream::from_configuration(),
        &options,
    )
    .await;
    let deep = line
        .client
        .request(&call("1", "one__nested", &levels(31)))
        .await;
    assert_error(&deep, -31_003, 30);
    assert_result(&line.client.request(&call("2", "one__pid", "{}")).await);
    assert_result(
        &line
            .client
            .request(&call("3", "two__nested", &levels(30)))
            .await,
    );
}

#[tokio::test]
async fn arguments_encoded_as_a_string_have_the_same_nesting_limit() {
    let program = env!("CARGO_BIN_EXE_odd-server");
    let toml =
        format!("[upstream]\ncommand = [\"{program}\", \"stdio\"]\n[limits]\nmessage_depth = 30\n");
    let options = Options {
        arguments: ["--strategy", "prediction"].map(str::to_owned).to_vec(),
        ..Options::with_configuration(&toml)
    };
    let line = connect_with(
        Transport::Streamable,
        &Upstream::from_configuration(),
        &options,
    )
    .await;
    // The message, its params and its arguments are three levels.
    let encoded = async |id: &str, n_levels: usize| {
        let object = format!(r#"{{\"a\":{}}}"#, nested_arrays(n_levels));
        let arguments = format!(r#"{{"name":"echo","arguments":"{object}"}}"#);
        line.client
            .request(&call(id, "call_tool", &arguments))
            .await
    };
    let taken = encoded("1", 27).await.text;
    assert!(!taken.contains("must be an object"), "{taken}");
    let refused = encoded("2", 28).await.text;
    assert!(refused.contains("arguments must be an object"), "{refused}");
}

#[tokio::test]
async fn deeply_nested_notifications_are_dropped_and_logged_once() {
    for transport in Transport::ALL {
        let upstream = odd().start(transport).await;
        let line = connect(Transport::Streamable, &upstream).await;
        for id in ["1", "2"] {
            let answer = line
                .client
                .request(&call(id, "nested_notification", "{}"))
                .await;
            assert_result(&answer);
        }
        let came = line.client.received_messages();
        let is_nested = |message: &&ReceivedMessage| message.is_method("notifications/odd/nested");
        assert_eq!(came.iter().filter(is_nested).count(), 0);
        let riglm = line.riglm.as_ref().expect("the proxy listens");
        let logged = || riglm.process.output().matches("nested deeper than").count();
        let is_logged = eventually(Duration::from_secs(10), || (logged() > 0).then_some(()));
        is_logged.await.expect("it is logged");
        let output = riglm.process.output();
        assert_eq!(logged(), 1, "{output}");
        let line = output
            .lines()
            .find(|line| line.contains("nested deeper than"));
        let line = line.expect("the line is there");
        let names_session = line.contains("session{id=01") && line.contains("upstream{name=");
        assert!(names_session, "it says which session it is about: {line}");
    }
}

#[tokio::test]
async fn deeply_nested_input_requests_are_refused() {
    for transport in Transport::ALL {
        let upstream = odd().start(transport).await;
        let line = connect(Transport::Streamable, &upstream).await;
        let answer = line
            .client
            .request(&call("1", "nested_request", "{}"))
            .await;
        assert!(
            answer
                .text
                .contains("the request is nested deeper than 100 levels"),
            "{}",
            answer.text
        );
    }
}

#[tokio::test]
async fn deeply_nested_requests_are_refused_on_every_transport() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        let client = &line.client;
        client
            .send(&call("\"other\"", "sleep", r#"{"ms":300}"#))
            .await;
        for (id, n) in [("\"deep\"", DEEP), ("\"above\"", 99)] {
            let answer = client.request(&call(id, "echo", &nested_arrays(n))).await;
            assert_error(&answer, -32_600, 100);
        }
        // The message and its params are two levels, the arguments one.
        let text = format!(r#"{{"ms":0,"x":{}}}"#, nested_arrays(97));
        assert_result(&client.request(&call("\"within\"", "sleep", &text)).await);
        client
            .send(&notification(
                "notifications/odd/deep",
                &nested_arrays(DEEP),
            ))
            .await;
        assert_result(&client.answer("\"other\"").await);
        assert_result(&client.request(&request("\"after\"", "ping")).await);
    }
}

#[tokio::test]
async fn deeply_nested_modern_requests_are_refused() {
    let meta = Meta::default();
    for upstream in [modern_odd(), odd()] {
        let upstream = upstream.start(Transport::Stdio).await;
        let line =
            ProxiedClient::modern(Transport::Streamable, &upstream, &Options::default()).await;
        let text = format!(r#"{{"text":{}}}"#, nested_arrays(DEEP));
        let answer = line.client.request(&meta.call("1", "echo", &text)).await;
        assert_error(&answer, -32_600, 100);
        let answer = line
            .client
            .request(&meta.call("2", "echo", r#"{"text":"on"}"#))
            .await;
        assert_result(&answer);
    }
}

#[tokio::test]
async fn deeply_nested_handshakes_are_refused_and_can_be_repeated() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        let options = Options::default();
        let line = ProxiedClient::through(downstream, &odd_over_stdio(), &options, answers()).await;
        let deep = format!(r#"{{"experimental":{{"x":{}}}}}"#, nested_arrays(DEEP));
        let hello = riglm_tests::messages::initialize_with("0", "2025-11-25", &deep);
        let refused = line.client.request(&hello).await;
        assert_error(&refused, -32_600, 100);
        line.client.initialize(&initialize("1", "2025-11-25")).await;
        assert_result(&line.client.request(&call("2", "pid", "{}")).await);
    }
}

#[tokio::test]
async fn deeply_nested_client_answers_become_errors_for_the_server() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let deep = format!(
        r#"{{"jsonrpc":"2.0","id":$ID,"result":{{"x":{}}}}}"#,
        nested_arrays(DEEP)
    );
    line.client.set_answers(answers().with("odd/ask", &deep));
    let answer = line
        .client
        .request(&call("1", "custom_request", "{}"))
        .await;
    assert!(
        answer.text.contains("nested deeper than 100 levels"),
        "{}",
        answer.text
    );
}
