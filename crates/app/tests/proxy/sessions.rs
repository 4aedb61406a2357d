//! Sessions: their number and their end.

use std::sync::Arc;
use std::time::{Duration, Instant};

use riglm_app::limits::Limits;
use riglm_domain::mcp::protocol::Transport;
use riglm_domain::mcp::rpc_error::RpcErrorCode;
use riglm_domain::privacy::principal::Principal;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::fake::RecordingClient;

use crate::scene::{HELLO, Setup, call};

#[tokio::test]
async fn idle_sessions_are_ended() {
    let scene = Setup::default().scene();
    scene.send(HELLO).await;
    scene.proxy.sweep(Instant::now() + Duration::from_hours(1));
    scene.session.close().await; // Waits for the end that the sweep began.
    assert!(scene.client.is_closed());
    scene.proxy.sweep(Instant::now());
    assert_eq!(scene.proxy.n_sessions(), 0);
}

#[tokio::test]
async fn sessions_are_limited_in_all_and_for_each_principal() {
    let limits = Limits {
        sessions: 3,
        sessions_per_principal: 2,
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    let accept = |name: &str| {
        let client = Arc::new(RecordingClient::default());
        scene
            .proxy
            .accept(Transport::Sse, &Principal::from_name(name), client)
    };
    let first = accept("a").unwrap();
    accept("a").unwrap();
    assert_eq!(accept("a").unwrap_err().code, RpcErrorCode::LimitReached);
    assert_eq!(accept("b").unwrap_err().code, RpcErrorCode::LimitReached);
    first.close().await;
    assert!(accept("b").is_ok());
}

#[tokio::test]
async fn abandoned_sessions_yield_to_new_ones_of_their_principal() {
    let limits = Limits {
        sessions: 3,
        sessions_per_principal: 2,
        idle_timeout: Duration::from_millis(50),
        ..Limits::default()
    };
    let scene = Setup {
        limits,
        ..Setup::default()
    }
    .scene();
    let accept = |transport: Transport, name: &str| {
        let client = Arc::new(RecordingClient::default());
        let principal = Principal::from_name(name);
        let accepted = scene
            .proxy
            .accept(transport, &principal, Arc::clone(&client) as _);
        (accepted, client)
    };
    let (_, first) = accept(Transport::Sse, "a");
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (_, second) = accept(Transport::Sse, "a");
    let (third, _) = accept(Transport::Sse, "a");
    let third = third.expect("the first one was abandoned");
    let ended = tokio::time::timeout(Duration::from_secs(10), async {
        while !first.is_closed() {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    });
    assert!(ended.await.is_ok(), "the first session goes on");
    assert!(!second.is_closed());
    // Sessions of other principals stay, and so do sessions with a connected client.
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (stranger, _) = accept(Transport::Sse, "b");
    assert_eq!(stranger.unwrap_err().code, RpcErrorCode::LimitReached);
    third.close().await;
    let (listening, _) = accept(Transport::Stdio, "b");
    listening.expect("there is a place");
    tokio::time::sleep(Duration::from_millis(60)).await;
    let (another, _) = accept(Transport::Sse, "b");
    assert_eq!(another.unwrap_err().code, RpcErrorCode::LimitReached);
}

#[tokio::test]
async fn at_shutdown_requests_in_flight_end_and_new_ones_are_refused() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    let shutdown = scene.proxy.shutdown();
    tokio::pin!(shutdown);
    assert!(futures_util::poll!(shutdown.as_mut()).is_pending());
    scene.send(&call(2)).await;
    assert!(scene.last().contains("shutting down"), "{}", scene.last());
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    shutdown.await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
    assert!(scene.client.is_closed());
}

#[tokio::test]
async fn each_shutdown_call_waits_for_requests_in_flight() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    let calls = [scene.proxy.shutdown(), scene.proxy.shutdown()];
    let [first, second] = calls.map(Box::pin);
    let mut both = futures_util::future::join(first, second);
    assert!(futures_util::poll!(&mut both).is_pending());
    let mut late = Box::pin(scene.proxy.shutdown());
    assert!(futures_util::poll!(&mut late).is_pending());
    scene
        .upstream
        .send_to_client(r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, None)
        .await;
    both.await;
    late.await;
    assert_eq!(scene.outcomes().await, [Some(Outcome::Ok)]);
    assert_eq!(scene.proxy.n_sessions(), 0);
}

#[tokio::test]
async fn calls_in_flight_are_answered_when_their_session_ends() {
    let scene = Setup::default().scene();
    scene.send(&call(1)).await;
    scene.session.close().await;
    assert!(
        scene
            .last()
            .contains(&RpcErrorCode::SessionNotFound.code().to_string())
    );
    assert_eq!(scene.outcomes().await, [Some(Outcome::Cancelled)]);
}
