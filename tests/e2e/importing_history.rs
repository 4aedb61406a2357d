//! `riglm audit --import-history`: a predictor that knows the calls of transcripts.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use jiff::{Timestamp, ToSpan as _};
use riglm_app::clock::SystemClock;
use riglm_ports::clock::Clock as _;
use riglm_tests::answers::Answers;
use riglm_tests::binary;
use riglm_tests::kit::{Proxy, proxy, server};
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::riglm::{rows, run_at_home};
use serde_json::{Value, json};
use tempfile::TempDir;

/// The tools of the sessions of two tasks.
const TASKS: [&[&str]; 2] = [
    &["tool-003", "tool-007", "tool-011", "tool-007"],
    &["tool-020", "tool-021"],
];
const N_SESSIONS: usize = 24;

async fn start(data_dir: &Path) -> Proxy {
    proxy()
        .server(&server("plain").tools(40))
        .strategy("prediction")
        .with_control()
        .start_in(data_dir)
        .await
}

/// Returns the handshake of Claude Code, in a work session of this name.
fn handshake(work: &str) -> String {
    let work = Value::from(format!("{work:?}"));
    let meta = format!(r#""params":{{"_meta":{{"io.github.riglm/session":{work}}},"#);
    initialize("0", "2025-11-25")
        .replace(r#""params":{"#, &meta)
        .replace("raw-client", "claude-code")
        .replace("1.0.0", "")
}

async fn wait_until_learned(proxy: &Proxy, n_calls: usize) {
    let mut learning = Value::Null;
    for _ in 0..300 {
        learning = proxy.control_response("/health").await["prediction"].take();
        let n_learned = learning["learned_calls"].as_u64().unwrap_or(0);
        if learning["status"] == "ok" && n_learned >= n_calls as u64 {
            return;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    panic!("calls were not learned from: {learning}");
}

/// Returns the probabilities of the tools after a call of the first task in a new session.
async fn predictions(proxy: &Proxy) -> BTreeMap<String, f64> {
    let client = proxy.riglm.client(Answers::default());
    client.initialize(&handshake("asking")).await;
    client.request(&request("\"list\"", "tools/list")).await;
    client.request(&call("1", "tool-003", "{}")).await;
    let session = client.session_id().unwrap();
    let path = format!("/predictions/{session}?limit=40");
    let predicted = proxy.control_response(&path).await;
    let tools = predicted["tools"].as_array().unwrap().iter();
    tools
        .map(|tool| {
            let name = tool["name"].as_str().unwrap().to_owned();
            (name, tool["probability"].as_f64().unwrap())
        })
        .collect()
}

/// Writes the servers of Claude Code, and recorded calls as its transcripts.
fn write_home(home: &Path, calls: &[Value]) {
    let program = binary::odd_server().display().to_string();
    let arguments = ["stdio", "--name", "plain", "--tools", "40"];
    let servers = json!({"mcpServers": {"plain": {"command": program, "args": arguments}}});
    std::fs::write(home.join(".claude.json"), servers.to_string()).unwrap();
    let mut lines = String::new();
    for recorded in calls {
        let (id, session) = (&recorded["id"], &recorded["session"]);
        let name = format!("mcp__plain__{}", recorded["tool"].as_str().unwrap());
        let at = &recorded["started_at"];
        for line in [
            json!({"type": "assistant", "uuid": format!("a{id}"), "sessionId": session,
                   "timestamp": at, "message": {"role": "assistant", "content": [
                   {"type": "tool_use", "id": id, "name": name, "input": {"secret": "s3cret"}}]}}),
            json!({"type": "user", "uuid": format!("r{id}"), "sessionId": session,
                   "timestamp": at, "message": {"role": "user", "content": [
                   {"type": "tool_result", "tool_use_id": id, "content": "s3cret"}]}}),
        ] {
            writeln!(lines, "{line}").unwrap();
        }
    }
    let folder = home.join(".claude/projects/-home-dev-shop");
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("all.jsonl"), lines).unwrap();
}

fn days_ago(n_days: i64) -> Timestamp {
    let now = SystemClock.now();
    now - (24 * n_days).hours()
}

/// Runs an import into a data directory, and returns its counts.
async fn import(home: &Path, data_dir: &Path) -> Value {
    let data_dir = data_dir.display().to_string();
    let arguments = [
        "audit",
        "--yes",
        "--json",
        "--import-history",
        "--data-dir",
        &data_dir,
    ];
    let output = run_at_home(home, &arguments).await.success();
    output.json()["imported"].clone()
}

#[tokio::test]
async fn imported_calls_give_the_predictions_of_recorded_ones() {
    let recorded_in = TempDir::new().unwrap();
    let mut recording = start(recorded_in.path()).await;
    let mut n_calls = 0;
    for number in 0..N_SESSIONS {
        let client = recording.riglm.client(Answers::default());
        client
            .initialize(&handshake(&format!("work {number}")))
            .await;
        client.request(&request("\"list\"", "tools/list")).await;
        for (position, tool) in TASKS[number % 2].iter().enumerate() {
            let id = format!("\"{position}\"");
            client.request(&call(&id, tool, "{}")).await;
            n_calls += 1;
        }
        client.delete().await;
    }
    wait_until_learned(&recording, n_calls).await;
    let expected = predictions(&recording).await;
    assert_eq!(recording.riglm.stop().await, Some(0));
    let mut calls = rows(recorded_in.path(), &["calls", "--json", "--limit", "1000"]).await;
    // The last one is the call of the predictions.
    assert_eq!(calls.len(), n_calls + 1);
    calls.truncate(n_calls);

    let home = TempDir::new().unwrap();
    write_home(home.path(), &calls);
    let imported_in = TempDir::new().unwrap();
    let counts = import(home.path(), imported_in.path()).await;
    assert_eq!(
        (&counts["new_calls"], &counts["sessions"]),
        (&json!(n_calls), &json!(N_SESSIONS)),
        "{counts}"
    );
    let sessions = rows(imported_in.path(), &["sessions", "--json"]).await;
    assert_eq!(sessions.len(), N_SESSIONS);
    assert!(sessions.iter().all(|session| session["imported"] == true));
    let warm = start(imported_in.path()).await;
    wait_until_learned(&warm, n_calls).await;
    let found = predictions(&warm).await;
    assert_eq!(
        found.keys().collect::<Vec<_>>(),
        expected.keys().collect::<Vec<_>>()
    );
    for (name, probability) in &expected {
        // The calls are some seconds older.
        let difference = (found[name] - probability).abs();
        assert!(
            difference < 0.001,
            "{name}: {} is not {probability}",
            found[name]
        );
    }
    assert!(expected["tool-007"] > 0.5, "{expected:?}");
}

#[tokio::test]
async fn a_running_proxy_learns_imported_calls_once() {
    let data_dir = TempDir::new().unwrap();
    let running = start(data_dir.path()).await;
    // Something is learned before, so that the imported calls lie behind it.
    predictions(&running).await;
    wait_until_learned(&running, 1).await;
    let home = TempDir::new().unwrap();
    let calls: Vec<Value> = (0..60_u32)
        .map(|number| {
            let task = TASKS[0];
            let at = days_ago(20 - i64::from(number) / 4) + i64::from(number % 4).minutes();
            json!({"id": format!("c{number}"), "session": format!("s{}", number / 4),
                   "tool": task[number as usize % 4], "started_at": at})
        })
        .collect();
    write_home(home.path(), &calls);
    let counts = import(home.path(), data_dir.path()).await;
    assert_eq!(
        (
            &counts["new_calls"],
            &counts["known_calls"],
            &counts["sessions"]
        ),
        (&json!(60), &json!(0), &json!(15)),
        "{counts}"
    );
    wait_until_learned(&running, 61).await;
    let mut probability = 0.0;
    for _ in 0..100 {
        probability = predictions(&running).await["tool-007"];
        if probability > 0.4 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(300)).await;
    }
    assert!(probability > 0.4, "{probability}");

    let again = import(home.path(), data_dir.path()).await;
    assert_eq!(
        (&again["new_calls"], &again["known_calls"]),
        (&json!(0), &json!(60)),
        "{again}"
    );
    let stored = rows(data_dir.path(), &["calls", "--json", "--limit", "1000"]).await;
    let yesterday = days_ago(1).to_string();
    let is_old = |row: &&Value| row["started_at"].as_str().unwrap() < &*yesterday;
    let old: Vec<&Value> = stored.iter().filter(is_old).collect();
    assert_eq!(old.len(), 60);
    assert!(old.iter().all(|row| row["outcome"] == "ok"));
    assert!(!format!("{stored:?}").contains("s3cret"));
}

#[tokio::test]
async fn calls_through_riglm_and_of_unknown_servers_are_not_imported() {
    let home = TempDir::new().unwrap();
    let recorded = |tool: &str, number: u32| json!({"id": format!("c{number}"), "session": "s", "tool": tool, "started_at": "2026-11-01T10:00:00Z"});
    write_home(
        home.path(),
        &[recorded("tool-001", 1), recorded("tool-002", 2)],
    );
    let file = home
        .path()
        .join(".claude/projects/-home-dev-shop/all.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let text = text
        .replace("mcp__plain__tool-001", "mcp__riglm__plain__tool-001")
        .replace("mcp__plain__tool-002", "mcp__gone__tool-002");
    std::fs::write(&file, text).unwrap();
    let data_dir = home.path().join("data");
    let counts = import(home.path(), &data_dir).await;
    assert_eq!(
        counts,
        json!({"sessions": 0, "new_calls": 0, "known_calls": 0, "recorded_calls": 1,
               "foreign_calls": 1, "unlisted_calls": 0, "old_calls": 0, "unfinished_calls": 0})
    );
    let off = run_at_home(
        home.path(),
        &["audit", "--yes", "--import-history", "--config", "off.toml"],
    );
    std::fs::write(
        home.path().join("off.toml"),
        "[recording]\nmode = \"off\"\n",
    )
    .unwrap();
    let off = off.await;
    assert_eq!(off.code, Some(1));
    assert!(
        off.stderr.contains("recording.mode is off"),
        "{}",
        off.stderr
    );
}

#[tokio::test]
async fn calls_are_imported_once_whatever_becomes_of_their_session() {
    let home = TempDir::new().unwrap();
    let data_dir = home.path().join("data");
    let at = days_ago(3).to_string();
    let recorded = |session: &str, number: u32| {
        json!({"id": format!("c{number}"), "session": session, "tool": format!("tool-00{number}"),
               "started_at": at})
    };
    let folder = home.path().join(".claude/projects/-home-dev-shop");
    let counts = |counts: &Value| (counts["new_calls"].clone(), counts["known_calls"].clone());
    // The first call is to a server that is not known yet.
    let original = [recorded("a", 1), recorded("a", 2), recorded("a", 3)];
    write_home(home.path(), &original);
    let text = std::fs::read_to_string(folder.join("all.jsonl")).unwrap();
    let text = text.replace("mcp__plain__tool-001", "mcp__later__tool-001");
    std::fs::write(folder.join("all.jsonl"), &text).unwrap();
    let first = import(home.path(), &data_dir).await;
    assert_eq!(counts(&first), (json!(2), json!(0)), "{first}");
    // The server is added. Nothing else changes.
    let file = home.path().join(".claude.json");
    let mut servers: Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    servers["mcpServers"]["later"] = servers["mcpServers"]["plain"].clone();
    servers["mcpServers"]["later"]["args"][2] = json!("later");
    std::fs::write(&file, servers.to_string()).unwrap();
    let second = import(home.path(), &data_dir).await;
    assert_eq!(counts(&second), (json!(1), json!(2)), "{second}");
    // The session was forked, went on, and the original is removed.
    let fork = text.replace(r#""sessionId":"a""#, r#""sessionId":"b""#);
    assert_ne!(fork, text);
    std::fs::write(folder.join("fork.jsonl"), &fork).unwrap();
    let third = import(home.path(), &data_dir).await;
    assert_eq!(counts(&third), (json!(0), json!(3)), "{third}");
    std::fs::remove_file(folder.join("all.jsonl")).unwrap();
    let fourth = import(home.path(), &data_dir).await;
    assert_eq!(counts(&fourth), (json!(0), json!(3)), "{fourth}");
    let stored = rows(&data_dir, &["calls", "--json"]).await;
    let of_sessions: Vec<&Value> = stored.iter().map(|row| &row["session"]).collect();
    assert_eq!(of_sessions.len(), 3);
    assert!(of_sessions.iter().all(|session| *session == of_sessions[0]));
    let order: Vec<&str> = stored
        .iter()
        .map(|row| row["tool"].as_str().unwrap())
        .collect();
    assert_eq!(order, ["tool-001", "tool-002", "tool-003"]);
}
