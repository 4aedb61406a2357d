//! The proxy is killed repeatedly under load, with the same data directory.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use riglm_tests::answers::Answers;
use riglm_tests::client::RawClient;
use riglm_tests::envelope::raw_at;
use riglm_tests::fixture::Transport;
use riglm_tests::messages::{call, initialize};
use riglm_tests::process::{descendants, eventually, survivors};
use riglm_tests::riglm::{Options, Riglm, read_store, rows};
use tempfile::TempDir;
use tokio::task::JoinSet;

use crate::postgres::{Schema, as_texts};
use crate::{odd, odd_over_stdio};
use riglm_tests::fixture::Upstream;

/// The number of concurrent callers.
const CALLERS: usize = 32;

/// The names of the tools whose response was received.
type AcknowledgedCalls = Arc<Mutex<BTreeSet<String>>>;

/// Returns the number of kills: 20, or 100 in a long run.
fn n_rounds() -> usize {
    match std::env::var("RIGLM_LONG_TESTS") {
        Ok(value) if value == "1" => 100,
        _ => 20,
    }
}

fn n_acknowledged(acknowledged: &AcknowledgedCalls) -> usize {
    acknowledged.lock().len()
}

/// Calls tools with unique names until the task is aborted.
async fn call_until_aborted(client: RawClient, name: String, acknowledged: AcknowledgedCalls) {
    for n in 0_u32.. {
        let tool = format!("mark-{name}-{n}");
        let answer = client.request(&call(&n.to_string(), &tool, "{}")).await;
        if raw_at(&answer.text, &["result"]).is_some() {
            acknowledged.lock().insert(tool);
        }
    }
}

/// Makes calls and kills the proxy after `n_replies` more responses. Returns the time from the
/// start of the proxy to the end of its first call.
async fn call_and_kill(
    upstream: &Upstream,
    options: &Options,
    data_dir: &Path,
    number: usize,
    n_replies: usize,
    acknowledged: &AcknowledgedCalls,
) -> Duration {
    let start = Instant::now();
    let mut riglm = Riglm::serve(upstream, data_dir, options).await;
    let mut callers = JoinSet::new();
    let mut first_call = Duration::ZERO;
    for caller in 0..CALLERS {
        let client = riglm.client(Answers::full());
        client.initialize(&initialize("\"i\"", "2025-11-25")).await;
        if caller == 0 {
            client.request(&call("\"first\"", "empty", "{}")).await;
            first_call = start.elapsed();
        }
        let name = format!("{number}-{caller}");
        callers.spawn(call_until_aborted(client, name, Arc::clone(acknowledged)));
    }
    let wanted = n_acknowledged(acknowledged) + n_replies;
    let reached = eventually(Duration::from_mins(1), || {
        (n_acknowledged(acknowledged) >= wanted).then_some(())
    })
    .await;
    assert!(reached.is_some(), "{}", riglm.process.output());
    let below = descendants(riglm.process.pid());
    riglm.process.kill().await;
    callers.abort_all();
    while callers.join_next().await.is_some() {}
    let left = survivors(&below, Duration::from_secs(10)).await;
    assert_eq!(
        left,
        Vec::<u32>::new(),
        "servers live on after round {number}"
    );
    first_call
}

async fn kill_again_and_again(upstream: &Upstream, options: &Options) {
    let data_dir = TempDir::new().expect("a temporary folder can be made");
    let acknowledged = AcknowledgedCalls::default();
    let mut slowest_start = Duration::ZERO;
    for number in 0..n_rounds() {
        // Different numbers hit different moments of the recording.
        let n_replies = 40 + 17 * (number % 11);
        let first_call = call_and_kill(
            upstream,
            options,
            data_dir.path(),
            number,
            n_replies,
            &acknowledged,
        )
        .await;
        slowest_start = slowest_start.max(first_call);
    }
    // The start recovers the records of the last crash.
    let mut riglm = Riglm::serve(upstream, data_dir.path(), options).await;
    riglm.stop().await;
    let configured = options.read_arguments(data_dir.path());
    let read = |arguments: &[&str]| {
        let all = arguments.iter().map(|argument| (*argument).to_owned());
        all.chain(configured.clone()).collect::<Vec<_>>()
    };
    let check = read_store(data_dir.path(), &as_texts(&read(&["db", "check"]))).await;
    assert!(check.trim_end().ends_with("ok"), "{check}");
    let listed = read(&["calls", "--json", "--limit", "4000000"]);
    let rows = rows(data_dir.path(), &as_texts(&listed)).await;
    let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
    for tool in rows.iter().filter_map(|row| row["tool"].as_str()) {
        *counts.entry(tool).or_default() += 1;
    }
    let acknowledged = acknowledged.lock();
    let lost: Vec<&String> = acknowledged
        .iter()
        .filter(|tool| !counts.contains_key(tool.as_str()))
        .collect();
    assert!(
        lost.is_empty(),
        "{} of {} lost: {lost:?}",
        lost.len(),
        acknowledged.len()
    );
    let doubled: Vec<_> = counts
        .iter()
        .filter(|(tool, count)| tool.starts_with("mark-") && **count > 1)
        .collect();
    assert!(doubled.is_empty(), "{doubled:?}");
    let open: Vec<_> = rows
        .iter()
        .filter(|row| {
            row["tool"]
                .as_str()
                .is_some_and(|tool| acknowledged.contains(tool))
        })
        .filter(|row| row["outcome"] != "ok")
        .collect();
    assert!(
        open.is_empty(),
        "acknowledged calls are not closed: {open:?}"
    );
    eprintln!(
        "{} rounds, {} acknowledged, {} rows, slowest first call after a start {slowest_start:?}",
        n_rounds(),
        acknowledged.len(),
        rows.len()
    );
}

#[tokio::test]
async fn no_acknowledged_call_is_lost_or_doubled_with_a_stdio_server() {
    kill_again_and_again(&odd_over_stdio(), &Options::default()).await;
}

#[tokio::test]
async fn no_acknowledged_call_is_lost_or_doubled_with_an_http_server() {
    let upstream = odd().start(Transport::Streamable).await;
    kill_again_and_again(&upstream, &Options::default()).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn no_acknowledged_call_is_lost_or_doubled_with_postgres() {
    let schema = Schema::new();
    kill_again_and_again(&odd_over_stdio(), &schema.options()).await;
}
