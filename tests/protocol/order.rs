//! The order of messages, and the stream of each message.

use riglm_tests::client::RawClient;
use riglm_tests::envelope::{raw_at, string_at};
use riglm_tests::fixture::Transport;
use riglm_tests::inbox::{ReceivedMessage, Stream};
use riglm_tests::messages::{call, call_with_progress, notification};

use crate::{connect, odd, odd_over_stdio};

async fn stream_of(client: &RawClient, start: usize, method: &str) -> Stream {
    let found = client.method_after(start, method, 1).await;
    found[0].stream.clone()
}

fn post(id: &str) -> Stream {
    Stream::Post(id.to_owned())
}

#[tokio::test]
async fn notifications_of_different_kinds_keep_their_order_up_to_the_answer() {
    for downstream in Transport::ALL {
        for upstream in Transport::ALL {
            let upstream = odd().start(upstream).await;
            let line = connect(downstream, &upstream).await;
            let text = call_with_progress("\"o\"", "order", r#"{"steps":20}"#, "1");
            line.client.request(&text).await;
            let kinds: Vec<String> = line
                .client
                .received_messages()
                .iter()
                .skip_while(|message| !message.is_method("notifications/progress"))
                .map(|message| {
                    string_at(&message.text, &["method"]).unwrap_or_else(|| "answer".into())
                })
                .collect();
            let mut expected = ["notifications/progress", "notifications/message"].repeat(20);
            expected.push("answer");
            assert_eq!(
                kinds, expected,
                "{downstream:?} to {:?}",
                upstream.transport
            );
        }
    }
}

#[tokio::test]
async fn messages_of_the_client_reach_the_server_in_their_order() {
    for upstream in Transport::ALL {
        let upstream = odd().start(upstream).await;
        let line = connect(Transport::Stdio, &upstream).await;
        for n in 0..50 {
            let params = format!(r#"{{"n":{n}}}"#);
            line.client
                .send(&notification("notifications/odd/told", &params))
                .await;
        }
        let answer = line.client.request(&call("1", "seen", "{}")).await;
        let seen = raw_at(
            &answer.text,
            &["result", "structuredContent", "notifications"],
        )
        .and_then(|list| serde_json::from_str::<Vec<String>>(&list).ok())
        .expect("the server lists what it was told");
        let numbers: Vec<String> = seen
            .iter()
            .filter_map(|text| raw_at(text, &["params", "n"]))
            .collect();
        let expected: Vec<String> = (0..50).map(|n| n.to_string()).collect();
        assert_eq!(numbers, expected, "{:?}", upstream.transport);
    }
}

#[tokio::test]
async fn messages_caused_by_calls_arrive_on_their_stream() {
    for upstream in Transport::ALL {
        let upstream = odd().start(upstream).await;
        let line = connect(Transport::Streamable, &upstream).await;
        for (id, tool, method) in [
            ("\"a\"", "sample", "sampling/createMessage"),
            ("\"b\"", "log", "notifications/message"),
            ("\"c\"", "notify", "notifications/odd/custom"),
        ] {
            let start = line.client.n_received();
            let answer = line.client.request(&call(id, tool, "{}")).await;
            assert_eq!(answer.stream, post(id));
            assert_eq!(
                stream_of(&line.client, start, method).await,
                post(id),
                "{method} from {:?}",
                upstream.transport
            );
        }
    }
}

#[tokio::test]
async fn unsolicited_messages_arrive_on_the_get_stream() {
    let upstream = odd().start(Transport::Streamable).await;
    let line = connect(Transport::Streamable, &upstream).await;
    let start = line.client.n_received();
    line.client.request(&call("1", "change_list", "{}")).await;
    assert_eq!(
        stream_of(&line.client, start, "notifications/tools/list_changed").await,
        Stream::Standalone
    );
}

#[tokio::test]
async fn list_changes_wait_for_a_stream() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    line.client.drop_streams();
    line.client.request(&call("1", "change_list", "{}")).await;
    line.client.open_stream(None).await;
    line.client
        .method_after(0, "notifications/tools/list_changed", 1)
        .await;
}

#[tokio::test]
async fn progress_of_concurrent_calls_arrives_on_their_own_streams() {
    for upstream in Transport::ALL {
        let upstream = odd().start(upstream).await;
        let line = connect(Transport::Streamable, &upstream).await;
        let start = line.client.n_received();
        for n in 0..4 {
            let text = call_with_progress(
                &n.to_string(),
                "progress",
                r#"{"steps":5,"ms":10}"#,
                &format!("\"token-{n}\""),
            );
            line.client.send(&text).await;
        }
        for n in 0..4 {
            line.client.answer_after(start, &n.to_string()).await;
        }
        let progress = line
            .client
            .method_after(start, "notifications/progress", 20)
            .await;
        let misplaced: Vec<&ReceivedMessage> = progress
            .iter()
            .filter(|message| {
                let token = string_at(&message.text, &["params", "progressToken"]);
                let n = token.as_deref().and_then(|t| t.strip_prefix("token-"));
                n.is_none_or(|n| message.stream != post(n))
            })
            .collect();
        assert!(
            misplaced.is_empty(),
            "{:?}: {misplaced:?}",
            upstream.transport
        );
        assert_eq!(progress.len(), 20);
    }
}

#[tokio::test]
async fn no_message_comes_twice() {
    let upstream = odd().start(Transport::Streamable).await;
    let line = connect(Transport::Streamable, &upstream).await;
    line.client.open_stream(None).await;
    line.client.request(&call("1", "log", "{}")).await;
    line.client.request(&call("2", "change_list", "{}")).await;
    line.client
        .method_after(0, "notifications/tools/list_changed", 1)
        .await;
    // A duplicate would arrive before the response to a later request.
    line.client.request(&call("3", "empty", "{}")).await;
    let count = |method: &str| {
        let messages = line.client.received_messages();
        messages.iter().filter(|m| m.is_method(method)).count()
    };
    assert_eq!(count("notifications/message"), 1);
    assert_eq!(count("notifications/tools/list_changed"), 1);
}
