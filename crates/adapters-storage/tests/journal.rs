//! The journal keeps records through crashes, load and a database that does not answer.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_storage::{Durability, SpoolJournal, SpoolOptions, SqliteStore};
use riglm_domain::id::RunId;
use riglm_domain::invocation::Outcome;
use riglm_domain::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Journal as _, RecordSink, StoreError,
};
use riglm_ports::contract::scene::{call, end, moment, run, session};
use riglm_ports::fake::MemoryStore;

/// Long enough for a loaded machine; nothing waits for it when all is well.
const DEADLINE: Duration = Duration::from_secs(30);

/// A spool in a directory of its own.
struct Scene {
    dir: tempfile::TempDir,
    options: SpoolOptions,
}

impl Scene {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            options: SpoolOptions::default(),
        }
    }

    fn spool(&self) -> PathBuf {
        self.dir.path().join("spool")
    }

    fn run_dir(&self, run: RunId) -> PathBuf {
        self.spool().join(run.to_string())
    }

    async fn start<S: RecordSink + 'static>(&self, run: RunId, sink: &Arc<S>) -> SpoolJournal {
        let sink = Arc::<S>::clone(sink);
        SpoolJournal::open(&self.spool(), self.options.clone(), run, sink, moment(99))
            .await
            .unwrap()
    }

    async fn sqlite(&self) -> Arc<SqliteStore> {
        let path = self.dir.path().join("riglm.db");
        Arc::new(SqliteStore::open(&path, Durability::Process).await.unwrap())
    }
}

/// A session of the run with a call that ended and a call that is open.
fn story(run: RunId) -> Vec<Record> {
    let session = session(run, 1);
    let (done, open) = (call(session.id, 2), call(session.id, 3));
    vec![
        Record::SessionOpened(session),
        Record::CallOpened(done.clone()),
        Record::CallClosed(end(&done, Outcome::Ok)),
        Record::CallOpened(open),
    ]
}

fn lost(run: RunId) -> Record {
    Record::RunLost {
        run,
        noticed_at: moment(99),
    }
}

async fn append(journal: &SpoolJournal, records: &[Record]) {
    for record in records {
        journal.append(record).await.unwrap();
    }
}

/// Leaves the story of the run in the spool, as a process does that is killed.
async fn die(scene: &Scene, run: RunId) {
    let unreachable = Arc::new(MemoryStore::default());
    unreachable.start_failing();
    let journal = scene.start(run, &unreachable).await;
    append(&journal, &story(run)).await;
}

fn add_text(segment: &Path, text: &str) {
    let mut file = OpenOptions::new().append(true).open(segment).unwrap();
    file.write_all(text.as_bytes()).unwrap();
}

async fn until(what: &str, is_so: impl Fn() -> bool) {
    let waiting = async {
        while !is_so() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    let outcome = tokio::time::timeout(DEADLINE, waiting).await;
    outcome.unwrap_or_else(|_| panic!("{what} did not come true"));
}

/// Returns the lost run as the journal reports it when it closes, whose time is its own.
fn without_last(records: &[Record], expected: RunId) -> &[Record] {
    let (last, rest) = records.split_last().unwrap();
    assert!(matches!(last, Record::RunLost { run, .. } if *run == expected));
    rest
}

#[tokio::test]
async fn records_become_rows_in_their_order() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &story(run(1))).await;
    assert!(journal.settled(DEADLINE).await);
    assert_eq!(sink.records(), story(run(1)));
    assert_eq!(journal.waiting_bytes(), 0);
    assert_eq!(journal.dropped(), 0);
}

#[tokio::test]
async fn a_clean_end_closes_what_is_open_and_leaves_no_directory() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &story(run(1))).await;
    journal.close().await;
    journal.close().await;
    assert_eq!(without_last(&sink.records(), run(1)), story(run(1)));
    assert!(!scene.run_dir(run(1)).exists());
    let late = journal.append(&lost(run(1))).await;
    assert!(matches!(late, Err(StoreError::Failed { .. })));
    assert_eq!(journal.dropped(), 1);
}

#[tokio::test]
async fn a_clean_end_without_the_database_leaves_the_records_to_the_next_start() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.close_grace = Duration::from_millis(20);
    sink.start_failing();
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &story(run(1))).await;
    journal.close().await;
    drop(journal);
    assert_eq!(sink.records(), []);
    assert!(scene.run_dir(run(1)).exists());

    sink.stop_failing();
    let next = scene.start(run(2), &sink).await;
    next.close().await;
    assert_eq!(
        without_last(&sink.records(), run(2)),
        [story(run(1)), vec![lost(run(1))]].concat()
    );
    assert!(!scene.run_dir(run(1)).exists());
}

#[tokio::test]
async fn open_calls_of_a_dead_run_become_unknown() {
    let scene = Scene::new();
    die(&scene, run(1)).await;
    let store = scene.sqlite().await;
    scene.start(run(2), &store).await.close().await;
    let all = InvocationFilter::default();
    let calls = store.invocations(&all, 9).await.unwrap();
    let outcomes: Vec<_> = calls
        .iter()
        .map(|call| call.end.as_ref().map(|end| end.outcome))
        .collect();
    assert_eq!(outcomes, [Some(Outcome::Ok), Some(Outcome::Unknown)]);
    assert!(!scene.run_dir(run(1)).exists());
}

#[tokio::test]
async fn torn_lines_are_skipped() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    die(&scene, run(1)).await;
    let segment = scene.run_dir(run(1)).join("000001.jsonl");
    let whole = serde_json::to_string(&lost(run(9))).unwrap();
    add_text(&segment, "{\"record\":\"call_op\n\n\u{0}\n");
    add_text(
        &segment,
        &format!("{whole}\n{{\"record\":\"run_lost\",\"run\""),
    );
    scene.start(run(2), &sink).await.close().await;
    assert_eq!(
        without_last(&sink.records(), run(2)),
        [story(run(1)), vec![lost(run(9)), lost(run(1))]].concat()
    );
}

#[tokio::test]
async fn a_last_line_without_its_line_break_counts() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    die(&scene, run(1)).await;
    let segment = scene.run_dir(run(1)).join("000001.jsonl");
    add_text(&segment, &serde_json::to_string(&lost(run(9))).unwrap());
    scene.start(run(2), &sink).await.close().await;
    assert!(sink.records().contains(&lost(run(9))));
}

#[tokio::test]
async fn a_live_run_is_left_alone() {
    let scene = Scene::new();
    let (sink, other) = (
        Arc::new(MemoryStore::default()),
        Arc::new(MemoryStore::default()),
    );
    let living = scene.start(run(1), &sink).await;
    append(&living, &story(run(1))).await;
    let starting = scene.start(run(2), &other).await;
    starting.close().await;
    assert_eq!(without_last(&other.records(), run(2)), []);
    assert!(scene.run_dir(run(1)).exists());
    append(&living, &[lost(run(9))]).await;
    assert!(living.settled(DEADLINE).await);
    assert_eq!(sink.records().len(), story(run(1)).len() + 1);
}

#[tokio::test]
async fn of_several_that_start_at_once_one_recovers() {
    let scene = Scene::new();
    die(&scene, run(1)).await;
    let sinks: Vec<_> = (0..8).map(|_| Arc::new(MemoryStore::default())).collect();
    let starting = sinks.iter().zip(2..).map(|(sink, n)| {
        let (spool, options) = (scene.spool(), scene.options.clone());
        let sink = Arc::clone(sink);
        tokio::spawn(async move {
            let journal = SpoolJournal::open(&spool, options, run(n), sink, moment(99)).await;
            journal.unwrap().close().await;
        })
    });
    for started in starting.collect::<Vec<_>>() {
        started.await.unwrap();
    }
    let n_recovered = sinks
        .iter()
        .filter(|sink| sink.records().contains(&lost(run(1))))
        .count();
    assert_eq!(n_recovered, 1);
    let left: Vec<_> = std::fs::read_dir(scene.spool())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["startup.lock"]);
}

/// Appends `n_each` records from 32 tasks; returns the outcomes, task by task.
async fn append_from_32(
    journal: &Arc<SpoolJournal>,
    n_each: u64,
    payload: &str,
) -> Vec<Vec<Result<(), StoreError>>> {
    let tasks: Vec<_> = (0..32)
        .map(|caller| {
            let (journal, payload) = (Arc::clone(journal), payload.to_owned());
            tokio::spawn(async move {
                let mut outcomes = Vec::new();
                for n in 1..=n_each {
                    outcomes.push(journal.append(&numbered(caller, n, &payload)).await);
                }
                outcomes
            })
        })
        .collect();
    let mut outcomes = Vec::new();
    for task in tasks {
        outcomes.push(task.await.unwrap());
    }
    outcomes
}

/// The record number `n` of a caller; the session names the caller, the sequence the number.
fn numbered(caller: u8, n: u64, payload: &str) -> Record {
    let mut call = call(session(run(1), caller).id, caller);
    call.id = riglm_domain::id::InvocationId::new(moment(i64::try_from(n).unwrap()), [caller; 10]);
    call.sequence = n;
    call.arguments = Some(payload.into());
    Record::CallOpened(call)
}

/// Returns the records of `sink`, caller by caller, in the order in which they were applied.
fn by_caller(sink: &MemoryStore) -> Vec<Vec<u64>> {
    let mut sequences = vec![Vec::new(); 32];
    for record in sink.records() {
        if let Record::CallOpened(call) = record {
            let callers = 0..32;
            let caller = callers
                .into_iter()
                .find(|caller| session(run(1), *caller).id == call.session)
                .unwrap();
            sequences[usize::from(caller)].push(call.sequence);
        }
    }
    sequences
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_appends_lose_nothing_over_many_segments() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = Arc::new(scene.start(run(1), &sink).await);
    let payload = "x".repeat(8_000);
    let outcomes = append_from_32(&journal, 80, &payload).await;
    assert!(outcomes.iter().flatten().all(Result::is_ok));
    assert!(journal.settled(DEADLINE).await);
    let expected: Vec<u64> = (1..=80).collect();
    assert!(
        by_caller(&sink)
            .iter()
            .all(|sequence| *sequence == expected)
    );
    let segments = || {
        let entries = std::fs::read_dir(scene.run_dir(run(1))).unwrap();
        let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
        names.filter(|name| name != "lock").collect::<Vec<_>>()
    };
    // 20 MB take five segments; what is applied is deleted, and an idle journal keeps one.
    until("the deletion of applied segments", || segments().len() == 1).await;
    assert!(segments()[0].as_str() >= "000005.jsonl", "{:?}", segments());
}

#[tokio::test(flavor = "multi_thread")]
async fn what_exceeds_the_limit_is_refused_and_counted_exactly() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.max_bytes = 256 * 1024;
    sink.start_failing();
    let journal = Arc::new(scene.start(run(1), &sink).await);
    let outcomes = append_from_32(&journal, 100, &"x".repeat(100)).await;
    let n_refused = outcomes
        .iter()
        .flatten()
        .filter(|outcome| outcome.is_err())
        .count();
    assert!(n_refused > 0);
    assert_eq!(journal.dropped(), n_refused as u64);
    for error in outcomes
        .iter()
        .flatten()
        .filter_map(|outcome| outcome.as_ref().err())
    {
        assert!(matches!(error, StoreError::Full { bytes } if *bytes <= 256 * 1024));
    }
    assert!(journal.waiting_bytes() <= 256 * 1024);

    sink.stop_failing();
    assert!(journal.settled(DEADLINE).await);
    let taken = outcomes.iter().map(|outcomes| {
        let numbers = (1..).zip(outcomes);
        numbers
            .filter(|(_, outcome)| outcome.is_ok())
            .map(|(n, _)| n)
            .collect()
    });
    assert_eq!(by_caller(&sink), taken.collect::<Vec<Vec<u64>>>());
    append(&journal, &[lost(run(9))]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn appends_do_not_wait_for_a_locked_database() {
    use sqlx::{Connection as _, Executor as _};

    let scene = Scene::new();
    let store = scene.sqlite().await;
    let journal = Arc::new(scene.start(run(1), &store).await);
    let options =
        sqlx::sqlite::SqliteConnectOptions::new().filename(scene.dir.path().join("riglm.db"));
    let mut holder = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    holder.execute("BEGIN IMMEDIATE").await.unwrap();
    let outcomes = append_from_32(&journal, 20, "{}").await;
    assert!(outcomes.iter().flatten().all(Result::is_ok));
    let all = InvocationFilter::default();
    assert_eq!(store.count(&all).await.unwrap(), 0);
    assert!(journal.waiting_bytes() > 0);

    holder.execute("COMMIT").await.unwrap();
    assert!(journal.settled(DEADLINE).await);
    assert_eq!(store.count(&all).await.unwrap(), 32 * 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_that_survive_power_loss_arrive_too() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.durability = Durability::Power;
    let journal = Arc::new(scene.start(run(1), &sink).await);
    let outcomes = append_from_32(&journal, 5, &"x".repeat(40_000)).await;
    assert!(outcomes.iter().flatten().all(Result::is_ok));
    assert!(journal.settled(DEADLINE).await);
    assert!(
        by_caller(&sink)
            .iter()
            .all(|sequence| *sequence == [1, 2, 3, 4, 5])
    );
    journal.close().await;
}
