//! The limit on concurrent calls, and the release of a slot however its call ends.

use std::time::Duration;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::fixture::Transport;
use riglm_tests::messages::{call, initialize};
use riglm_tests::process::descendants;
use riglm_tests::riglm::{Options, ProxiedClient};
use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use super::{connect, refusal, serve};
use crate::odd_over_stdio;

const ONE: &str = r#"
[[safeguards.limits.rules]]
tools = ["wait_cancel", "sleep", "empty"]
scope = "global"
max_concurrent = 1
"#;

/// Starts an endless call, and waits until it has reached the server.
async fn begin_endless_call(client: &RawClient, id: &str) {
    let start = client.n_received();
    let text = call(id, "wait_cancel", "{}");
    client.send(&text).await;
    client.method_after(start, "notifications/message", 1).await;
}

/// Waits until a call is made, because a slot is released in the background.
async fn wait_until_call_is_made(client: &RawClient, from: u32) {
    for id in from..from + 100 {
        if refusal(client, id, "empty", "{}").await.is_none() {
            return;
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    panic!("the place was not given up");
}

#[tokio::test]
async fn cancelled_calls_free_their_slot_over_stdio_and_http() {
    for downstream in [Transport::Stdio, Transport::Streamable] {
        let options = Options::with_configuration(ONE);
        let line =
            ProxiedClient::through(downstream, &odd_over_stdio(), &options, Answers::default())
                .await;
        let client = &line.client;
        client.initialize(&initialize("\"i\"", "2025-11-25")).await;
        assert_eq!(refusal(client, 1, "empty", "{}").await, None);
        assert_eq!(
            refusal(client, 2, "empty", "{}").await,
            None,
            "the first one has ended"
        );
        begin_endless_call(client, "3").await;
        let refused = refusal(client, 4, "empty", "{}").await.unwrap();
        let told = "1 call of tools like wait_cancel, sleep, empty may run at the same time";
        assert!(refused.contains(told), "{refused}");
        client.cancel("3").await;
        wait_until_call_is_made(client, 5).await;
    }
}

#[tokio::test]
async fn calls_of_dead_upstreams_release_their_permit() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path(), ONE).await;
    let client = connect(&riglm, None, "one").await;
    begin_endless_call(&client, "1").await;
    // The other client has its own server, which keeps running.
    let servers: Vec<u32> = descendants(riglm.process.pid())
        .into_iter()
        .filter(|pid| {
            let line = riglm_tests::process::command_line(*pid);
            line.contains("odd-server stdio") && !line.contains("__guard")
        })
        .collect();
    let other = connect(&riglm, None, "two").await;
    assert!(refusal(&other, 1, "empty", "{}").await.is_some());
    for pid in servers {
        if let Some(pid) = i32::try_from(pid).ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    let lost = client.answer("1").await;
    assert!(lost.text.contains("-31001"), "{}", lost.text);
    wait_until_call_is_made(&other, 2).await;
}

#[tokio::test]
async fn timed_out_calls_release_their_permit() {
    let data = TempDir::new().unwrap();
    let toml = format!("{ONE}\n[limits]\ncall_timeout = \"1s\"\n");
    let riglm = serve(data.path(), &toml).await;
    let client = connect(&riglm, None, "one").await;
    begin_endless_call(&client, "1").await;
    assert!(refusal(&client, 2, "empty", "{}").await.is_some());
    let late = client.answer("1").await;
    assert!(late.text.contains("-31002"), "{}", late.text);
    wait_until_call_is_made(&client, 3).await;
}

#[tokio::test]
async fn calls_of_ended_sessions_release_their_permit() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path(), ONE).await;
    let client = connect(&riglm, None, "one").await;
    let other = connect(&riglm, None, "two").await;
    begin_endless_call(&client, "1").await;
    assert!(refusal(&other, 1, "empty", "{}").await.is_some());
    assert_eq!(client.delete().await, 204);
    wait_until_call_is_made(&other, 2).await;
}

#[tokio::test]
async fn calls_at_one_upstream_are_limited_together() {
    let data = TempDir::new().unwrap();
    let toml = "[safeguards.limits]\nmax_concurrent = 2\n";
    let riglm = serve(data.path(), toml).await;
    let client = connect(&riglm, None, "one").await;
    begin_endless_call(&client, "1").await;
    assert_eq!(refusal(&client, 2, "empty", "{}").await, None);
    begin_endless_call(&client, "3").await;
    let refused = refusal(&client, 4, "echo", "{}").await.unwrap();
    let told =
        "2 calls of the tools of this server may run at the same time by all clients together";
    assert!(refused.contains(told), "{refused}");
    client.cancel("1").await;
    wait_until_call_is_made(&client, 5).await;
}
