//! Handshakes: one for each client in the metadata of requests, and again after a loss.

use std::time::Duration;

use riglm_domain::mcp::message::{Message, RequestId};
use riglm_ports::upstream::{SendOutcome, UpstreamError, UpstreamLink};
use serde_json::json;
use tokio::time::Instant;

use crate::scene::{ALL, Report, Scene, request};

const LIST: &str = "tools/list";

fn lost_error() -> UpstreamError {
    UpstreamError::Lost { reason: "r".into() }
}

#[tokio::test(start_paused = true)]
async fn handshakes_repeat_the_client_information() {
    let scene = Scene::with(r#"{ "roots":{},"n":1.0}"#, |_| {});
    scene.request("1", LIST, "", "").await;
    assert_eq!(
        scene.sent_messages()[..2],
        [
            r#"{"jsonrpc":"2.0","id":"riglm:init","method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{ "roots":{},"n":1.0},"clientInfo":{"name":"c","version":"2"}}}"#,
            r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#,
        ]
    );
    assert_eq!(scene.sent_messages().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_client_without_a_name_is_unknown() {
    let scene = Scene::new();
    let text = request(ALL, "1", LIST, "", "");
    let nameless = text.replace("clientInfo", "other");
    scene.send(&nameless).await.unwrap();
    let unknown = r#""clientInfo":{"name":"unknown","version":"0"}"#;
    assert!(
        scene.sent_messages()[0].contains(unknown),
        "{:?}",
        scene.sent_messages()
    );
}

#[tokio::test(start_paused = true)]
async fn equal_capabilities_and_levels_share_a_connection() {
    let scene = Scene::new();
    let level = r#","io.modelcontextprotocol/logLevel":"info""#;
    for (id, capabilities, meta) in [
        ("1", r#"{"roots":{},"sampling":{}}"#, ""),
        ("2", r#"{ "sampling":{}, "roots" : {}}"#, ""),
        ("3", r#"{"roots":{}}"#, ""),
        ("4", r#"{"roots":{}}"#, level),
        ("5", r#"{"roots":{}}"#, level),
    ] {
        scene.request_as(capabilities, id, LIST, "", meta).await;
    }
    assert_eq!(scene.upstream.connections(), (3, 0));
    assert_eq!(scene.n_sent("initialize"), 3);
    assert_eq!(scene.n_sent("logging/setLevel"), 1);
    let sent = scene.upstream.sent_messages();
    let lists = sent.iter().filter(|(_, text)| text.contains(LIST));
    let lists: Vec<usize> = lists.map(|(connection, _)| *connection).collect();
    assert_eq!(lists, [0, 0, 1, 2, 2]);
}

#[tokio::test(start_paused = true)]
async fn first_requests_at_the_same_time_make_one_connection() {
    let scene = Scene::new();
    let send = |id: &str| {
        let message = Message::from_text(request(ALL, id, LIST, "", "")).unwrap();
        scene.link.send(message)
    };
    let mut exchanges = Vec::new();
    for id in ["1", "2", "3"] {
        if let SendOutcome::UnderWay(exchange) = send(id).await.unwrap() {
            exchanges.push(exchange);
        }
    }
    assert_eq!(scene.sent_messages(), Vec::<String>::new());
    for exchange in exchanges {
        exchange.run.await;
    }
    assert_eq!(scene.upstream.connections(), (1, 0));
    assert_eq!(scene.n_sent(LIST), 3);
}

#[tokio::test(start_paused = true)]
async fn failed_handshakes_leave_requests_unanswered_and_are_retried() {
    let scene = Scene::new();
    scene
        .upstream
        .reply_to("initialize", r#""error":{"code":-32602,"message":"m"}"#);
    scene.request("1", LIST, "", "").await;
    let reason = "m (code -32602)".into();
    let refusal = UpstreamError::Refused { reason };
    let expected = Report::Unanswered(RequestId::Number("1".into()), refusal);
    assert_eq!(scene.next().await, expected);
    let refused = UpstreamError::Unreachable { reason: "r" };
    scene.upstream.refuse_connection(refused.clone());
    scene.request("2", LIST, "", "").await;
    let expected = Report::Unanswered(RequestId::Number("2".into()), refused);
    assert_eq!(scene.next().await, expected);
    scene.upstream.reply_to("initialize", crate::scene::WELCOME);
    scene.upstream.reply_to(LIST, r#""result":{}"#);
    scene.request("3", LIST, "", "").await;
    assert_eq!(scene.next().await.json()["id"], 3);
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test(start_paused = true)]
async fn unfinished_handshakes_time_out() {
    let scene = Scene::of_silent_server(|options| {
        options.handshake_timeout = Duration::from_secs(3);
    });
    let start = Instant::now();
    scene.request("1", LIST, "", "").await;
    let expected = Report::Unanswered(RequestId::Number("1".into()), UpstreamError::NoAnswer);
    assert_eq!(scene.next().await, expected);
    assert_eq!(start.elapsed().as_secs(), 3);
    assert_eq!(scene.upstream.connections(), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn lost_connections_fail_open_requests_and_are_reopened() {
    let scene = Scene::new();
    scene.call("1").await;
    scene.upstream.lose_connection(lost_error()).await;
    let expected = Report::Unanswered(RequestId::Number("1".into()), lost_error());
    assert_eq!(scene.next().await, expected);
    scene.upstream.reply_to("tools/call", r#""result":{}"#);
    scene.call("2").await;
    assert_eq!(scene.next().await.json()["id"], 2);
    assert_eq!(
        (scene.upstream.connections().0, scene.n_sent("initialize")),
        (2, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn calls_on_expired_sessions_are_retried_once() {
    let scene = Scene::new();
    scene.call("1").await;
    let old = RequestId::Text(scene.legacy_id("tools/call").into());
    let expired = UpstreamError::SessionExpired;
    scene
        .upstream
        .leave_unanswered(old.clone(), expired.clone())
        .await;
    scene.nothing_within(Duration::from_secs(1)).await;
    assert_eq!(
        (scene.n_sent("initialize"), scene.n_sent("tools/call")),
        (2, 2)
    );
    scene.upstream.leave_unanswered(old, expired).await;
    let Report::Unanswered(_, UpstreamError::Lost { .. }) = scene.next().await else {
        panic!("the second time it fails");
    };
    scene.nothing_within(Duration::from_secs(3)).await;
    assert_eq!(scene.n_sent("tools/call"), 2);
    assert_eq!(scene.upstream.connections(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn unsendable_messages_use_a_new_connection() {
    let scene = Scene::new();
    scene.upstream.reply_to(LIST, r#""result":{}"#);
    scene.request("1", LIST, "", "").await;
    scene.next().await;
    scene.upstream.refuse_message(lost_error());
    scene.request("2", LIST, "", "").await;
    assert_eq!(scene.next().await.json()["id"], 2);
    assert_eq!(scene.upstream.connections().0, 2);
}

#[tokio::test(start_paused = true)]
async fn idle_connections_are_closed() {
    let scene = Scene::new();
    scene.upstream.reply_to(LIST, r#""result":{}"#);
    scene.request("1", LIST, "", "").await;
    scene
        .request_as("{}", "2", "tools/call", r#""name":"t""#, "")
        .await;
    scene.next().await;
    tokio::time::sleep(Duration::from_mins(4)).await;
    assert_eq!(scene.upstream.connections(), (2, 0));
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert_eq!(scene.upstream.connections(), (2, 1));
    scene
        .answer(&scene.legacy_id("tools/call"), r#""result":{}"#)
        .await;
    tokio::time::sleep(Duration::from_mins(11)).await;
    assert_eq!(scene.upstream.connections(), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn the_connection_unused_for_the_longest_time_makes_room() {
    let scene = Scene::new();
    scene.upstream.reply_to(LIST, r#""result":{}"#);
    for n in 0..8 {
        let capabilities = json!({"roots": {"n": n}}).to_string();
        scene
            .request_as(&capabilities, &n.to_string(), LIST, "", "")
            .await;
        scene.next().await;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(scene.upstream.connections(), (8, 0));
    scene.request("8", LIST, "", "").await;
    scene.next().await;
    assert_eq!(scene.upstream.connections(), (9, 1));
    let second = r#"{"roots":{"n":1}}"#;
    scene.request_as(second, "9", LIST, "", "").await;
    scene.next().await;
    assert_eq!(scene.upstream.connections(), (9, 1));
}

#[tokio::test(start_paused = true)]
async fn connections_in_use_make_no_room() {
    let scene = Scene::new();
    for n in 0..8 {
        let capabilities = json!({"roots": {"n": n}}).to_string();
        scene
            .request_as(
                &capabilities,
                &n.to_string(),
                "tools/call",
                r#""name":"t""#,
                "",
            )
            .await;
    }
    let refused = scene.send(&request(ALL, "8", LIST, "", "")).await;
    assert!(matches!(refused, Err(UpstreamError::Busy { .. })));
    assert_eq!(scene.upstream.connections(), (8, 0));
}
