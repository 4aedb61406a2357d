//! One principal that takes as much as possible, and another one that works at the same time.

use std::path::Path;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use riglm_adapters_mcp::upstream::UpstreamLimits;
use riglm_app::proxy::CLOSE_WITHIN;
use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::messages::{call, initialize, request};
use riglm_tests::modern::Meta;
use riglm_tests::riglm::Riglm;
use rustix::process::Signal;
use serde_json::Value;
use tempfile::TempDir;

use super::{KEYS, connect, result, serve};

/// The number of sessions of the attacker.
const SESSIONS: u32 = 5;
/// The number of its unanswered calls: the limit of calls in flight.
const CALLS: u32 = 4_096;
/// A generous deadline, for a busy machine.
const SOON: Duration = Duration::from_secs(30);
/// The maximum time of a shutdown without calls to drain: much less than the timeout of the calls.
const ENDED: Duration = Duration::from_secs(20);

/// Returns the number of received errors about missing capacity.
fn n_refused(client: &RawClient) -> usize {
    let received = client.received_messages();
    let refused = received.iter().filter(|one| one.text.contains("-31005"));
    refused.count()
}

/// Opens the sessions of the attacker and leaves its calls unanswered. Returns its clients, and the
/// number of refused calls.
async fn attack(riglm: &Riglm) -> (Vec<RawClient>, usize) {
    let mut clients = Vec::new();
    for number in 0..SESSIONS {
        clients.push(connect(riglm, Some("ann"), &format!("a{number}")).await);
    }
    let of_each = CALLS.div_ceil(SESSIONS);
    join_all(clients.iter().map(|client| {
        join_all((0..of_each).map(async |id| {
            client.send(&call(&id.to_string(), "hang", "{}")).await;
        }))
    }))
    .await;
    let n_refused = clients.iter().map(n_refused).sum();
    (clients, n_refused)
}

/// Asserts that the other principal connects, lists and calls without an error.
async fn assert_served(riglm: &Riglm, work: &str) {
    let other = connect(riglm, Some("bob"), work).await;
    let list = other.request(&request("1", "tools/list")).await;
    assert!(list.text.contains("\"tools\":["), "{}", list.text);
    let echo = r#"{"text":"of bob"}"#;
    let answer = result(&other, 2, "echo", echo).await;
    assert!(answer.to_string().contains("of bob"), "{answer}");
}

/// Waits until a call of the attacker is made, after its connections were dropped.
async fn wait_until_call_is_made(client: &RawClient, first: u32) {
    let started = Instant::now();
    for id in first.. {
        let answer = client.request(&call(&id.to_string(), "echo", "{}")).await;
        let answer: Value = serde_json::from_str(&answer.text).unwrap();
        if answer["error"]["code"] != -31_005 {
            eprintln!(
                "places were free {:?} after the connections were dropped",
                started.elapsed()
            );
            return;
        }
        assert!(started.elapsed() < SOON, "{answer}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn thousands_of_unanswered_calls_do_not_block_other_principals() {
    let data = TempDir::new().unwrap();
    let mut riglm = serve(data.path(), KEYS).await;
    let (attackers, n_refused) = attack(&riglm).await;
    assert!(
        n_refused >= CALLS as usize / 2,
        "{n_refused} calls were refused, of which half the places were too many"
    );
    let refused = attackers[0].request(&call("9000", "echo", "{}")).await;
    assert!(
        refused.text.contains("limits.principal_share"),
        "{}",
        refused.text
    );
    assert_served(&riglm, "during").await;
    for attacker in &attackers {
        attacker.drop_streams();
    }
    assert_served(&riglm, "after").await;
    wait_until_call_is_made(&attackers[0], 9_001).await;
    // The shutdown does not wait for calls in the background.
    let started = Instant::now();
    riglm.process.signal(Signal::TERM);
    let status = riglm.process.wait_for_end(ENDED).await;
    eprintln!("it ended {:?} after SIGTERM", started.elapsed());
    assert_eq!(status.code(), Some(0));
}

#[tokio::test]
async fn calls_of_disconnected_sessionless_clients_are_cancelled() {
    let data = TempDir::new().unwrap();
    let toml = format!("{KEYS}[limits]\nin_flight = 8\n");
    let riglm = serve(data.path(), &toml).await;
    let meta = Meta::default();
    let client = |principal: &str| {
        let client = RawClient::modern(&riglm.url);
        let bearer = format!("Bearer key-of-{principal}-0123456789");
        client.set_header("authorization", &bearer);
        client
    };
    let (ann, bob) = (client("ann"), client("bob"));
    ann.request(&meta.call("0", "echo", "{}")).await;
    for id in 1..=4 {
        ann.send(&meta.call(&id.to_string(), "slow", "{}")).await;
    }
    let refused = ann.send(&meta.call("5", "echo", "{}")).await;
    assert_eq!(refused.status, 503);
    assert!(
        refused.body.contains("limits.principal_share"),
        "{}",
        refused.body
    );
    assert!(refused.headers.contains_key("retry-after"));
    let served = bob.request(&meta.call("1", "echo", "{}")).await;
    assert!(served.text.contains("\"result\""), "{}", served.text);
    ann.drop_streams();
    // The server reports when it received the cancellations.
    let seen = wait_until_answered(&ann, &meta, 6).await;
    assert!(seen.contains("\"seen\":true"), "{seen}");
}

/// Returns the response to a call that waits until four others were cancelled.
async fn wait_until_answered(client: &RawClient, meta: &Meta, first: u32) -> String {
    let started = Instant::now();
    for id in first.. {
        let text = meta.call(&id.to_string(), "await_cancelled", r#"{"count":4}"#);
        let answer = client.request(&text).await;
        if !answer.text.contains("-31005") {
            return answer.text;
        }
        assert!(started.elapsed() < SOON, "{}", answer.text);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    String::new()
}

#[tokio::test]
async fn shutdown_wait_for_hanging_calls_is_bounded() {
    let data = TempDir::new().unwrap();
    let toml = format!("{KEYS}[limits]\ndrain_timeout = \"1s\"\n");
    let mut riglm = serve(data.path(), &toml).await;
    let client = connect(&riglm, Some("ann"), "a").await;
    for id in 0..100 {
        client.send(&call(&id.to_string(), "hang", "{}")).await;
    }
    let started = Instant::now();
    riglm.process.signal(Signal::TERM);
    let status = riglm.process.wait_for_end(ENDED).await;
    assert_eq!(status.code(), Some(0));
    assert!(started.elapsed() >= Duration::from_secs(1));
}

#[tokio::test]
async fn shutdown_wait_for_stubborn_programs_is_bounded() {
    let odd = env!("CARGO_BIN_EXE_odd-server");
    let data = TempDir::new().unwrap();
    let pid_file = data.path().join("pid");
    let stubborn = format!(
        "trap '' TERM HUP; echo $$ > '{}'; '{odd}' stdio; while :; do sleep 1; done",
        pid_file.display()
    );
    let command = serde_json::json!(["sh", "-c", stubborn]);
    let toml = format!(
        "[limits]\ndrain_timeout = \"1s\"\n[upstream]\ncommand = {command}\n\
         shutdown_grace = \"60s\"\n"
    );
    let options = riglm_tests::riglm::Options::with_configuration(&toml);
    let mut riglm = Riglm::serve(&super::listing_upstream(), data.path(), &options).await;
    let client = connect(&riglm, None, "a").await;
    client.send(&call("1", "hang", "{}")).await;
    riglm.process.signal(Signal::TERM);
    let status = riglm.process.wait_for_end(ENDED).await;
    assert_eq!(status.code(), Some(0));
    // The call was answered before the end, and the program left no process.
    assert!(client.answer("1").await.text.contains("\"error\""));
    let pid = std::fs::read_to_string(pid_file).unwrap();
    let process = Path::new("/proc").join(pid.trim());
    let is_gone = || (!process.exists()).then_some(());
    let gone = riglm_tests::process::eventually(SOON, is_gone);
    gone.await.expect("its process is gone");
}

#[tokio::test]
async fn programs_have_time_to_end_by_themselves_during_shutdown() {
    // Otherwise the program itself would never reach the stage of SIGTERM.
    assert!(CLOSE_WITHIN > UpstreamLimits::default().shutdown_grace);
    let odd = env!("CARGO_BIN_EXE_odd-server");
    let data = TempDir::new().unwrap();
    let saved = data.path().join("saved");
    let slow = format!("'{odd}' stdio; sleep 2.5; : > '{}'", saved.display());
    let command = serde_json::json!(["sh", "-c", slow]);
    let toml = format!("[limits]\ndrain_timeout = \"1s\"\n[upstream]\ncommand = {command}\n");
    let options = riglm_tests::riglm::Options::with_configuration(&toml);
    let mut riglm = Riglm::serve(&super::listing_upstream(), data.path(), &options).await;
    let client = connect(&riglm, None, "a").await;
    client.request(&call("1", "echo", "{}")).await;
    riglm.process.signal(Signal::TERM);
    let status = riglm.process.wait_for_end(ENDED).await;
    assert_eq!(status.code(), Some(0));
    assert!(saved.exists(), "the program was terminated");
}

#[tokio::test]
async fn a_single_principal_may_use_the_full_capacity() {
    let data = TempDir::new().unwrap();
    let toml = "[limits]\nin_flight = 8\n[auth.keys]\nann = \"key-of-ann-0123456789\"\n";
    let riglm = serve(data.path(), toml).await;
    let client = connect(&riglm, Some("ann"), "a").await;
    for id in 0..8 {
        client.send(&call(&id.to_string(), "hang", "{}")).await;
    }
    assert_eq!(n_refused(&client), 0);
    let refused = client.request(&call("8", "echo", "{}")).await;
    assert!(
        refused.text.contains("too many requests are in flight;"),
        "{}",
        refused.text
    );
    // A new session is accepted despite the calls in flight.
    let other = riglm.client(Answers::default());
    other.set_header("authorization", "Bearer key-of-ann-0123456789");
    let hello = other.initialize(&initialize("0", "2025-11-25")).await;
    assert!(hello.text.contains("\"result\""), "{}", hello.text);
}

#[tokio::test]
async fn capacity_is_shared_once_a_second_principal_has_a_key() {
    let data = TempDir::new().unwrap();
    let alone = "[limits]\nin_flight = 8\n[auth.keys]\nann = \"key-of-ann-0123456789\"\n";
    let riglm = serve(data.path(), alone).await;
    let ann = connect(&riglm, Some("ann"), "a").await;
    let both = format!("{alone}bob = \"key-of-bob-0123456789\"\n");
    std::fs::write(data.path().join("test.toml"), both).unwrap();
    wait_until_accepted(&riglm, "bob").await;
    for id in 0..8 {
        ann.send(&call(&id.to_string(), "hang", "{}")).await;
    }
    assert_eq!(n_refused(&ann), 4);
    let refused = ann.request(&call("8", "echo", "{}")).await;
    assert!(
        refused.text.contains("limits.principal_share"),
        "{}",
        refused.text
    );
    assert_served(&riglm, "b").await;
}

/// Waits until the key of a principal is accepted.
async fn wait_until_accepted(riglm: &Riglm, principal: &str) {
    let started = Instant::now();
    let client = riglm.client(Answers::default());
    let bearer = format!("Bearer key-of-{principal}-0123456789");
    client.set_header("authorization", &bearer);
    while client.send(&initialize("0", "2025-11-25")).await.status == 401 {
        assert!(started.elapsed() < SOON, "{principal} is not let in");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[tokio::test]
async fn a_principal_has_half_of_the_sessions_and_processes() {
    let data = TempDir::new().unwrap();
    let toml = format!(
        "{KEYS}[limits]\nsessions = 6\nhandshake_timeout = \"1s\"\n\
         [upstream]\ncommand = [\"{}\", \"stdio\"]\nmax_connections = 4\n",
        env!("CARGO_BIN_EXE_odd-server")
    );
    let options = riglm_tests::riglm::Options::with_configuration(&toml);
    let riglm = Riglm::serve(&super::listing_upstream(), data.path(), &options).await;
    let mut attackers = Vec::new();
    for number in 0..3 {
        attackers.push(connect(&riglm, Some("ann"), &format!("a{number}")).await);
    }
    let fourth = RawClient::streamable(&riglm.url, Answers::default());
    fourth.set_header("authorization", "Bearer key-of-ann-0123456789");
    let refused = fourth.send(&initialize("1", "2025-11-25")).await;
    assert_eq!(refused.status, 503);
    assert!(refused.body.contains("the limit is 3"), "{}", refused.body);
    // Two sessions occupy one process each, so the third one gets none.
    for attacker in &attackers[1..] {
        attacker.send(&call("1", "hang", "{}")).await;
    }
    let waiting = attackers[0].request(&call("1", "echo", "{}")).await;
    assert!(
        waiting.text.contains("limits.principal_share"),
        "{}",
        waiting.text
    );
    for number in 0..2 {
        assert_served(&riglm, &format!("b{number}")).await;
    }
}
