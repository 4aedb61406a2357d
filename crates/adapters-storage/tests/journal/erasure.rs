//! Erasure of a client, with and without a running proxy.

use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_storage::erase;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{ClientSelector, DeletedRows, SessionRepository as _};
use riglm_ports::contract::scene::{call, run, session};
use riglm_ports::fake::{ManualClock, MemoryStore};

use crate::scene::{DEADLINE, Scene, append, leave_in_spool, session_records, until};

fn selector() -> ClientSelector {
    ClientSelector(session(run(1), 1).client_info.name)
}

#[tokio::test]
async fn applied_segments_are_removed_regardless_of_size() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &session_records(run(1))).await;
    let first = scene.run_dir(run(1)).join("000001.jsonl");
    assert!(first.exists());
    until("the removal of the segment", || !first.exists()).await;
    assert_eq!(sink.records(), session_records(run(1)));
    append(&journal, &session_records(run(2))).await;
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert_eq!(
        sink.records(),
        [session_records(run(1)), session_records(run(2))].concat()
    );
}

#[tokio::test]
async fn erasure_covers_records_of_dead_runs() {
    let (scene, store) = (Scene::new(), MemoryStore::default());
    leave_in_spool(&scene, run(1)).await;
    let erased = erase(
        &store,
        scene.dir.path(),
        &selector(),
        Duration::ZERO,
        &ManualClock::default(),
    )
    .await
    .unwrap();
    assert!(erased.is_complete);
    assert_eq!((erased.deleted.n_sessions, erased.deleted.n_calls), (1, 2));
    assert!(!scene.run_dir(run(1)).exists());
    assert_eq!(store.sessions(9).await.unwrap(), []);
}

#[tokio::test]
async fn erasure_waits_for_records_of_live_runs() {
    let (scene, store) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &store).await;
    append(&journal, &session_records(run(1))).await;
    let clock = ManualClock::default();
    let erased = erase(&*store, scene.dir.path(), &selector(), DEADLINE, &clock)
        .await
        .unwrap();
    assert!(erased.is_complete);
    assert_eq!(erased.deleted.n_calls, 2);
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert_eq!(store.sessions(9).await.unwrap(), []);
}

#[tokio::test]
async fn undrained_records_of_live_runs_make_erasure_incomplete() {
    let (scene, unreachable) = (Scene::new(), Arc::new(MemoryStore::default()));
    unreachable.start_failing();
    let journal = scene.start(run(1), &unreachable).await;
    let session = session(run(1), 1);
    append(&journal, &[Record::SessionOpened(session.clone())]).await;
    append(&journal, &[Record::CallOpened(call(session.id, 2))]).await;
    let store = MemoryStore::default();
    let clock = ManualClock::default();
    let within = Duration::from_millis(20);
    let erased = erase(&store, scene.dir.path(), &selector(), within, &clock)
        .await
        .unwrap();
    assert!(!erased.is_complete);
    assert_eq!(
        erased.deleted,
        DeletedRows {
            n_sessions: 1,
            n_calls: 1,
            n_others: erased.deleted.n_others
        }
    );
}
