//! Many callers, a locked database, and limits.

use std::sync::Arc;

use riglm_adapters_storage::{Durability, SpoolJournal};
use riglm_domain::id::InvocationId;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Journal as _, StoreError,
};
use riglm_ports::contract::scene::{call, moment, run, session};
use riglm_ports::fake::MemoryStore;

use crate::scene::{DEADLINE, Scene, append, run_lost, until};

/// Appends `n_each` records from 32 tasks. Returns the outcomes, task by task.
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
                    outcomes.push(journal.append(&numbered_record(caller, n, &payload)).await);
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

/// Returns record number `n` of a caller. The session identifies the caller, the sequence the
/// number.
fn numbered_record(caller: u8, n: u64, payload: &str) -> Record {
    let mut call = call(session(run(1), caller).id, caller);
    call.id = InvocationId::new(moment(i64::try_from(n).unwrap()), [caller; 10]);
    call.sequence = n;
    call.arguments = Some(payload.into());
    Record::CallOpened(call)
}

/// Returns the records of `sink` by caller, in the order in which they were applied.
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
    assert!(journal.wait_until_applied(DEADLINE).await);
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
    // 20 MB take five segments. Applied segments are deleted, and an idle journal keeps one.
    until("the deletion of applied segments", || segments().len() == 1).await;
    assert!(segments()[0].as_str() >= "000005.jsonl", "{:?}", segments());
}

#[tokio::test(flavor = "multi_thread")]
async fn records_over_the_limit_are_refused_and_counted() {
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
    assert_eq!(journal.dropped_records(), n_refused as u64);
    for error in outcomes
        .iter()
        .flatten()
        .filter_map(|outcome| outcome.as_ref().err())
    {
        assert!(matches!(error, StoreError::Full { bytes } if *bytes <= 256 * 1024));
    }
    assert!(journal.waiting_bytes() <= 256 * 1024);

    sink.stop_failing();
    assert!(journal.wait_until_applied(DEADLINE).await);
    let taken = outcomes.iter().map(|outcomes| {
        let numbers = (1..).zip(outcomes);
        numbers
            .filter(|(_, outcome)| outcome.is_ok())
            .map(|(n, _)| n)
            .collect()
    });
    assert_eq!(by_caller(&sink), taken.collect::<Vec<Vec<u64>>>());
    append(&journal, &[run_lost(run(9))]).await;
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
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert_eq!(store.count(&all).await.unwrap(), 32 * 20);
}

#[tokio::test(flavor = "multi_thread")]
async fn records_with_power_durability_arrive_in_order() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.durability = Durability::Power;
    let journal = Arc::new(scene.start(run(1), &sink).await);
    let outcomes = append_from_32(&journal, 5, &"x".repeat(40_000)).await;
    assert!(outcomes.iter().flatten().all(Result::is_ok));
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert!(
        by_caller(&sink)
            .iter()
            .all(|sequence| *sequence == [1, 2, 3, 4, 5])
    );
    journal.close().await;
}
