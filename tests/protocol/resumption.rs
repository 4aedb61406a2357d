//! Resumption of broken event streams: by the client, and by the proxy towards its upstream.

use std::collections::HashSet;

use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::Transport;
use riglm_tests::inbox::Stream;
use riglm_tests::messages::{call, call_with_progress};

use crate::{connect, odd, odd_over_stdio};

#[tokio::test]
async fn broken_call_streams_resume_without_loss() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let client = &line.client;
    let text = call_with_progress("\"r\"", "progress", r#"{"steps":4,"ms":150}"#, "1");
    client.send(&text).await;
    client.method_after(0, "notifications/progress", 1).await;
    client.drop_streams();
    let last = client
        .last_event_id(&Stream::Post("\"r\"".into()))
        .expect("events of a call carry ids");
    assert_eq!(client.open_stream(Some(&last)).await, 200);
    client.answer("\"r\"").await;
    let steps: Vec<String> = client
        .received_messages()
        .iter()
        .filter_map(|message| raw_at(&message.text, &["params", "progress"]))
        .collect();
    assert_eq!(steps, ["1.0", "2.0", "3.0", "4.0"]);
}

#[tokio::test]
async fn a_response_without_an_open_stream_is_kept_for_resumption() {
    let line = connect(Transport::Streamable, &odd_over_stdio()).await;
    let client = &line.client;
    let text = call_with_progress("\"r\"", "progress", r#"{"steps":1,"ms":100}"#, "1");
    client.send(&text).await;
    client.method_after(0, "notifications/progress", 1).await;
    client.drop_streams();
    // The later call is answered after the earlier one, so the earlier response exists now.
    client.request(&call("2", "sleep", r#"{"ms":300}"#)).await;
    let last = client
        .last_event_id(&Stream::Post("\"r\"".into()))
        .expect("events of a call carry ids");
    assert_eq!(client.open_stream(Some(&last)).await, 200);
    client.answer("\"r\"").await;
}

#[tokio::test]
async fn event_ids_are_unique_and_independent_of_the_upstream() {
    let upstream = odd().start(Transport::Streamable).await;
    let line = connect(Transport::Streamable, &upstream).await;
    for n in 0..5 {
        let text = call_with_progress(&n.to_string(), "progress", "{}", &n.to_string());
        line.client.request(&text).await;
    }
    line.client.request(&call("9", "change_list", "{}")).await;
    line.client
        .method_after(0, "notifications/tools/list_changed", 1)
        .await;
    let ids: Vec<String> = line
        .client
        .received_messages()
        .into_iter()
        .filter_map(|message| message.event_id)
        .collect();
    assert!(ids.len() >= 20, "{ids:?}");
    assert!(!ids.iter().any(|id| id.starts_with("odd:")), "{ids:?}");
    assert_eq!(
        ids.iter().collect::<HashSet<_>>().len(),
        ids.len(),
        "{ids:?}"
    );
}

#[tokio::test]
async fn broken_upstream_streams_are_resumed_by_the_proxy() {
    for downstream in Transport::ALL {
        let upstream = odd().start(Transport::Streamable).await;
        let line = connect(downstream, &upstream).await;
        let answer = line.client.request(&call("1", "cut_stream", "{}")).await;
        assert!(answer.text.contains("after all"), "{}", answer.text);
        line.client
            .method_after(0, "notifications/odd/after", 1)
            .await;
    }
}
