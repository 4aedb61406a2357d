//! Measures the queries of prediction over histories of different sizes.
//!
//! Run with `cargo bench -p riglm-adapters-storage --bench queries`. Sizes are numbers of calls:
//! 10,000 and 1,000,000, and 10,000,000 too with `RIGLM_LONG_BENCH=1`. PostgreSQL is measured too
//! if `RIGLM_TEST_POSTGRES_URL` names a database. All histories have the same form: 100 tools of
//! four servers, sessions of 50 calls, spread over 30 days.
#![expect(
    clippy::print_stderr,
    clippy::unwrap_used,
    reason = "a measurement says what it does and may fail"
)]

#[path = "../tests/place/schema.rs"]
mod schema;

use std::collections::BTreeMap;
use std::sync::{Arc, LazyLock};
use std::time::Instant;

use divan::Bencher;
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use riglm_adapters_storage::{Durability, Store};
use riglm_domain::catalog::tool::ToolRef;
use riglm_domain::id::{InvocationId, SessionId, ToolName, UpstreamName};
use riglm_domain::usage::invocation::{Invocation, InvocationEnd, Outcome};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{Maintenance as _, RecordSink as _, UsageRepository as _};
use riglm_ports::contract::scene;
use tokio::runtime::Runtime;

use crate::schema::Schema;

const N_TOOLS: u64 = 100;
const CALLS_PER_SESSION: u64 = 50;
const DAYS: i64 = 30;

fn main() {
    divan::main();
    // The schemas are dropped with their histories.
    HISTORIES.lock().clear();
}

static RUNTIME: LazyLock<Runtime> = LazyLock::new(|| {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
});

static HISTORIES: Mutex<BTreeMap<Case, Arc<History>>> = Mutex::new(BTreeMap::new());

/// A database and a number of calls in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Case {
    Sqlite(u64),
    Postgres(u64),
}

impl std::fmt::Display for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Sqlite(n_calls) => write!(f, "sqlite, {n_calls} calls"),
            Self::Postgres(n_calls) => write!(f, "postgres, {n_calls} calls"),
        }
    }
}

fn cases() -> Vec<Case> {
    let is_long = std::env::var("RIGLM_LONG_BENCH").is_ok_and(|value| value == "1");
    let sizes: &[u64] = if is_long {
        &[10_000, 1_000_000, 10_000_000]
    } else {
        &[10_000, 1_000_000]
    };
    let has_server = std::env::var("RIGLM_TEST_POSTGRES_URL").is_ok();
    let server = sizes.iter().filter(|_| has_server);
    (sizes.iter().map(|n| Case::Sqlite(*n)))
        .chain(server.map(|n| Case::Postgres(*n)))
        .collect()
}

/// A store with calls, and the values that keep it alive.
struct History {
    store: Store,
    end: Timestamp,
    _dir: tempfile::TempDir,
    _schema: Option<Schema>,
}

fn history(case: Case) -> Arc<History> {
    let mut histories = HISTORIES.lock();
    let made = histories.entry(case);
    Arc::clone(made.or_insert_with(|| Arc::new(RUNTIME.block_on(make(case)))))
}

async fn make(case: Case) -> History {
    let dir = tempfile::tempdir().unwrap();
    let (store, schema, n_calls) = match case {
        Case::Sqlite(n_calls) => {
            let path = dir.path().join("riglm.db");
            (Store::sqlite(path, Durability::Process), None, n_calls)
        }
        Case::Postgres(n_calls) => {
            let schema = Schema::new();
            (Store::postgres(schema.config()), Some(schema), n_calls)
        }
    };
    let started = Instant::now();
    let step = SignedDuration::from_hours(24 * DAYS) / i32::try_from(n_calls).unwrap();
    let mut at = scene::moment(0);
    let mut batch = Vec::with_capacity(2_000);
    for n in 0..n_calls {
        at += step;
        batch.extend(call(n, at));
        if batch.len() >= 2_000 || n + 1 == n_calls {
            store.apply(&batch).await.unwrap();
            batch.clear();
        }
    }
    eprintln!("{case}: written in {:.0?}", started.elapsed());
    History {
        store,
        end: at,
        _dir: dir,
        _schema: schema,
    }
}

/// Returns the two records of a call. A few tools make most of the calls, as in practice.
fn call(n: u64, at: Timestamp) -> [Record; 2] {
    let entropy = |n: u64| {
        let mut entropy = [0; 10];
        entropy[..8].copy_from_slice(&n.to_be_bytes());
        entropy
    };
    let session = n / CALLS_PER_SESSION;
    let spread = (n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) % (N_TOOLS * N_TOOLS);
    let tool = tool(spread.isqrt());
    let call = Invocation {
        id: InvocationId::new(at, entropy(n)),
        session: SessionId::new(scene::moment(0), entropy(session)),
        upstream: tool.upstream,
        tool: tool.tool,
        arguments: None,
        started_at: at,
        sequence: n % CALLS_PER_SESSION + 1,
        ..scene::call(SessionId::new(at, [0; 10]), 0)
    };
    let end = InvocationEnd {
        id: call.id,
        outcome: if n.is_multiple_of(20) {
            Outcome::Error
        } else {
            Outcome::Ok
        },
        duration_us: 500 + spread * 13,
        wait_us: 0,
        response_bytes: 1_000,
        result: None,
    };
    [Record::CallOpened(call), Record::CallClosed(end)]
}

fn tool(number: u64) -> ToolRef {
    ToolRef {
        upstream: UpstreamName::parse(&format!("server-{}", number % 4)).unwrap(),
        tool: ToolName::from(format!("tool-{number}").as_str()),
    }
}

fn ask<T>(bencher: Bencher<'_, '_>, case: Case, question: impl AsyncFn(&History) -> T + Sync) {
    let history = history(case);
    bencher.bench(|| RUNTIME.block_on(question(&history)));
}

#[divan::bench(args = cases())]
fn cooccurrences_of_5_tools(bencher: Bencher<'_, '_>, case: Case) {
    let tools: Vec<ToolRef> = (90..95).map(tool).collect();
    ask(bencher, case, async |history| {
        history
            .store
            .cooccurrences(None, Some(&tools))
            .await
            .unwrap()
    });
}

#[divan::bench(args = cases())]
fn transitions_from_1_tool(bencher: Bencher<'_, '_>, case: Case) {
    let tools = [tool(90)];
    ask(bencher, case, async |history| {
        history.store.transitions(None, Some(&tools)).await.unwrap()
    });
}

#[divan::bench(args = cases())]
fn frequencies_of_24_hours(bencher: Bencher<'_, '_>, case: Case) {
    ask(bencher, case, async |history| {
        let since = history.end - SignedDuration::from_hours(24);
        history.store.frequencies(None, since).await.unwrap()
    });
}

#[divan::bench(args = cases())]
fn frequencies_of_30_days(bencher: Bencher<'_, '_>, case: Case) {
    ask(bencher, case, async |history| {
        let since = history.end - SignedDuration::from_hours(24 * DAYS);
        history.store.frequencies(None, since).await.unwrap()
    });
}

#[divan::bench(args = cases())]
fn statistics_of_1_tool_in_24_hours(bencher: Bencher<'_, '_>, case: Case) {
    let tools = [tool(90)];
    ask(bencher, case, async |history| {
        let since = history.end - SignedDuration::from_hours(24);
        let asked = history.store.statistics(None, Some(&tools), since);
        asked.await.unwrap()
    });
}

#[divan::bench(args = cases(), sample_count = 20, sample_size = 1)]
fn appending_1_call_with_its_commit(bencher: Bencher<'_, '_>, case: Case) {
    static NEXT: Mutex<u64> = Mutex::new(1 << 40);
    ask(bencher, case, async |history| {
        let n = {
            let mut next = NEXT.lock();
            *next += 1;
            *next
        };
        history.store.apply(&call(n, history.end)).await.unwrap();
    });
}

#[divan::bench(args = cases(), sample_count = 1, sample_size = 1)]
fn rebuilding_all_counts(bencher: Bencher<'_, '_>, case: Case) {
    ask(bencher, case, async |history| {
        history.store.rebuild().await.unwrap()
    });
}
