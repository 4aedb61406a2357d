//! One handshake for all sessions.

use std::time::Duration;

use riglm_ports::upstream::UpstreamError;

use crate::scene::Scene;

const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;

fn hello(id: u32) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":{id},"method":"initialize","params":{{"protocolVersion":"2025-06-18","capabilities":{{"sampling":{{}}}},"clientInfo":{{"name":"n","version":"1"}}}}}}"#
    )
}

#[tokio::test(start_paused = true)]
async fn the_server_is_greeted_once_and_without_capabilities() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&hello(1)).await;
    b.send(&hello(2)).await;
    let greeting = hello(1)
        .replace(r#""id":1"#, r#""id":"riglm:s:1""#)
        .replace(r#"{"sampling":{}}"#, "{}");
    assert_eq!(scene.sent_messages(), [greeting]);

    let welcome = |id: &str| format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{{"x":1.0}}}}"#);
    scene.say(&welcome(r#""riglm:s:1""#)).await;
    let c = scene.session().await;
    c.send(&hello(3)).await;
    assert_eq!(a.received_messages(), [format!("{} on 1", welcome("1"))]);
    assert_eq!(b.received_messages(), [format!("{} on 2", welcome("2"))]);
    assert_eq!(c.received_messages(), [format!("{} on 3", welcome("3"))]);

    for session in [&b, &a, &c] {
        session.send(INITIALIZED).await;
    }
    assert_eq!(scene.sent_messages()[1..], [INITIALIZED]);
}

#[tokio::test(start_paused = true)]
async fn refused_handshakes_reach_all_sessions_and_can_be_retried() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&hello(1)).await;
    b.send(&hello(2)).await;
    let refusal = |id: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":-32602,"message":""}}}}"#)
    };
    scene.say(&refusal(r#""riglm:s:1""#)).await;
    assert_eq!(a.received_messages(), [format!("{} on 1", refusal("1"))]);
    assert_eq!(b.received_messages(), [format!("{} on 2", refusal("2"))]);
    b.send(&hello(3)).await;
    assert_eq!(scene.sent_messages().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_first_session_may_leave_before_the_server_answers() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&hello(1)).await;
    b.send(&hello(2)).await;
    a.link.close().await;
    scene
        .say(r#"{"jsonrpc":"2.0","id":"riglm:s:1","result":{}}"#)
        .await;
    assert_eq!(
        b.received_messages(),
        [r#"{"jsonrpc":"2.0","id":2,"result":{}} on 2"#]
    );
    assert_eq!(scene.sent_messages().len(), 1);
}

#[tokio::test(start_paused = true)]
async fn unanswered_handshakes_do_not_block_others_forever() {
    let scene = Scene::new();
    let (a, b) = (scene.session().await, scene.session().await);
    a.send(&hello(1)).await;
    tokio::time::sleep(Duration::from_secs(31)).await;
    assert_eq!(
        b.try_send(&hello(2)).await,
        Err(UpstreamError::SessionExpired)
    );
    let c = scene.session().await;
    c.send(&hello(3)).await;
    assert_eq!(scene.upstream.connections(), (2, 0));
    assert_eq!(scene.upstream.sent_messages()[1].0, 1);
}
