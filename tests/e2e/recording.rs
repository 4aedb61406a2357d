//! Calls and sessions in the output of `riglm calls` and `riglm sessions`.

use std::path::Path;
use std::time::{Duration, Instant};

use riglm_tests::answers::Answers;
use riglm_tests::fixture::{Transport, Upstream};
use riglm_tests::messages::{call, cancelled_notification, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::{Options, ProxiedClient, read_store, rows};
use serde_json::Value;

use crate::{odd, odd_over_stdio};

const CALLS: [&str; 2] = ["calls", "--json"];
const SESSIONS: [&str; 2] = ["sessions", "--json"];

async fn connect(downstream: Transport, options: &Options) -> ProxiedClient {
    let line =
        ProxiedClient::through(downstream, &odd_over_stdio(), options, Answers::full()).await;
    line.client.initialize(&initialize("0", "2025-11-25")).await;
    line
}

/// Waits for a row for which `find` returns a value.
async fn row<T>(data_dir: &Path, command: &[&str], find: impl Fn(&Value) -> Option<T>) -> T {
    let end = Instant::now() + Duration::from_secs(10);
    loop {
        let rows = rows(data_dir, command).await;
        if let Some(found) = rows.iter().find_map(&find) {
            return found;
        }
        assert!(Instant::now() < end, "not among {rows:?}");
    }
}

fn keys(row: &Value) -> Vec<String> {
    row.as_object()
        .map(|members| members.keys().cloned().collect())
        .unwrap_or_default()
}

#[tokio::test]
async fn a_call_is_listed_as_soon_as_its_reply_is_there() {
    for downstream in Transport::ALL {
        let line = connect(downstream, &Options::default()).await;
        for n in 1..=3 {
            line.client
                .request(&call(&n.to_string(), &format!("mark-{n}"), "{}"))
                .await;
            let rows = rows(line.data_dir.path(), &CALLS).await;
            let tools: Vec<&str> = rows.iter().filter_map(|row| row["tool"].as_str()).collect();
            let expected: Vec<String> = (1..=n).map(|n| format!("mark-{n}")).collect();
            assert_eq!(tools, expected, "{downstream:?}");
            assert_eq!(rows[n - 1]["sequence"], n);
            assert_eq!(rows[n - 1]["outcome"], "ok");
        }
    }
}

#[tokio::test]
async fn a_row_has_the_promised_keys_and_values() {
    let line = connect(Transport::Streamable, &Options::default()).await;
    line.client
        .request(&call("1", "sleep", r#"{"ms":120}"#))
        .await;
    let rows = rows(line.data_dir.path(), &CALLS).await;
    assert_eq!(
        keys(&rows[0]),
        [
            "id",
            "session",
            "upstream",
            "tool",
            "started_at",
            "duration_ms",
            "wait_ms",
            "outcome",
            "sequence",
            "source",
            "request_bytes",
            "response_bytes",
            "request_tokens",
            "response_tokens",
            "tokens_estimated",
            "continues",
            "work_session"
        ]
    );
    let duration = rows[0]["duration_ms"]
        .as_f64()
        .expect("a duration is a number");
    assert!((120.0..5_000.0).contains(&duration), "{duration}");
    assert_eq!(rows[0]["source"], "shown");
}

#[tokio::test]
async fn process_startup_time_is_excluded_from_call_duration() {
    const START_MS: f64 = 2_000.0;
    let program = env!("CARGO_BIN_EXE_odd-server");
    let slow = format!("sleep 2 && exec {program} stdio");
    let slow = Upstream::of_command(["sh", "-c", &slow].map(str::to_owned).to_vec());
    let line = ProxiedClient::modern(Transport::Streamable, &slow, &Options::default()).await;
    for id in ["1", "2"] {
        let call = Meta::default().call(id, "sleep", r#"{"ms":20}"#);
        line.client.request(&call).await;
    }
    let rows = rows(line.data_dir.path(), &CALLS).await;
    let times = |row: &Value| {
        let time = |key: &str| row[key].as_f64().expect("a time is a number");
        (time("wait_ms"), time("duration_ms"))
    };
    let (wait, duration) = times(&rows[0]);
    assert!(wait >= START_MS, "{rows:?}");
    assert!((20.0..wait).contains(&duration), "{rows:?}");
    let (wait, duration) = times(&rows[1]);
    assert!(wait < START_MS && duration >= 20.0, "{rows:?}");
}

#[tokio::test]
async fn all_call_outcomes_are_distinguished() {
    let options = Options::with_configuration("[limits]\ncall_timeout = \"500ms\"\n");
    let line = connect(Transport::Streamable, &options).await;
    for (id, tool) in [
        ("1", "empty"),
        ("2", "is_error"),
        ("3", "fail"),
        ("4", "hang"),
        ("5", "exit"),
        ("6", "no-such-tool"),
    ] {
        line.client.request(&call(id, tool, "{}")).await;
    }
    line.client.send(&call("7", "wait_cancel", "{}")).await;
    line.client
        .method_after(0, "notifications/message", 1)
        .await;
    line.client.send(&cancelled_notification("7")).await;
    row(line.data_dir.path(), &CALLS, |row| {
        (row["tool"] == "wait_cancel" && row["outcome"] == "cancelled").then_some(())
    })
    .await;
    let outcomes: Vec<(String, String)> = rows(line.data_dir.path(), &CALLS)
        .await
        .iter()
        .map(|row| {
            let text = |key: &str| row[key].as_str().unwrap_or_default().to_owned();
            (text("tool"), text("outcome"))
        })
        .collect();
    let expected = [
        ("empty", "ok"),
        ("is_error", "error"),
        ("fail", "error"),
        ("hang", "timeout"),
        ("exit", "error"),
        ("no-such-tool", "error"),
        ("wait_cancel", "cancelled"),
    ]
    .map(|(tool, outcome)| (tool.to_owned(), outcome.to_owned()));
    assert_eq!(outcomes, expected);
}

#[tokio::test]
async fn the_count_is_one_integer() {
    let line = connect(Transport::Streamable, &Options::default()).await;
    for n in 0..7 {
        line.client
            .request(&call(&n.to_string(), "empty", "{}"))
            .await;
    }
    line.client.request(&request("\"l\"", "tools/list")).await;
    let count = read_store(line.data_dir.path(), &["calls", "--count"]).await;
    assert_eq!(count.trim(), "7");
}

#[tokio::test]
async fn calls_of_a_batch_are_recorded_one_by_one() {
    let line = ProxiedClient::through(
        Transport::Streamable,
        &odd_over_stdio(),
        &Options::default(),
        Answers::full(),
    )
    .await;
    line.client.initialize(&initialize("0", "2025-03-26")).await;
    let batch = format!(
        "[{},{}]",
        call("1", "mark-one", "{}"),
        call("2", "mark-two", "{}")
    );
    line.client.request(&batch).await;
    let rows = rows(line.data_dir.path(), &CALLS).await;
    let tools: Vec<&str> = rows.iter().filter_map(|row| row["tool"].as_str()).collect();
    assert_eq!(tools, ["mark-one", "mark-two"]);
}

#[tokio::test]
async fn list_statistics_of_recorded_sessions_are_shown() {
    let line = connect(Transport::Streamable, &Options::default()).await;
    line.client.request(&call("1", "empty", "{}")).await;
    let text = read_store(line.data_dir.path(), &["lists", "--json", "--days", "1"]).await;
    let lists: Value = serde_json::from_str(&text).expect("the result is JSON");
    assert_eq!(lists["connections"], 1, "{lists}");
    for key in ["sessions", "mean_list_size", "searches", "cost_avoided"] {
        assert!(lists["all"][key].is_number(), "{key}: {lists}");
    }
    assert!(lists["policies"].is_object(), "{lists}");
    let is_text = |assumptions: &Vec<Value>| assumptions.iter().all(Value::is_string);
    assert!(lists["assumptions"].as_array().is_some_and(is_text));
}

#[tokio::test]
async fn a_session_is_listed_with_its_client_and_its_end() {
    for (downstream, name) in [
        (Transport::Stdio, "stdio"),
        (Transport::Streamable, "streamable_http"),
        (Transport::Legacy, "sse"),
    ] {
        let line = connect(downstream, &Options::default()).await;
        line.client.request(&call("1", "empty", "{}")).await;
        let open = rows(line.data_dir.path(), &SESSIONS).await.remove(0);
        assert_eq!(
            keys(&open),
            [
                "id",
                "client",
                "protocol",
                "transport",
                "started_at",
                "ended_at",
                "calls",
                "client_id",
                "profile",
                "imported",
                "lists"
            ]
        );
        assert!(
            open["client"]
                .as_str()
                .is_some_and(|client| client.contains("raw-client")),
            "{open}"
        );
        assert_eq!(open["protocol"], "2025-11-25");
        assert_eq!(open["transport"], name);
        assert_eq!(open["ended_at"], Value::Null);
        assert_eq!(open["calls"], 1);
        line.client.delete().await;
        line.client.drop_streams();
        line.client.close_input().await;
        row(line.data_dir.path(), &SESSIONS, |row| {
            row["ended_at"].is_string().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn the_session_of_a_call_is_in_the_list_of_sessions() {
    let upstream = odd().start(Transport::Streamable).await;
    let line = ProxiedClient::through(
        Transport::Streamable,
        &upstream,
        &Options::default(),
        Answers::full(),
    )
    .await;
    line.client.initialize(&initialize("0", "2025-06-18")).await;
    line.client.request(&call("1", "empty", "{}")).await;
    let call = rows(line.data_dir.path(), &CALLS).await.remove(0);
    let session = rows(line.data_dir.path(), &SESSIONS).await.remove(0);
    assert_eq!(call["session"], session["id"]);
}
