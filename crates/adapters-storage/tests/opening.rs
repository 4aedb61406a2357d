//! Opening the usage store: creation, refusal and migration.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share fails the test that uses it"
)]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use riglm_adapters_storage::{
    RecordingConfig, SpoolJournal, SpoolOptions, Storage, StorageConfig, open, open_reader,
};
use riglm_domain::id::{InvocationId, RunId};
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Journal as _, SessionRepository as _, StoreError,
};
use riglm_ports::contract::scene::{call, end, moment, run, session};
use riglm_ports::fake::{ManualClock, MemoryStore};

const DEADLINE: Duration = Duration::from_secs(30);

async fn start(data_dir: &Path, run: RunId) -> Result<Storage, StoreError> {
    let recording = RecordingConfig::default();
    let clock = ManualClock::at(moment(99));
    open(&StorageConfig::default(), &recording, data_dir, run, &clock).await
}

/// Returns the outcomes of all calls for a read-only process.
async fn outcomes(data_dir: &Path) -> Vec<Option<Outcome>> {
    let clock = ManualClock::at(moment(99));
    let readers = open_reader(&StorageConfig::default(), data_dir, &clock)
        .await
        .unwrap();
    let all = InvocationFilter::default();
    let calls = readers.invocations(&all, 9).await.unwrap();
    readers.close().await;
    calls
        .iter()
        .map(|call| call.end.as_ref().map(|end| end.outcome))
        .collect()
}

/// Writes a completed call and an open one to the spool, with a database that accepts nothing.
async fn spool_with_calls(data_dir: &Path) -> SpoolJournal {
    let unreachable = Arc::new(MemoryStore::default());
    unreachable.start_failing();
    let options = SpoolOptions::default();
    let spool = data_dir.join("spool");
    let journal = SpoolJournal::open(&spool, options, run(1), unreachable, moment(0))
        .await
        .unwrap();
    let session = session(run(1), 1);
    let (done, open) = (call(session.id, 2), call(session.id, 3));
    for record in [
        Record::SessionOpened(session),
        Record::CallOpened(done.clone()),
        Record::CallClosed(end(&done, Outcome::Ok)),
        Record::CallOpened(open),
    ] {
        journal.append(&record).await.unwrap();
    }
    journal
}

/// Records a successful call.
async fn record_a_call(storage: &Storage) {
    let session = session(run(1), 1);
    let call = call(session.id, 2);
    for record in [
        Record::SessionOpened(session),
        Record::CallOpened(call.clone()),
        Record::CallClosed(end(&call, Outcome::Ok)),
    ] {
        storage.journal.append(&record).await.unwrap();
    }
}

#[tokio::test]
async fn recorded_calls_are_readable_in_this_and_later_runs() {
    let dir = tempfile::tempdir().unwrap();
    let storage = start(dir.path(), run(1)).await.unwrap();
    let session = session(run(1), 1);
    let call = call(session.id, 2);
    for record in [
        Record::SessionOpened(session.clone()),
        Record::CallOpened(call.clone()),
        Record::CallClosed(end(&call, Outcome::Ok)),
    ] {
        storage.journal.append(&record).await.unwrap();
    }
    assert!(storage.wait_until_applied(DEADLINE).await);
    assert_eq!(storage.store.sessions(9).await.unwrap()[0].n_calls, 1);
    assert_eq!(storage.store.exchanges(session.id, 9).await.unwrap(), []);
    assert_eq!(storage.dropped_records(), 0);
    storage.close().await;
    assert_eq!(outcomes(dir.path()).await, [Some(Outcome::Ok)]);
}

#[tokio::test]
async fn readers_see_spooled_records_of_live_runs() {
    let dir = tempfile::tempdir().unwrap();
    let living = spool_with_calls(dir.path()).await;
    assert_eq!(outcomes(dir.path()).await, [Some(Outcome::Ok), None]);
    assert_eq!(outcomes(dir.path()).await, [Some(Outcome::Ok), None]);
    drop(living);
}

#[tokio::test(flavor = "multi_thread")]
async fn readers_see_all_answered_calls_of_busy_runs() {
    let dir = tempfile::tempdir().unwrap();
    let storage = start(dir.path(), run(1)).await.unwrap();
    let session = session(run(1), 1);
    let mut n_answered = 0;
    for _ in 0..20 {
        // Enough for a new segment whenever all records are applied.
        for _ in 0..20 {
            n_answered += 1;
            let mut call = call(session.id, 2);
            call.id = InvocationId::new(moment(n_answered), [1; 10]);
            call.arguments = Some("x".repeat(8_000));
            let closed = Record::CallClosed(end(&call, Outcome::Ok));
            storage
                .journal
                .append(&Record::CallOpened(call))
                .await
                .unwrap();
            storage.journal.append(&closed).await.unwrap();
        }
        let clock = ManualClock::default();
        let readers = open_reader(&StorageConfig::default(), dir.path(), &clock)
            .await
            .unwrap();
        let all = InvocationFilter::default();
        let calls = readers.invocations(&all, u32::MAX).await.unwrap();
        readers.close().await;
        let n_ended = calls.iter().filter(|call| call.end.is_some()).count();
        assert_eq!(i64::try_from(n_ended).unwrap(), n_answered);
    }
    storage.close().await;
}

#[tokio::test]
async fn readers_recover_records_of_dead_runs() {
    let dir = tempfile::tempdir().unwrap();
    drop(spool_with_calls(dir.path()).await);
    let expected = [Some(Outcome::Ok), Some(Outcome::Unknown)];
    assert_eq!(outcomes(dir.path()).await, expected);
    assert!(!dir.path().join("spool").join(run(1).to_string()).exists());
}

#[tokio::test]
async fn a_reader_needs_a_data_directory_and_makes_none() {
    let dir = tempfile::tempdir().unwrap();
    let missing = dir.path().join("missing");
    let clock = ManualClock::default();
    let error = open_reader(&StorageConfig::default(), &missing, &clock)
        .await
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("failed to open {}", missing.display())
    );
    assert!(!missing.exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn several_may_open_a_new_store_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let starting: Vec<_> = (1..=8)
        .map(|n| {
            let data_dir = dir.path().join("data");
            tokio::spawn(async move { start(&data_dir, run(n)).await.unwrap().close().await })
        })
        .collect();
    for started in starting {
        started.await.unwrap();
    }
}

#[tokio::test]
async fn newer_schemas_are_refused_without_changes() {
    use sqlx::{Connection as _, Executor as _};

    let dir = tempfile::tempdir().unwrap();
    start(dir.path(), run(1)).await.unwrap().close().await;
    let path = dir.path().join("riglm.db");
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut newer = sqlx::SqliteConnection::connect_with(&options)
        .await
        .unwrap();
    newer
        .execute(
            "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
            VALUES (9999, 'later', true, x'00', 0)",
        )
        .await
        .unwrap();
    newer.close().await.unwrap();
    let before = std::fs::read(&path).unwrap();
    let error = start(dir.path(), run(2)).await.unwrap_err();
    let StoreError::NewerSchema { found, known } = error else {
        panic!("{error:?}");
    };
    assert_eq!(found, 9999);
    assert!(known < found);
    assert!(
        std::fs::read(&path).unwrap() == before,
        "the database was changed"
    );
}

#[tokio::test]
async fn files_other_than_databases_are_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let rubbish = "no database ".repeat(1_000);
    std::fs::write(dir.path().join("riglm.db"), &rubbish).unwrap();
    let storage = start(dir.path(), run(1)).await.unwrap();
    let damage = storage.damage().unwrap().to_owned();
    record_a_call(&storage).await;
    storage.close().await;
    assert_eq!(outcomes(dir.path()).await, [Some(Outcome::Ok)]);
    let aside = dir.path().join("riglm.db.damaged-1800000000");
    assert!(damage.contains(&aside.display().to_string()), "{damage}");
    assert_eq!(std::fs::read_to_string(aside).unwrap(), rubbish);
    let again = start(dir.path(), run(2)).await.unwrap();
    assert_eq!(again.damage(), None);
    again.close().await;
}

#[tokio::test]
async fn a_database_with_a_broken_page_is_moved_aside() {
    let dir = tempfile::tempdir().unwrap();
    let storage = start(dir.path(), run(1)).await.unwrap();
    record_a_call(&storage).await;
    storage.close().await;
    let path = dir.path().join("riglm.db");
    let mut bytes = std::fs::read(&path).unwrap();
    let half = bytes.len() / 2;
    bytes[half..].fill(0xa5);
    std::fs::write(&path, bytes).unwrap();
    let storage = start(dir.path(), run(2)).await.unwrap();
    assert!(storage.damage().is_some());
    assert_eq!(
        storage
            .store
            .count(&InvocationFilter::default())
            .await
            .unwrap(),
        0
    );
    storage.close().await;
}

#[tokio::test]
async fn a_directory_as_database_path_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    std::fs::create_dir(&path).unwrap();
    let error = start(dir.path(), run(1)).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    assert!(path.is_dir());
}

#[tokio::test]
async fn damaged_files_in_use_are_not_moved() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let first = start(dir.path(), run(1)).await.unwrap();
    record_a_call(&first).await;
    assert!(first.wait_until_applied(DEADLINE).await);
    // A statement leaves this mark when it finds damage. The next process then checks the file and
    // finds it.
    std::fs::write(dir.path().join("riglm.db.damaged"), "").unwrap();
    let options = sqlx::sqlite::SqliteConnectOptions::new().filename(&path);
    let mut connection = <sqlx::SqliteConnection as sqlx::Connection>::connect_with(&options)
        .await
        .unwrap();
    for statement in [
        "PRAGMA writable_schema = ON",
        "UPDATE sqlite_schema SET rootpage = (
            SELECT rootpage FROM sqlite_schema WHERE name = 'sessions_by_start')
        WHERE name = 'sessions_by_run'",
    ] {
        sqlx::query(statement)
            .execute(&mut connection)
            .await
            .unwrap();
    }
    let second = start(dir.path(), run(2)).await.unwrap();
    let damage = second.damage().unwrap();
    assert!(damage.contains("another process uses it"), "{damage}");
    assert!(path.exists());
    second.close().await;
    first.close().await;
    let third = start(dir.path(), run(3)).await.unwrap();
    assert!(
        third
            .damage()
            .unwrap()
            .contains("started an empty database")
    );
    third.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn simultaneous_starts_move_a_damaged_file_once() {
    let dir = tempfile::tempdir().unwrap();
    let rubbish = "no database ".repeat(1_000);
    std::fs::write(dir.path().join("riglm.db"), &rubbish).unwrap();
    let starting: Vec<_> = (1..=8)
        .map(|n| {
            let data_dir = dir.path().to_owned();
            tokio::spawn(async move { start(&data_dir, run(n)).await.unwrap() })
        })
        .collect();
    let mut started = Vec::new();
    for starting in starting {
        started.push(starting.await.unwrap());
    }
    for storage in started {
        storage.close().await;
    }
    let aside: Vec<_> = std::fs::read_dir(dir.path())
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.starts_with("riglm.db.damaged-") && !name.ends_with("-shm"))
        .collect();
    assert_eq!(aside, ["riglm.db.damaged-1800000000"]);
    let moved = std::fs::read_to_string(dir.path().join(&aside[0])).unwrap();
    assert_eq!(moved, rubbish);
}

#[tokio::test]
async fn a_reader_does_not_move_damaged_files() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    std::fs::write(&path, "no database ".repeat(1_000)).unwrap();
    let clock = ManualClock::default();
    let error = open_reader(&StorageConfig::default(), dir.path(), &clock)
        .await
        .unwrap_err();
    assert!(matches!(error, StoreError::Damaged { .. }), "{error:?}");
    assert!(path.exists());
}

#[cfg(unix)]
#[tokio::test]
async fn created_files_are_private_to_the_owner() {
    use std::os::unix::fs::PermissionsExt as _;

    fn modes(path: &Path, found: &mut BTreeMap<String, u32>) {
        let mode = path.metadata().unwrap().permissions().mode() & 0o777;
        found.insert(path.display().to_string(), mode);
        if path.is_dir() {
            for entry in std::fs::read_dir(path).unwrap() {
                modes(&entry.unwrap().path(), found);
            }
        }
    }

    let dir = tempfile::tempdir().unwrap();
    let data_dir = dir.path().join("data");
    let storage = start(&data_dir, run(1)).await.unwrap();
    let mut found = BTreeMap::new();
    modes(&data_dir, &mut found);
    assert!(found.len() >= 6, "{found:?}");
    for (path, mode) in found {
        let expected = if Path::new(&path).is_dir() {
            0o700
        } else {
            0o600
        };
        assert_eq!(mode, expected, "{path}");
    }
    storage.close().await;
}
