//! The condition of the journal while records do not become rows, and after that.

use std::sync::Arc;

use riglm_ports::analytics::{Journal as _, JournalCondition};
use riglm_ports::contract::scene::run;
use riglm_ports::fake::MemoryStore;

use crate::scene::{DEADLINE, Scene, append, leave_in_spool, session_records, until};

fn behind(reason: &str) -> JournalCondition {
    JournalCondition::Behind {
        reason: reason.into(),
    }
}

const TOLD: &str = "failed to write to the failing store: it was told to fail";

#[tokio::test]
async fn the_journal_is_behind_while_the_database_fails() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    let journal = scene.start(run(1), &sink).await;
    append(&journal, &session_records(run(1))).await;
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert_eq!(journal.condition(), JournalCondition::Sound);

    sink.start_failing();
    append(&journal, &session_records(run(1))).await;
    until("that it is behind", || journal.condition() == behind(TOLD)).await;
    assert!(journal.waiting_bytes() > 0);

    sink.stop_failing();
    until("that it is sound", || {
        journal.condition() == JournalCondition::Sound
    })
    .await;
    assert!(journal.wait_until_applied(DEADLINE).await);
    assert_eq!(journal.dropped_records(), 0);
}

#[tokio::test]
async fn journal_is_behind_until_dead_runs_are_replayed() {
    let (scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    leave_in_spool(&scene, run(1)).await;
    sink.start_failing();
    let journal = scene.start(run(2), &sink).await;
    until("that it is behind", || journal.condition() == behind(TOLD)).await;

    sink.stop_failing();
    until("that it is sound", || {
        journal.condition() == JournalCondition::Sound
    })
    .await;
}

#[tokio::test]
async fn full_spools_become_sound_after_draining() {
    let (mut scene, sink) = (Scene::new(), Arc::new(MemoryStore::default()));
    scene.options.max_bytes = 64 * 1024;
    sink.start_failing();
    let journal = scene.start(run(1), &sink).await;
    let records = session_records(run(1));
    let mut appending = records.iter().cycle();
    while journal.append(appending.next().unwrap()).await.is_ok() {}
    let JournalCondition::Behind { reason } = journal.condition() else {
        panic!("the journal lost a record and is sound");
    };
    assert!(reason.starts_with("the spool is full: "), "{reason}");

    sink.stop_failing();
    // It recovers without another append.
    until("that it is sound", || {
        journal.condition() == JournalCondition::Sound
    })
    .await;
    assert_eq!(journal.dropped_records(), 1);
}
