//! Known mistakes of other proxies, one test for each.

use std::time::Duration;

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{integer_at, raw_at, string_at};
use riglm_tests::fixture::Transport;
use riglm_tests::inbox::ReceivedMessage;
use riglm_tests::messages::{
    REVISIONS, call, call_with_progress, initialize, initialize_with, request, request_with,
};
use riglm_tests::riglm::{Options, ProxiedClient};

use crate::{answers, connect, odd, odd_over_stdio};

/// Returns the raw value of a member in the result of the tool `seen`.
async fn seen_member(client: &RawClient, member: &str) -> String {
    let answer = client.request(&call("\"seen\"", "seen", "{}")).await;
    raw_at(&answer.text, &["result", "structuredContent", member])
        .unwrap_or_else(|| panic!("no {member} in {}", answer.text))
}

/// Returns a JSON string literal of about 1 MiB with escapes and multi-byte characters.
fn mebibyte() -> String {
    format!("\"{}\"", "a\\u00e9\u{2603}\\n\\/ ".repeat((1 << 20) / 15))
}

fn result(message: &ReceivedMessage) -> String {
    raw_at(&message.text, &["result"]).unwrap_or_else(|| panic!("no result: {}", message.text))
}

#[tokio::test]
async fn integer_and_string_ids_in_flight_are_distinct() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        let slow = call("1", "sleep", r#"{"ms":300}"#);
        let quick = call("\"1\"", "echo", r#"{"text":"quick"}"#);
        line.client.send(&slow).await;
        let second = line.client.request(&quick).await;
        assert!(second.text.contains("quick"), "{}", second.text);
        let first = line.client.answer("1").await;
        assert_eq!(
            raw_at(&first.text, &["result", "content"]).as_deref(),
            Some("[]")
        );
    }
}

#[tokio::test]
async fn request_ids_are_returned_unchanged() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    for id in [
        "0",
        "-1",
        "18446744073709551616",
        "1.5",
        "1e2",
        "\"\"",
        "\"s\\u00e9 \\/ \u{1f600}\"",
        "\"550e8400-e29b-41d4-a716-446655440000\"",
    ] {
        let answer = line.client.request(&request(id, "ping")).await;
        assert_eq!(raw_at(&answer.text, &["id"]).as_deref(), Some(id));
    }
}

#[tokio::test]
async fn all_progress_arrives_with_its_token_before_the_answer() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        for token in ["7", "18446744073709551616", "\"t\\u00f6ken\""] {
            let start = line.client.n_received();
            let text = call_with_progress("\"p\"", "progress", r#"{"steps":30}"#, token);
            line.client.send(&text).await;
            line.client.answer_after(start, "\"p\"").await;
            let messages = line.client.received_messages().split_off(start);
            let steps: Vec<String> = messages
                .iter()
                .take_while(|message| !message.answers("\"p\""))
                .filter(|m| raw_at(&m.text, &["params", "progressToken"]).as_deref() == Some(token))
                .filter_map(|m| raw_at(&m.text, &["params", "progress"]))
                .collect();
            let expected: Vec<String> = (1..=30).map(|step| format!("{step}.0")).collect();
            assert_eq!(steps, expected, "{downstream:?}, token {token}");
        }
    }
}

#[tokio::test]
async fn calls_without_progress_token_get_no_progress() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    line.client.request(&call("1", "progress", "{}")).await;
    let progress = line.client.received_messages();
    assert!(
        !progress
            .iter()
            .any(|m| m.is_method("notifications/progress"))
    );
}

#[tokio::test]
async fn the_server_sees_the_capabilities_and_the_name_of_the_client() {
    let capabilities = r#"{"sampling":{"x":null},"experimental":{"a.b/c":{"n":1.0}},"x-new":{}}"#;
    for downstream in Transport::ALL {
        for upstream in Transport::ALL {
            let upstream = odd().start(upstream).await;
            let line =
                ProxiedClient::through(downstream, &upstream, &Options::default(), answers()).await;
            let text = initialize_with("0", "2025-06-18", capabilities);
            line.client.initialize(&text).await;
            assert_eq!(
                seen_member(&line.client, "initialize").await,
                raw_at(&text, &["params"]).expect("the request has params"),
                "{downstream:?} to {:?}",
                upstream.transport
            );
        }
    }
}

#[tokio::test]
async fn cursors_travel_verbatim_in_both_directions() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let first = line.client.request(&request("1", "tools/list")).await;
    let cursor = raw_at(&first.text, &["result", "nextCursor"]).expect("there is a second page");
    assert_eq!(cursor, r#""b3BhcXVl+/==\u00e9 \"?&%2F\" 0.70""#);
    let next = request_with("2", "tools/list", &format!(r#"{{"cursor":{cursor}}}"#));
    let second = line.client.request(&next).await;
    assert!(second.text.contains("structured_only"), "{}", second.text);
    let wrong = request_with("3", "tools/list", r#"{"cursor":"x\u0041"}"#);
    let refused = line.client.request(&wrong).await;
    assert_eq!(
        raw_at(&refused.text, &["error", "data"]).as_deref(),
        Some(r#"{"cursor":"x\u0041"}"#)
    );
}

#[tokio::test]
async fn protocol_errors_keep_code_message_and_data() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    for (code, data) in [
        ("-31337", "null"),
        ("7", "\"te\\u0078t\""),
        ("-32042", r#"{"elicitations":[],"n":1.0}"#),
        ("-32002", "[null]"),
        ("-32603", "0.70"),
    ] {
        let arguments = format!(r#"{{"code":{code},"data":{data}}}"#);
        let answer = line.client.request(&call("1", "fail", &arguments)).await;
        let expected = format!(
            "{{\"data\":{data},\"message\":\"odd: \u{00bb}failed\u{00ab}\",\"code\":{code},\"x-error\":0.70}}"
        );
        assert_eq!(raw_at(&answer.text, &["error"]), Some(expected));
    }
}

#[tokio::test]
async fn a_failing_tool_stays_a_result() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let answer = line.client.request(&call("1", "is_error", "{}")).await;
    assert_eq!(
        result(&answer),
        r#"{"isError":true,"content":[{"type":"text","text":"failed \u0021"}],"x":1.0}"#
    );
}

#[tokio::test]
async fn arguments_and_results_are_not_validated_on_the_way() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let answer = line
        .client
        .request(&call("1", "echo", r#"{"text":7.50}"#))
        .await;
    assert_eq!(
        raw_at(&answer.text, &["result", "content"]).as_deref(),
        Some(r#"[{"type":"text","text":7.50}]"#)
    );
    let answer = line.client.request(&request("2", "odd/null")).await;
    assert_eq!(result(&answer), "null");
}

#[tokio::test]
async fn structured_content_without_content_gets_none_added() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let answer = line
        .client
        .request(&call("1", "structured_only", "{}"))
        .await;
    assert_eq!(
        result(&answer),
        r#"{"structuredContent":[1.0,null,{"a":18446744073709551616}]}"#
    );
}

#[tokio::test]
async fn unknown_tool_fields_are_preserved() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let answer = line.client.request(&request("1", "tools/list")).await;
    for kept in [
        r#""execution":{"taskSupport":"optional","x":null}"#,
        r#""securitySchemes":[{"type":"oauth2","scopes":["a.b"]}]"#,
        r#""outputSchema":{"type":"object","properties":{"n":{"type":"number"}}}"#,
        r#""maxLength":1e3"#,
        r#""title":null"#,
        r#""n":-0.0"#,
    ] {
        assert!(
            answer.text.contains(kept),
            "{kept} is lost in {}",
            answer.text
        );
    }
}

#[tokio::test]
async fn unknown_params_reach_the_server() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let params =
        r#"{"b":[1.0,1e3,0.70],"a":null,"\u0063":18446744073709551616,"task":{"ttl":6e4}}"#;
    let answer = line
        .client
        .request(&request_with("1", "odd/echo", params))
        .await;
    assert_eq!(
        raw_at(&answer.text, &["result", "params"]).as_deref(),
        Some(params)
    );
}

#[tokio::test]
async fn a_mebibyte_travels_both_ways() {
    let text = mebibyte();
    for downstream in Transport::ALL {
        for upstream in Transport::ALL {
            let upstream = odd().start(upstream).await;
            let line = connect(downstream, &upstream).await;
            let arguments = format!(r#"{{"text":{text}}}"#);
            let answer = line.client.request(&call("1", "echo", &arguments)).await;
            assert!(
                answer.text.contains(&text),
                "{downstream:?} to {:?}: {} bytes came back",
                upstream.transport,
                answer.text.len()
            );
        }
    }
}

#[tokio::test]
async fn every_revision_is_negotiated_between_client_and_server() {
    for revision in REVISIONS {
        let line = ProxiedClient::through(
            Transport::Streamable,
            &odd_over_stdio(),
            &Options::default(),
            answers(),
        )
        .await;
        let answer = line.client.initialize(&initialize("0", revision)).await;
        let agreed = string_at(&answer.text, &["result", "protocolVersion"]);
        assert_eq!(agreed.as_deref(), Some(revision));
        let told = seen_member(&line.client, "initialize").await;
        assert_eq!(
            string_at(&told, &["protocolVersion"]).as_deref(),
            Some(revision)
        );
    }
}

#[tokio::test]
async fn an_unknown_revision_is_forwarded_to_the_server() {
    let line = ProxiedClient::through(
        Transport::Stdio,
        &odd_over_stdio(),
        &Options::default(),
        answers(),
    )
    .await;
    let answer = line.client.initialize(&initialize("0", "2024-12-24")).await;
    assert_eq!(
        string_at(&answer.text, &["result", "protocolVersion"]).as_deref(),
        Some("2025-06-18")
    );
}

#[tokio::test]
async fn instructions_and_server_info_pass() {
    let line = ProxiedClient::through(
        Transport::Streamable,
        &odd_over_stdio(),
        &Options::default(),
        answers(),
    )
    .await;
    let answer = line.client.initialize(&initialize("0", "2025-11-25")).await;
    assert_eq!(
        raw_at(&answer.text, &["result", "instructions"]).as_deref(),
        Some(r#""Line one.\nLine \u0074wo.""#)
    );
    assert_eq!(
        raw_at(&answer.text, &["result", "serverInfo"]).as_deref(),
        Some(
            r#"{"version":"1.0","name":"odd","title":"Odd \u2014 \"server\"","icons":[{"src":"data:,x","x":1e3}]}"#
        )
    );
}

#[tokio::test]
async fn requests_of_the_server_and_responses_of_the_client_are_verbatim() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        for (id, tool) in [
            ("1", "custom_request"),
            ("2", "sample"),
            ("3", "custom_request"),
        ] {
            let answer = line.client.request(&call(id, tool, "{}")).await;
            let method = if tool == "sample" {
                "sampling/createMessage"
            } else {
                "odd/ask"
            };
            let asked = line.client.method_after(0, method, 1).await;
            let asked = asked.last().expect("the server asked");
            let expected = answers().to(&asked.text).remove(0);
            let content = raw_at(&answer.text, &["result", "content"]).expect("content");
            let blocks: Vec<serde_json::Value> =
                serde_json::from_str(&content).expect("the content is JSON");
            assert_eq!(
                blocks[0]["text"].as_str(),
                Some(expected.as_str()),
                "{downstream:?}"
            );
        }
    }
}

#[tokio::test]
async fn cancellations_reach_the_server_and_suppress_the_answer() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &odd_over_stdio()).await;
        line.client.send(&call("\"c\"", "wait_cancel", "{}")).await;
        line.client
            .method_after(0, "notifications/message", 1)
            .await;
        line.client
            .send(&riglm_tests::messages::cancelled_notification("\"c\""))
            .await;
        let seen = line
            .client
            .method_after(0, "notifications/odd/cancelled", 1)
            .await;
        assert_eq!(
            raw_at(&seen[0].text, &["params", "requestId"]).as_deref(),
            Some("\"c\"")
        );
        line.client.request(&request("2", "ping")).await;
        assert!(
            !line
                .client
                .received_messages()
                .iter()
                .any(|m| m.answers("\"c\""))
        );
    }
}

#[tokio::test]
async fn a_slow_call_does_not_delay_other_calls() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let client = line.client.with_patience(Duration::from_secs(5));
    client.send(&call("\"slow\"", "hang", "{}")).await;
    for n in 0..20 {
        let answer = client.request(&call(&n.to_string(), "empty", "{}")).await;
        assert_eq!(integer_at(&answer.text, &["id"]), Some(n));
    }
}
