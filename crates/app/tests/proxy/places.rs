//! Places among the connections of an upstream, and who has to make one.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_app::proxy::ClientSession;
use riglm_domain::message::Message;
use riglm_domain::principal::Principal;
use riglm_domain::protocol::Transport;
use riglm_ports::fake::RecordingClient;

use crate::scene::{HELLO, Scene, Setup};

/// Returns a session that has the only place there is, and a second one that wants it.
async fn full() -> (Scene, Arc<RecordingClient>, Arc<ClientSession>) {
    let setup = Setup {
        max_connections: 1,
        ..Setup::default()
    };
    let scene = setup.scene();
    scene.send(HELLO).await;
    let client = Arc::new(RecordingClient::default());
    let other = scene
        .proxy
        .accept(
            Transport::StreamableHttp,
            &Principal::local(),
            client.clone(),
        )
        .unwrap();
    (scene, client, other)
}

#[tokio::test]
async fn a_silent_client_makes_place_for_one_that_comes() {
    let (scene, client, other) = full().await;
    let hello = Message::from_text(HELLO.into()).unwrap();
    let coming = tokio::spawn(async move { other.receive(hello).await });
    let arriving = async {
        while client.delivered().is_empty() {
            scene.proxy.sweep(Instant::now() + Duration::from_secs(11));
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(10), arriving)
        .await
        .unwrap();
    coming.await.unwrap().unwrap();
    let (answer, _) = client.delivered().remove(0);
    assert!(answer.contains("\"result\""), "{answer}");
    assert_eq!(scene.upstream.connections(), (2, 1));
}

#[tokio::test]
async fn where_nobody_was_silent_for_long_a_client_that_comes_is_refused() {
    let (scene, client, other) = full().await;
    let hello = Message::from_text(HELLO.into()).unwrap();
    other.receive(hello).await.unwrap();
    let (answer, _) = client.delivered().remove(0);
    assert!(answer.contains("max_connections"), "{answer}");
    assert_eq!(scene.upstream.connections(), (1, 0));
}
