//! Requests in flight: their ids, their deadlines, their number.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use riglm_app::limits::Limits;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::downstream::Route;
use riglm_ports::fake::RecordingClient;

use crate::scene::{Setup, call, id};

#[tokio::test]
async fn duplicate_ids_are_refused_without_affecting_the_first_request() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.send(&call(1)).await;
    assert!(
        scene.last().contains(r#""id":1,"error":{"code":-32600"#),
        "{}",
        scene.last()
    );
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.last(), r#"{"jsonrpc":"2.0","id":1,"result":{}}"#);
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn a_cancelled_call_is_recorded_and_its_late_answer_changes_nothing() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#;
    scene.send(cancel).await;
    assert_eq!(scene.upstream.sent_messages().last().unwrap().1, cancel);
    assert_eq!(scene.client.finished_requests(), [id(1)]);
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
}

#[tokio::test]
async fn a_request_past_its_deadline_is_answered_and_cancelled_upstream() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    while scene.client.delivered_messages().is_empty() || scene.upstream.sent_messages().len() < 2 {
        tokio::task::yield_now().await;
    }
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::UpstreamTimeout.code().to_string())
    );
    assert!(
        scene
            .upstream
            .sent_messages()
            .last()
            .unwrap()
            .1
            .contains("notifications/cancelled")
    );
    assert_eq!(scene.outcomes().await, [Some(Outcome::Timeout)]);
}

#[tokio::test]
async fn calls_do_not_time_out_during_client_input() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene
        .upstream
        .send_to_client(
            r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}"#,
            None,
        )
        .await;
    assert_eq!(
        scene.client.delivered_messages().last().unwrap().1,
        Route::Related(id(1))
    );
    scene.proxy.sweep(Instant::now() + Duration::from_mins(5));
    tokio::task::yield_now().await;
    assert_eq!(scene.outcomes().await, [None]);
}

#[tokio::test]
async fn too_many_requests_are_refused_and_places_become_free_again() {
    let limits = Limits {
        in_flight_per_session: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    for number in 1..=3 {
        scene.send(&call(number)).await;
    }
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::LimitReached.code().to_string())
    );
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    scene.send(&call(4)).await;
    assert_eq!(scene.upstream.sent_messages().len(), 3);
}

#[tokio::test]
async fn cancelled_requests_free_slots_only_for_other_sessions() {
    let limits = Limits {
        in_flight: 2,
        in_flight_per_session: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    for number in 1..=2 {
        scene.send(&call(number)).await;
        scene
            .send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number}}}}}"#
            ))
            .await;
    }
    scene.send(&call(3)).await;
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::LimitReached.code().to_string())
    );
    let client = Arc::new(RecordingClient::default());
    let other = scene
        .proxy
        .accept(Transport::Sse, &Principal::local(), client.clone())
        .unwrap();
    other
        .receive(Message::parse(&Bytes::from(call(1))).unwrap())
        .await
        .unwrap();
    assert!(
        client.delivered_messages().is_empty(),
        "{:?}",
        client.delivered_messages()
    );
}

#[tokio::test]
async fn cancelled_modern_requests_release_their_permits() {
    let limits = Limits {
        in_flight: 2,
        in_flight_per_session: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    let meta = r#""params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}},"#;
    let modern = |number| call(number).replace(r#""params":{"#, meta);
    for number in 1..=5 {
        scene.send(&modern(number)).await;
        scene
            .send(&format!(
                r#"{{"jsonrpc":"2.0","method":"notifications/cancelled","params":{{"requestId":{number}}}}}"#
            ))
            .await;
    }
    scene.send(&modern(6)).await;
    assert!(
        scene.client.delivered_messages().is_empty(),
        "{}",
        scene.last()
    );
    let outcomes = scene.outcomes().await;
    assert_eq!(outcomes.last(), Some(&None));
    assert_eq!(outcomes[..5], [Some(Outcome::Cancelled); 5]);
}

#[tokio::test]
async fn withdrawn_server_requests_do_not_extend_deadlines() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene
        .upstream
        .send_to_client(r#"{"id":9,"method":"elicitation/create"}"#, None)
        .await;
    let back = r#"{"method":"notifications/cancelled","params":{"requestId":9}}"#;
    scene.upstream.send_to_client(back, None).await;
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    while scene.outcomes().await == [None] {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.outcomes().await, [Some(Outcome::Timeout)]);
}

#[tokio::test]
async fn server_questions_extend_only_the_deadline_of_their_request() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.send(&call(2)).await;
    scene
        .upstream
        .send_to_client(r#"{"id":9,"method":"elicitation/create"}"#, Some(id(1)))
        .await;
    scene.proxy.sweep(Instant::now() + Duration::from_mins(2));
    while scene.outcomes().await == [None, None] {
        tokio::task::yield_now().await;
    }
    assert_eq!(scene.outcomes().await, [None, Some(Outcome::Timeout)]);
}

#[tokio::test]
async fn client_ids_inside_the_own_namespace_are_preserved() {
    let scene = Setup::default().scene();
    let own = |id: &str| call(1).replace(r#""id":1"#, &format!(r#""id":"{id}""#));
    scene.send(&own("riglm:initialize:2")).await;
    let inside = "riglm:c:riglm:initialize:2";
    let (_, sent) = scene.upstream.sent_messages().pop().unwrap();
    assert_eq!(sent, own(inside));
    let answer = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":"{id}","result":{{}}}}"#);
    let inner = riglm_domain::mcp::message::RequestId::Text(inside.into());
    scene
        .upstream
        .send_to_client(&answer(inside), Some(inner))
        .await;
    assert_eq!(scene.last(), answer("riglm:initialize:2"));
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"riglm:u:1"}}"#;
    scene.send(&own("riglm:u:1")).await;
    scene.send(cancel).await;
    let (_, sent) = scene.upstream.sent_messages().pop().unwrap();
    assert_eq!(sent, cancel.replace("riglm:u:1", "riglm:c:riglm:u:1"));
}

/// Makes a call with the progress token 5, sends messages of the server and of the client, and lets
/// the original deadline pass. Returns the outcome of the call, if it ended.
async fn ended_after(said: &[&str], answered: &[&str]) -> Option<Outcome> {
    let scene = Setup::default().scene();
    let meta = r#""params":{"_meta":{"progressToken":5},"#;
    scene.send(&call(1).replace(r#""params":{"#, meta)).await;
    let sent = Instant::now();
    while Instant::now() <= sent {
        tokio::task::yield_now().await;
    }
    for text in said {
        scene.upstream.send_to_client(text, Some(id(1))).await;
    }
    for text in answered {
        scene.send(text).await;
    }
    scene.proxy.sweep(sent + Limits::default().call_timeout);
    // Timeouts are reported by a separate task.
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    scene.outcomes().await[0]
}

#[tokio::test]
async fn log_messages_do_not_prolong_a_call() {
    let log =
        r#"{"jsonrpc":"2.0","method":"notifications/message","params":{"level":"info","data":1}}"#;
    let other = r#"{"jsonrpc":"2.0","method":"notifications/x","params":{"progressToken":5}}"#;
    assert_eq!(
        ended_after(&[log, other], &[]).await,
        Some(Outcome::Timeout)
    );
}

#[tokio::test]
async fn progress_extends_only_the_call_of_its_token() {
    let progress = |token: u32| {
        format!(
            r#"{{"jsonrpc":"2.0","method":"notifications/progress","params":{{"progressToken":{token},"progress":1}}}}"#
        )
    };
    assert_eq!(ended_after(&[&progress(5)], &[]).await, None);
    let other = ended_after(&[&progress(6)], &[]).await;
    assert_eq!(other, Some(Outcome::Timeout));
}

#[tokio::test]
async fn deadlines_exclude_time_waiting_for_client_input() {
    let ask = r#"{"jsonrpc":"2.0","id":9,"method":"elicitation/create"}"#;
    let answer = r#"{"jsonrpc":"2.0","id":9,"result":{}}"#;
    assert_eq!(ended_after(&[ask], &[answer]).await, None);
    let ping = r#"{"jsonrpc":"2.0","id":9,"method":"ping"}"#;
    for answered in [&[answer][..], &[]] {
        let ended = ended_after(&[ping], answered).await;
        assert_eq!(ended, Some(Outcome::Timeout));
    }
}
