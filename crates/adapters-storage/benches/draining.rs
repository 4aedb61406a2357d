//! Measures what a recorded call costs while many sessions call: appended to the spool, read from
//! it and written to the database.
//!
//! Prints the processor time of the whole process for each call, which has three records, without
//! the time of the load itself; the records in a transaction; and the processor time for each call
//! of reading all of them back in pages, as a learner does. One load appends as fast as it can, so
//! that the drainer is behind until the end; the other one appends 5,000 calls a second. A sink that
//! drops everything shows the part of appending and reading.
//!
//! Run with `cargo bench -p riglm-adapters-storage --bench draining`; the name of a sink measures
//! only that one. PostgreSQL is measured too if `RIGLM_TEST_POSTGRES_URL` names a database; the time
//! of the server is not in the figures.
#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a measurement prints its figures and may fail"
)]

#[path = "../tests/place/schema.rs"]
mod schema;

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use riglm_adapters_storage::{Durability, SpoolJournal, SpoolOptions, Store};
use riglm_domain::id::{InvocationId, SessionId};
use riglm_domain::usage::invocation::{CallTokens, Invocation, InvocationEnd, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::Session;
use riglm_ports::analytics::{
    InvocationRepository as _, Journal, JournalCondition, RecordSink, StoreError,
};
use riglm_ports::contract::scene;

use crate::schema::Schema;

const N_SESSIONS: u32 = 100;
const N_TOOLS: u32 = 30;
/// The tasks that append at the same time, each for its share of the sessions.
const N_CALLERS: u32 = 20;
const N_CALLS_EACH: u32 = 600;
/// The number of calls that a learner reads at once.
const PAGE: u32 = 500;
const SETTLED_WITHIN: Duration = Duration::from_mins(2);

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

/// A sink that counts records and batches before it passes them on.
#[derive(Debug)]
struct CountingSink {
    store: Option<Store>,
    n_batches: AtomicU32,
    n_records: AtomicU64,
}

#[async_trait]
impl RecordSink for CountingSink {
    async fn apply(&self, records: &[Record]) -> Result<(), StoreError> {
        self.n_batches.fetch_add(1, Ordering::Relaxed);
        self.n_records
            .fetch_add(records.len() as u64, Ordering::Relaxed);
        match &self.store {
            None => Ok(()),
            Some(store) => store.apply(records).await,
        }
    }
}

#[derive(Clone, Copy)]
struct CallLoad {
    name: &'static str,
    /// The time between two calls of one session; zero for back to back.
    period: Duration,
}

const LOADS: [CallLoad; 2] = [
    CallLoad {
        name: "back to back",
        period: Duration::ZERO,
    },
    CallLoad {
        name: "5,000 calls/s",
        period: Duration::from_millis(20),
    },
];

#[derive(Clone, Copy)]
enum Sink {
    Nothing,
    Sqlite,
    Postgres,
}

impl Sink {
    fn name(self) -> &'static str {
        match self {
            Self::Nothing => "nothing",
            Self::Sqlite => "SQLite",
            Self::Postgres => "PostgreSQL",
        }
    }
}

fn main() {
    let only = std::env::args()
        .skip(1)
        .find(|option| !option.starts_with("--"));
    let has_server = std::env::var("RIGLM_TEST_POSTGRES_URL").is_ok();
    let sinks = [
        Some(Sink::Nothing),
        Some(Sink::Sqlite),
        has_server.then_some(Sink::Postgres),
    ];
    let sinks: Vec<Sink> = (sinks.into_iter().flatten())
        .filter(|sink| only.as_ref().is_none_or(|only| only == sink.name()))
        .collect();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        println!(
            "| load | sink | CPU per call | until appended | calls/s | transactions | records each | reading |\n\
             |---|---|---|---|---|---|---|---|"
        );
        for load in LOADS {
            let before = cpu_time();
            drive(&Arc::new(NoopJournal), load).await;
            let idle = cpu_time().saturating_sub(before);
            for sink in &sinks {
                spool(*sink, load, idle).await;
            }
        }
    });
}

/// Measures the calls through the spool; `idle` is the cost of the load itself.
async fn spool(sink: Sink, load: CallLoad, idle: Duration) {
    let dir = tempfile::tempdir().unwrap();
    let schema = Schema::new();
    let store = match sink {
        Sink::Nothing => None,
        Sink::Sqlite => {
            let path = dir.path().join("riglm.db");
            Some(Store::sqlite(path, Durability::Process))
        }
        Sink::Postgres => Some(Store::postgres(schema.config())),
    };
    if let Some(store) = &store {
        store.open().await.unwrap();
    }
    let counting = Arc::new(CountingSink {
        store: store.clone(),
        n_batches: AtomicU32::new(0),
        n_records: AtomicU64::new(0),
    });
    let spool_dir = dir.path().join("spool");
    let journal = SpoolJournal::open(
        &spool_dir,
        SpoolOptions::default(),
        scene::run(1),
        counting.clone(),
        scene::moment(0),
    );
    let journal = Arc::new(journal.await.unwrap());
    let (before, started) = (cpu_time(), Instant::now());
    drive(&journal, load).await;
    let appended = cpu_time().saturating_sub(before);
    assert!(journal.wait_until_applied(SETTLED_WITHIN).await);
    let (cpu, elapsed) = (cpu_time().saturating_sub(before), started.elapsed());
    let n_calls = N_CALLERS * N_CALLS_EACH * (N_SESSIONS / N_CALLERS);
    let n_batches = counting.n_batches.load(Ordering::Relaxed);
    let reading = match &store {
        None => Duration::ZERO,
        Some(store) => {
            let before = cpu_time();
            assert_eq!(read_all(store).await, n_calls as usize);
            cpu_time().saturating_sub(before)
        }
    };
    println!(
        "| {} | {} | {:.1?} | {:.1?} | {:.0} | {n_batches} | {} | {:.1?} |",
        load.name,
        sink.name(),
        cpu.saturating_sub(idle) / n_calls,
        appended.saturating_sub(idle) / n_calls,
        f64::from(n_calls) / elapsed.as_secs_f64(),
        counting.n_records.load(Ordering::Relaxed) / u64::from(n_batches),
        reading / n_calls,
    );
    journal.close().await;
}

/// Reads all calls in pages, and returns their number.
async fn read_all(store: &Store) -> usize {
    let (mut n_calls, mut after) = (0, None);
    loop {
        let page = store.past_calls(None, after, PAGE).await.unwrap();
        let Some(last) = page.last() else {
            return n_calls;
        };
        after = Some(last.id);
        n_calls += page.len();
    }
}

/// Opens all sessions and makes their calls, in turn.
async fn drive<J: Journal + 'static>(journal: &Arc<J>, load: CallLoad) {
    let callers: Vec<_> = (0..N_CALLERS)
        .map(|caller| {
            let journal = Arc::clone(journal);
            tokio::spawn(async move {
                let sessions = || (caller..N_SESSIONS).step_by(N_CALLERS as usize);
                for number in sessions() {
                    let opened = Record::SessionOpened(session(number));
                    journal.append(&opened).await.unwrap();
                }
                let mut due = tokio::time::Instant::now() + load.period * caller / N_CALLERS;
                for n in 1..=N_CALLS_EACH {
                    if load.period.is_zero() {
                        tokio::task::yield_now().await;
                    } else {
                        tokio::time::sleep_until(due).await;
                        due += load.period;
                    }
                    for number in sessions() {
                        for record in records(number, n) {
                            journal.append(&record).await.unwrap();
                        }
                    }
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
}

/// Returns the records of a call, as the proxy writes them without arguments and result.
fn records(number: u32, n: u32) -> [Record; 3] {
    let mut entropy = [0; 10];
    entropy[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    entropy[4..8].copy_from_slice(&n.to_be_bytes());
    let started_at = scene::moment(i64::from(n * 20 + number % 20));
    // Sessions differ in their tools and in the order of them.
    let tool = (n * (number % 7 + 1) + n * n % (number % 5 + 2)) % N_TOOLS;
    let call = Invocation {
        id: InvocationId::new(started_at, entropy),
        arguments: None,
        started_at,
        sequence: n.into(),
        context: None,
        ..scene::call_of(session_id(number), 0, &format!("tool_{tool}"))
    };
    let end = InvocationEnd {
        duration_us: u64::from(200 + (n * 7_919 + number) % 5_000),
        result: None,
        ..scene::end(&call, Outcome::Ok)
    };
    let tokens = CallTokens {
        id: call.id,
        request: Some(12),
        response: Some(250),
    };
    [
        Record::CallOpened(call),
        Record::CallClosed(end),
        Record::CallMeasured(tokens),
    ]
}

fn session(number: u32) -> Session {
    Session {
        id: session_id(number),
        ..scene::session(scene::run(1), 1)
    }
}

fn session_id(number: u32) -> SessionId {
    let mut entropy = [0; 10];
    entropy[..4].copy_from_slice(&number.wrapping_mul(2_654_435_761).to_be_bytes());
    SessionId::new(scene::moment(0), entropy)
}

/// Returns the processor time that all threads of this process have used.
fn cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap(),
        u32::try_from(time.tv_nsec).unwrap(),
    )
}
