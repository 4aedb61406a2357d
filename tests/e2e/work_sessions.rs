//! Work sessions: the calls of one task belong together, over all connections of a client.

use std::collections::BTreeSet;
use std::path::Path;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, initialize, request_with};
use riglm_tests::riglm::{Options, Riglm, rows};
use serde_json::Value;
use tempfile::TempDir;

use crate::odd_over_stdio;

async fn serve(data_dir: &Path) -> Riglm {
    Riglm::serve(&odd_over_stdio(), data_dir, &Options::default()).await
}

/// Returns a connection of a client with this name.
async fn connect(riglm: &Riglm, name: &str) -> RawClient {
    let client = riglm.client(Answers::default());
    let hello = initialize("0", "2025-11-25");
    client.initialize(&hello.replace("raw-client", name)).await;
    client
}

/// Calls the tool with the name of the client, `n` times.
async fn calls(client: &RawClient, name: &str, n: usize) {
    for id in 0..n {
        client.request(&call(&id.to_string(), name, "{}")).await;
    }
}

/// Makes the calls of four kinds of clients.
async fn make_calls_of_all_kinds(riglm: &Riglm) {
    let one = connect(riglm, "one").await;
    calls(&one, "one", 3).await;
    for _ in 0..2 {
        let reconnecting = connect(riglm, "reconnecting").await;
        calls(&reconnecting, "reconnecting", 3).await;
        reconnecting.delete().await;
    }
    for _ in 0..3 {
        let each = connect(riglm, "each-call").await;
        calls(&each, "each-call", 1).await;
    }
    let mut keyed = Vec::new();
    for way in 0..2 {
        let client = connect(riglm, "keyed").await;
        if way == 0 {
            client.set_header("x-riglm-session", "job 1");
            calls(&client, "keyed", 2).await;
        } else {
            let params = r#""name":"keyed","_meta":{"io.github.riglm/session":"job 1"}"#;
            let params = format!("{{{params}}}");
            client
                .request(&request_with("7", "tools/call", &params))
                .await;
        }
        // Connections stay open and are used concurrently.
        keyed.push(client);
    }
}

/// Returns the work sessions of the calls of a tool, and the number of calls.
async fn work_sessions(data_dir: &Path, tool: &str) -> (BTreeSet<String>, usize) {
    let rows = rows(data_dir, &["calls", "--json"]).await;
    let of_tool: Vec<&Value> = rows.iter().filter(|row| row["tool"] == tool).collect();
    let ids = of_tool
        .iter()
        .map(|row| row["work_session"].as_str().unwrap().to_owned());
    (ids.collect(), of_tool.len())
}

#[tokio::test]
async fn every_kind_of_client_has_one_work_session_over_a_restart() {
    let data = TempDir::new().unwrap();
    let mut riglm = serve(data.path()).await;
    make_calls_of_all_kinds(&riglm).await;
    assert_eq!(riglm.stop().await, Some(0));
    let riglm = serve(data.path()).await;
    make_calls_of_all_kinds(&riglm).await;
    let mut all = BTreeSet::new();
    for (tool, n_calls) in [
        ("one", 6),
        ("reconnecting", 12),
        ("each-call", 6),
        ("keyed", 6),
    ] {
        let (ids, n) = work_sessions(data.path(), tool).await;
        assert_eq!((ids.len(), n), (1, n_calls), "{tool}: {ids:?}");
        all.extend(ids);
    }
    assert_eq!(all.len(), 4);
    let other = connect(&riglm, "keyed").await;
    other.set_header("x-riglm-session", "job 2");
    calls(&other, "keyed", 1).await;
    assert_eq!(work_sessions(data.path(), "keyed").await.0.len(), 2);
}

#[tokio::test]
async fn parallel_windows_have_separate_work_sessions() {
    let data = TempDir::new().unwrap();
    let riglm = serve(data.path()).await;
    let first = connect(&riglm, "window").await;
    calls(&first, "first", 2).await;
    let second = connect(&riglm, "window").await;
    for _ in 0..2 {
        calls(&second, "second", 1).await;
        calls(&first, "first", 1).await;
    }
    let (of_first, _) = work_sessions(data.path(), "first").await;
    let (of_second, _) = work_sessions(data.path(), "second").await;
    assert_eq!((of_first.len(), of_second.len()), (1, 1));
    assert_ne!(of_first, of_second);
}
