//! Clean and unclean ends of a run, and the recovery by the next one.

use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_storage::SpoolJournal;
use riglm_domain::usage::invocation::Outcome;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Journal as _, StoreError,
};
use riglm_ports::contract::scene::{moment, run};
use riglm_ports::fake::MemoryStore;

use crate::scene::{
    DEADLINE, Scene, add_text, append, leave_in_spool, run_lost, session_records, until,
    without_last,
};

#[tokio::test]
async fn records_become_rows_in_their_order() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &session_records(run(1))).await;
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert_eq!(sink.records(), session_records(run(1)));
    assert_eq!(journal.waiting_bytes(), 0);
    assert_eq!(journal.dropped_records(), 0);
}

#[tokio::test]
async fn clean_shutdown_applies_records_and_removes_the_directory() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &session_records(run(1))).await;
    journal.close().await;
    journal.close().await;
    assert_eq!(
        without_last(&sink.records(), run(1)),
        session_records(run(1))
    );
    assert!(!scene.run_dir(run(1)).exists());
    let late = journal.append(&run_lost(run(1))).await;
    assert!(matches!(late, Err(StoreError::Failed { .. })));
    assert_eq!(journal.dropped_records(), 1);
}

#[tokio::test]
async fn records_undrained_at_shutdown_are_replayed_at_startup() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.close_grace = Duration::from_millis(20);
    sink.start_failing();
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &session_records(run(1))).await;
    journal.close().await;
    drop(journal);
    assert_eq!(sink.records(), []);
    assert!(scene.run_dir(run(1)).exists());

    sink.stop_failing();
    let next = scene.start(run(2), &sink).await;
    next.close().await;
    assert_eq!(
        without_last(&sink.records(), run(2)),
        [session_records(run(1)), vec![run_lost(run(1))]].concat()
    );
    assert!(!scene.run_dir(run(1)).exists());
}

#[tokio::test]
async fn open_calls_of_a_dead_run_become_unknown() {
    let scene = Scene::new();
    leave_in_spool(&scene, run(1)).await;
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
    leave_in_spool(&scene, run(1)).await;
    let segment = scene.run_dir(run(1)).join("000001.jsonl");
    let whole = serde_json::to_string(&run_lost(run(9))).unwrap();
    add_text(&segment, "{\"record\":\"call_op\n\n\u{0}\n");
    add_text(
        &segment,
        &format!("{whole}\n{{\"record\":\"run_lost\",\"run\""),
    );
    scene.start(run(2), &sink).await.close().await;
    assert_eq!(
        without_last(&sink.records(), run(2)),
        [
            session_records(run(1)),
            vec![run_lost(run(9)), run_lost(run(1))]
        ]
        .concat()
    );
}

#[tokio::test]
async fn a_last_line_without_its_line_break_counts() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    leave_in_spool(&scene, run(1)).await;
    let segment = scene.run_dir(run(1)).join("000001.jsonl");
    add_text(&segment, &serde_json::to_string(&run_lost(run(9))).unwrap());
    scene.start(run(2), &sink).await.close().await;
    assert!(sink.records().contains(&run_lost(run(9))));
}

#[tokio::test]
async fn a_live_run_is_left_alone() {
    let scene = Scene::new();
    let (sink, other) = (
        Arc::new(MemoryStore::default()),
        Arc::new(MemoryStore::default()),
    );
    let living = scene.start(run(1), &sink).await;
    append(&living, &session_records(run(1))).await;
    let starting = scene.start(run(2), &other).await;
    starting.close().await;
    assert_eq!(without_last(&other.records(), run(2)), []);
    assert!(scene.run_dir(run(1)).exists());
    append(&living, &[run_lost(run(9))]).await;
    assert!(living.wait_until_applied(DEADLINE).await);
    assert_eq!(sink.records().len(), session_records(run(1)).len() + 1);
}

#[tokio::test]
async fn simultaneous_starts_recover_a_run_once() {
    let scene = Scene::new();
    leave_in_spool(&scene, run(1)).await;
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
        .filter(|sink| sink.records().contains(&run_lost(run(1))))
        .count();
    assert_eq!(n_recovered, 1);
    let left: Vec<_> = std::fs::read_dir(scene.spool())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert_eq!(left, ["startup.lock"]);
}

#[tokio::test]
async fn records_of_dead_runs_count_towards_the_limit() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.close_grace = Duration::from_millis(1);
    sink.start_failing();
    let first = scene.start(run(1), &sink).await;
    append(&first, &session_records(run(1))).await;
    let left = first.waiting_bytes();
    first.close().await;
    drop(first);

    scene.options.max_bytes = left;
    let second = scene.start(run(2), &sink).await;
    assert_eq!(second.waiting_bytes(), left);
    let refused = second.append(&run_lost(run(9))).await;
    assert!(
        matches!(refused, Err(StoreError::Full { .. })),
        "{refused:?}"
    );

    sink.stop_failing();
    until("the recovery of what was left", || {
        second.waiting_bytes() == 0
    })
    .await;
    append(&second, &[run_lost(run(9))]).await;
    second.close().await;
}
