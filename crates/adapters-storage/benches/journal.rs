//! Compares two ways to make a record safe before the reply is sent: the spool, which writes a line
//! to a file and a row later, and group commit, which waits for the transaction.
//!
//! Prints, for each way and load, the median and the 99th percentile of the time that one record
//! delays its call, and the processor time of the whole process for each call, which has two
//! records. Run with `cargo bench -p riglm-adapters-storage --bench journal`. PostgreSQL is
//! measured too if `RIGLM_TEST_POSTGRES_URL` names a database.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its figures and may fail"
)]

#[path = "../tests/place/schema.rs"]
mod schema;

use std::sync::Arc;
use std::time::{Duration, Instant};

use async_trait::async_trait;
use riglm_adapters_storage::{Durability, SpoolJournal, SpoolOptions, Store};
use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::usage::invocation::{Invocation, Outcome};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Journal, JournalCondition, RecordSink as _,
    StoreError,
};
use riglm_ports::contract::scene;
use tokio::sync::{mpsc, oneshot};

use crate::schema::Schema;

/// The maximum number of records in one group.
const MAX_GROUP: usize = 1_000;
const SETTLED_WITHIN: Duration = Duration::from_mins(1);

/// A journal that does nothing, to measure the cost of the load itself.
#[derive(Debug)]
struct NoopJournal;

#[async_trait]
impl Journal for NoopJournal {
    async fn append(&self, _: &Record) -> Result<(), StoreError> {
        Ok(())
    }

    fn condition(&self) -> JournalCondition {
        JournalCondition::Sound
    }
}

/// Commits records before it acknowledges them. Waiting records share a transaction.
#[derive(Debug)]
struct GroupCommit(mpsc::Sender<(Record, oneshot::Sender<()>)>);

impl GroupCommit {
    fn new(store: Arc<Store>) -> Self {
        let (sender, mut waiting) = mpsc::channel::<(Record, oneshot::Sender<()>)>(MAX_GROUP);
        tokio::spawn(async move {
            let mut group = Vec::new();
            while waiting.recv_many(&mut group, MAX_GROUP).await > 0 {
                let (records, answers): (Vec<_>, Vec<_>) = group.drain(..).unzip();
                store.apply(&records).await.unwrap();
                for answer in answers {
                    answer.send(()).unwrap();
                }
            }
        });
        Self(sender)
    }
}

#[async_trait]
impl Journal for GroupCommit {
    async fn append(&self, record: &Record) -> Result<(), StoreError> {
        let (answer, committed) = oneshot::channel();
        self.0.send((record.clone(), answer)).await.unwrap();
        committed.await.unwrap();
        Ok(())
    }

    fn condition(&self) -> JournalCondition {
        JournalCondition::Sound
    }
}

#[derive(Clone, Copy)]
struct CallLoad {
    name: &'static str,
    n_callers: u32,
    n_calls_each: u32,
    /// The time between two calls of one caller; zero for back to back.
    period: Duration,
}

const LOADS: [CallLoad; 3] = [
    CallLoad {
        name: "1 caller, back to back",
        n_callers: 1,
        n_calls_each: 5_000,
        period: Duration::ZERO,
    },
    CallLoad {
        name: "32 callers, back to back",
        n_callers: 32,
        n_calls_each: 1_000,
        period: Duration::ZERO,
    },
    CallLoad {
        name: "32 callers, 1,000 calls/s",
        n_callers: 32,
        n_calls_each: 100,
        period: Duration::from_millis(32),
    },
];

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let has_server = std::env::var("RIGLM_TEST_POSTGRES_URL").is_ok();
        let backends = [
            Some(Backend::Sqlite),
            has_server.then_some(Backend::Postgres),
        ];
        let backends: Vec<Backend> = backends.into_iter().flatten().collect();
        for backend in &backends {
            apply_only(*backend).await;
        }
        println!(
            "\n| database | durability | load | way | p50 | p99 | CPU per call | calls/s |\n\
             |---|---|---|---|---|---|---|---|"
        );
        for load in LOADS {
            nothing(load).await;
        }
        for backend in backends {
            for durability in [Durability::Process, Durability::Power] {
                for load in LOADS {
                    spool(backend, durability, load).await;
                    group_commit(backend, durability, load).await;
                }
            }
        }
    });
}

/// Measures the database alone: whole batches, one after the other.
async fn apply_only(backend: Backend) {
    let (store, _dir, _schema) = store(backend, Durability::Process).await;
    let n_calls = 50_000;
    let records: Vec<_> = (0..n_calls).flat_map(|n| call(0, n)).collect();
    let before = cpu_time();
    for batch in records.chunks(MAX_GROUP) {
        store.apply(batch).await.unwrap();
    }
    let cpu = (cpu_since(before)) / n_calls;
    println!(
        "{} alone, 500 calls in a transaction: {cpu:?} CPU of this process per call",
        backend.name()
    );
}

async fn nothing(load: CallLoad) {
    let before = cpu_time();
    let (latencies, elapsed) = drive(Arc::new(NoopJournal), load).await;
    let cpu = cpu_since(before);
    report(["none", "none"], load, "nothing", latencies, cpu, elapsed);
}

async fn spool(backend: Backend, durability: Durability, load: CallLoad) {
    let (store, dir, _schema) = store(backend, durability).await;
    let options = SpoolOptions {
        durability,
        ..SpoolOptions::default()
    };
    let spool_dir = dir.path().join("spool");
    let journal = SpoolJournal::open(
        &spool_dir,
        options,
        scene::run(1),
        store.clone(),
        scene::moment(0),
    );
    let journal = Arc::new(journal.await.unwrap());
    let before = cpu_time();
    let (latencies, elapsed) = drive(journal.clone(), load).await;
    assert!(journal.wait_until_applied(SETTLED_WITHIN).await);
    report(
        [backend.name(), durability_name(durability)],
        load,
        "spool",
        latencies,
        cpu_since(before),
        elapsed,
    );
    check(&store, load).await;
    journal.close().await;
}

async fn group_commit(backend: Backend, durability: Durability, load: CallLoad) {
    let (store, _dir, _schema) = store(backend, durability).await;
    let journal = Arc::new(GroupCommit::new(store.clone()));
    let before = cpu_time();
    let (latencies, elapsed) = drive(journal, load).await;
    report(
        [backend.name(), durability_name(durability)],
        load,
        "group commit",
        latencies,
        cpu_since(before),
        elapsed,
    );
    check(&store, load).await;
}

#[derive(Clone, Copy)]
enum Backend {
    Sqlite,
    Postgres,
}

impl Backend {
    fn name(self) -> &'static str {
        match self {
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

/// Returns an empty store, and the values that keep it alive.
async fn store(
    backend: Backend,
    durability: Durability,
) -> (Arc<Store>, tempfile::TempDir, Option<Schema>) {
    let dir = tempfile::tempdir().unwrap();
    let (store, schema) = match backend {
        Backend::Sqlite => (Store::sqlite(dir.path().join("riglm.db"), durability), None),
        Backend::Postgres => {
            let schema = Schema::new();
            (Store::postgres(schema.config()), Some(schema))
        }
    };
    store.open().await.unwrap();
    (Arc::new(store), dir, schema)
}

/// Makes all calls; returns the delay by each record, and the total time.
async fn drive<J: Journal + 'static>(journal: Arc<J>, load: CallLoad) -> (Vec<Duration>, Duration) {
    let started = Instant::now();
    let callers: Vec<_> = (0..load.n_callers)
        .map(|caller| {
            let journal = Arc::clone(&journal);
            tokio::spawn(async move {
                // Spreads callers with a fixed rate over the period.
                let offset = load.period * caller / load.n_callers;
                let mut due = tokio::time::Instant::now() + offset;
                let mut latencies = Vec::new();
                for n in 0..load.n_calls_each {
                    if !load.period.is_zero() {
                        tokio::time::sleep_until(due).await;
                        due += load.period;
                    }
                    for record in call(caller, n) {
                        let before = Instant::now();
                        journal.append(&record).await.unwrap();
                        latencies.push(before.elapsed());
                    }
                }
                latencies
            })
        })
        .collect();
    let mut latencies = Vec::new();
    for caller in callers {
        latencies.extend(caller.await.unwrap());
    }
    (latencies, started.elapsed())
}

/// Returns the two records of a call, as the proxy writes them without arguments and result.
fn call(caller: u32, n: u32) -> [Record; 2] {
    let mut entropy = [0; 10];
    entropy[..4].copy_from_slice(&caller.to_be_bytes());
    entropy[4..8].copy_from_slice(&n.to_be_bytes());
    let started_at = scene::moment(n.into());
    let call = Invocation {
        id: InvocationId::new(started_at, entropy),
        arguments: None,
        started_at,
        sequence: n.into(),
        ..scene::call(session(caller), 0)
    };
    let mut end = scene::end(&call, Outcome::Ok);
    end.result = None;
    [Record::CallOpened(call), Record::CallClosed(end)]
}

fn session(caller: u32) -> SessionId {
    let mut entropy = [0; 10];
    entropy[..4].copy_from_slice(&caller.to_be_bytes());
    SessionId::new(scene::moment(0), entropy)
}

fn report(
    [backend, durability]: [&str; 2],
    load: CallLoad,
    way: &str,
    mut latencies: Vec<Duration>,
    cpu: Duration,
    elapsed: Duration,
) {
    latencies.sort_unstable();
    let percentile = |percent: usize| latencies[(latencies.len() - 1) * percent / 100];
    let n_calls = load.n_callers * load.n_calls_each;
    println!(
        "| {backend} | {durability} | {} | {way} | {:.1?} | {:.1?} | {:.1?} | {:.0} |",
        load.name,
        percentile(50),
        percentile(99),
        cpu / n_calls,
        f64::from(n_calls) / elapsed.as_secs_f64(),
    );
}

fn durability_name(durability: Durability) -> &'static str {
    match durability {
        Durability::Process => "process",
        Durability::Power => "power",
    }
}

async fn check(store: &Store, load: CallLoad) {
    let count = store.count(&InvocationFilter::default()).await.unwrap();
    assert_eq!(count, u64::from(load.n_callers * load.n_calls_each));
}

fn cpu_since(before: Duration) -> Duration {
    cpu_time().saturating_sub(before)
}

/// Returns the processor time that all threads of this process have used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
