//! Several proxies with one PostgreSQL schema.

use std::collections::BTreeMap;
use std::path::Path;

use riglm_tests::answers::Answers;
use riglm_tests::messages::{call, initialize};
use riglm_tests::riglm::{Options, Riglm, read_store, rows};
use tempfile::TempDir;

use crate::odd_over_stdio;
use crate::postgres::{Schema, as_texts};

const N_CALLS: usize = 50;
const DEADLINE: std::time::Duration = std::time::Duration::from_secs(30);

async fn call_on(riglm: &Riglm, mark: &str) {
    let client = riglm.client(Answers::full());
    client.initialize(&initialize("\"i\"", "2025-11-25")).await;
    for n in 0..N_CALLS {
        let id = n.to_string();
        client
            .request(&call(&id, &format!("{mark}-{n}"), "{}"))
            .await;
    }
}

async fn outcomes(data_dir: &Path, options: &Options) -> BTreeMap<String, String> {
    let mut arguments = vec!["calls".into(), "--json".into()];
    arguments.extend(options.read_arguments(data_dir));
    let rows = rows(data_dir, &as_texts(&arguments)).await;
    let n_rows = rows.len();
    let outcomes: BTreeMap<_, _> = rows
        .iter()
        .map(|row| (row["tool"].to_string(), row["outcome"].to_string()))
        .collect();
    assert_eq!(outcomes.len(), n_rows, "a call has two rows");
    outcomes
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn two_proxies_record_in_one_schema_and_one_may_die() {
    let schema = Schema::new();
    let options = schema.options();
    let (one, other) = (TempDir::new().unwrap(), TempDir::new().unwrap());
    // Both create the schema, at the same time.
    let upstream = odd_over_stdio();
    let (mut first, mut second) = tokio::join!(
        Riglm::serve(&upstream, one.path(), &options),
        Riglm::serve(&upstream, other.path(), &options),
    );
    tokio::join!(call_on(&first, "first"), call_on(&second, "second"));
    first.process.kill().await;
    call_on(&second, "later").await;
    // Records that the killed proxy had not drained are still in its spool, and reading drains
    // them. The other proxy drains its own records soon.
    let start = std::time::Instant::now();
    let mut read = outcomes(one.path(), &options).await;
    while read.len() < 3 * N_CALLS && start.elapsed() < DEADLINE {
        read = outcomes(one.path(), &options).await;
    }
    assert_eq!(read.len(), 3 * N_CALLS, "{read:?}");
    assert!(read.values().all(|outcome| outcome != "null"), "{read:?}");
    assert_eq!(second.stop().await, Some(0));
    assert_eq!(outcomes(other.path(), &options).await.len(), 3 * N_CALLS);
    let mut arguments = vec!["db".into(), "check".into()];
    arguments.extend(options.read_arguments(other.path()));
    let check = read_store(other.path(), &as_texts(&arguments)).await;
    assert!(check.trim_end().ends_with("ok"), "{check}");
}
