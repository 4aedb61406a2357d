//! The connection to the upstream: lost, forgotten, refused and made again.

use std::time::Duration;

use bytes::Bytes;
use riglm_domain::mcp::message::Message;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::upstream::UpstreamError;

use crate::scene::{HELLO, Setup, WELCOME, call, id};

#[tokio::test]
async fn lost_connections_fail_their_calls_and_are_restored() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    let ready = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
    scene.send(ready).await;
    scene.send(&call(1)).await;
    scene
        .upstream
        .lose_connection(UpstreamError::Lost {
            reason: "exit status 1".into(),
        })
        .await;
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::UpstreamUnavailable.code().to_string())
    );
    assert_eq!(scene.outcomes().await, [Some(Outcome::Error)]);
    scene.send(&call(2)).await;
    let again: Vec<String> = scene
        .upstream
        .sent_messages()
        .into_iter()
        .filter(|(connection, _)| *connection == 1)
        .map(|(_, text)| text)
        .collect();
    let hello_again = HELLO.replace(r#""hello""#, r#""riglm:initialize:2""#);
    assert_eq!(again, [hello_again, ready.to_owned(), call(2)]);
    assert!(
        !scene.last().contains("riglm:"),
        "the proxy's own answer reached the client"
    );
}

#[tokio::test]
async fn expired_sessions_are_restored_and_requests_resent() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    scene
        .upstream
        .leave_unanswered(id(1), UpstreamError::SessionExpired)
        .await;
    while scene
        .upstream
        .sent_messages()
        .iter()
        .filter(|(_, text)| *text == call(1))
        .count()
        < 2
    {
        tokio::task::yield_now().await;
    }
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn failed_upstream_starts_are_answered_without_back_off() {
    let scene = Setup::default().scene();
    scene.upstream.refuse_connection(UpstreamError::NotStarted {
        reason: "no such file".into(),
    });
    scene.send(HELLO).await;
    assert!(scene.last().contains("no such file"), "{}", scene.last());
    scene.send(HELLO).await;
    assert!(scene.last().contains("serverInfo"), "{}", scene.last());
}

#[tokio::test]
async fn repeatedly_expiring_sessions_are_restored_without_delay() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    for number in 1..=12 {
        scene.send(&call(number)).await;
        scene
            .upstream
            .leave_unanswered(id(number), UpstreamError::SessionExpired)
            .await;
        let sent = call(number);
        let again = async {
            while scene
                .upstream
                .sent_messages()
                .iter()
                .filter(|(_, text)| *text == sent)
                .count()
                < 2
            {
                tokio::task::yield_now().await;
            }
        };
        tokio::time::timeout(Duration::from_secs(1), again)
            .await
            .unwrap();
        let answer = format!(r#"{{"jsonrpc":"2.0","id":{number},"result":{{}}}}"#);
        scene.upstream.send_to_client(&answer, None).await;
    }
    assert!(
        scene
            .outcomes()
            .await
            .iter()
            .all(|outcome| *outcome == Some(Outcome::Ok))
    );
}

#[tokio::test]
async fn a_failed_delivery_does_not_end_the_session() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.send(&call(1)).await;
    scene.upstream.refuse_message(UpstreamError::Lost {
        reason: "one connection broke".into(),
    });
    let note = r#"{"jsonrpc":"2.0","method":"notifications/roots/list_changed"}"#;
    let message = Message::parse(&Bytes::from(note.to_owned())).unwrap();
    let refused = scene.session.receive(message).await.unwrap_err();
    assert_eq!(refused.code, RpcErrorCode::UpstreamUnavailable);
    assert_eq!(scene.upstream.connections(), (1, 0));
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn a_handshake_in_a_batch_repeats_nothing_but_itself() {
    let scene = Setup::default().scene();
    scene
        .upstream
        .reply_to("initialize", &WELCOME.replace("2025-06-18", "2025-03-26"));
    scene.send(HELLO).await;
    scene
        .send(&format!(
            r"[{},{}]",
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
            call(2)
        ))
        .await;
    scene
        .upstream
        .lose_connection(UpstreamError::Lost {
            reason: "exit".into(),
        })
        .await;
    scene.send(&call(3)).await;
    let n_calls = scene
        .upstream
        .sent_messages()
        .iter()
        .filter(|(_, text)| text.contains(r#""id":2"#))
        .count();
    assert_eq!(n_calls, 1);
}

#[tokio::test]
async fn the_negotiated_revision_holds_until_the_next_handshake_succeeds() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene
        .upstream
        .reply_to("initialize", r#""error":{"code":-1,"message":"no"}"#);
    let again = r#"{"jsonrpc":"2.0","id":"again","method":"initialize","params":{}}"#;
    scene.send(again).await;
    scene.send(&format!("[{}]", call(1))).await;
    assert!(
        scene.last().contains("does not support JSON-RPC batches"),
        "{}",
        scene.last()
    );
}
