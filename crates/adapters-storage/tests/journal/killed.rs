//! A killed process keeps every acknowledged record.

use std::collections::HashMap;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use riglm_adapters_storage::{RecordingConfig, StorageConfig, open, open_reader};
use riglm_domain::id::{InvocationId, RunId};
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{InvocationFilter, InvocationRepository as _, SessionRepository as _};
use riglm_ports::contract::scene::{call, end, moment, run, session};
use riglm_ports::fake::ManualClock;

/// The data directory, in the working directory of the process.
const DATA_DIR: &str = "data";
/// The file in it with the number of the run. It makes the process record.
const ORDER: &str = "order";
const N_RUNS: u8 = 6;
/// The minimum of acknowledged calls before the kill.
const N_CALLS: usize = 300;
/// The maximum of calls of a process that is not killed.
const MAX_CALLS: u16 = 50_000;

#[tokio::test]
async fn no_acknowledged_call_is_lost_or_doubled_by_kills() {
    let dir = tempfile::tempdir().unwrap();
    let mut acknowledged = Vec::new();
    for n in 1..=N_RUNS {
        acknowledged.extend(kill_after_some_calls(dir.path(), n));
    }
    assert!(acknowledged.len() >= N_CALLS * usize::from(N_RUNS));

    let clock = ManualClock::default();
    let readers = open_reader(
        &StorageConfig::default(),
        &dir.path().join(DATA_DIR),
        &clock,
    )
    .await
    .unwrap();
    let all = InvocationFilter::default();
    let calls = readers.invocations(&all, u32::MAX).await.unwrap();
    let sessions = readers.sessions(u32::MAX).await.unwrap();
    readers.close().await;
    let outcomes: HashMap<_, _> = calls
        .iter()
        .map(|call| (call.invocation.id, call.end.as_ref().map(|end| end.outcome)))
        .collect();
    assert_eq!(outcomes.len(), calls.len());
    for id in &acknowledged {
        assert_eq!(outcomes.get(id), Some(&Some(Outcome::Ok)), "call {id}");
    }
    // At most one call of each process was in flight, and all of them have ended.
    let n_unknown = calls.len()
        - outcomes
            .values()
            .filter(|outcome| **outcome == Some(Outcome::Ok))
            .count();
    assert!(
        n_unknown <= usize::from(N_RUNS),
        "{n_unknown} calls are not ok"
    );
    assert!(outcomes.values().all(Option::is_some));
    assert_eq!(sessions.len(), usize::from(N_RUNS));
    assert!(sessions.iter().all(|session| session.ended_at.is_some()));
}

/// Starts a process that records, kills it, and returns the calls that it acknowledged.
fn kill_after_some_calls(dir: &Path, n: u8) -> Vec<InvocationId> {
    std::fs::write(dir.join(ORDER), n.to_string()).unwrap();
    let mut process = Command::new(std::env::current_exe().unwrap())
        .args(["killed::child_records_until_killed", "--exact"])
        .args(["--include-ignored", "--nocapture"])
        .current_dir(dir)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let acknowledged = acknowledged_by(&mut process);
    process.wait().unwrap();
    acknowledged
}

fn acknowledged_by(process: &mut Child) -> Vec<InvocationId> {
    let mut acknowledged = Vec::new();
    let lines = BufReader::new(process.stdout.take().unwrap()).lines();
    for line in lines {
        let line = line.unwrap();
        // The kill may truncate the last line. A complete line is an acknowledgement.
        let id = line
            .rsplit_once("acknowledged ")
            .and_then(|(_, id)| id.parse::<InvocationId>().ok());
        acknowledged.extend(id);
        if acknowledged.len() == N_CALLS {
            process.kill().unwrap();
        }
    }
    acknowledged
}

#[tokio::test]
#[ignore = "needs the test that kills it"]
async fn child_records_until_killed() {
    let Ok(order) = std::fs::read_to_string(ORDER) else {
        return;
    };
    let n: u8 = order.parse().unwrap();
    let run: RunId = run(n);
    let clock = ManualClock::default();
    let recording = RecordingConfig::default();
    let storage = StorageConfig::default();
    let storage = open(&storage, &recording, Path::new(DATA_DIR), run, &clock)
        .await
        .unwrap();
    let session = session(run, n);
    let opened = Record::SessionOpened(session.clone());
    storage.journal.append(&opened).await.unwrap();
    for sequence in 1..=MAX_CALLS {
        let mut call = call(session.id, n);
        let started_at = moment(sequence.into());
        call.id = InvocationId::new(started_at, [n; 10]);
        let closed = Record::CallClosed(end(&call, Outcome::Ok));
        storage
            .journal
            .append(&Record::CallOpened(call.clone()))
            .await
            .unwrap();
        storage.journal.append(&closed).await.unwrap();
        println!("acknowledged {}", call.id);
        // Lets the drainer and the recovery of the earlier run make progress.
        tokio::task::yield_now().await;
    }
}
