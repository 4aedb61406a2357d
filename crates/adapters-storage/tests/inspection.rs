//! Inspection of a store changes nothing, and a migration returns both schema versions.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share fails the test that uses it"
)]

#[path = "place/schema.rs"]
mod schema;

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use riglm_adapters_storage::{
    Backend, Durability, SpoolJournal, SpoolOptions, StorageConfig, Store, inspect, migrate,
    open_reader,
};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Journal as _, RecordSink as _, StoreError,
};
use riglm_ports::contract::scene::{call, moment, run, session};
use riglm_ports::fake::{ManualClock, MemoryStore};
use sqlx::{Connection as _, SqliteConnection};

/// Returns the files in a directory, by name.
fn files(dir: &Path) -> BTreeMap<String, Vec<u8>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if entry.path().is_dir() {
            let below = self::files(&entry.path()).into_iter();
            files.extend(below.map(|(below, content)| (format!("{name}/{below}"), content)));
        } else {
            files.insert(name, std::fs::read(entry.path()).unwrap());
        }
    }
    files
}

/// Stores a session with two calls.
async fn store_calls(store: &Store) {
    let session = session(run(1), 1);
    let calls = [call(session.id, 2), call(session.id, 3)];
    let records = calls.map(Record::CallOpened);
    store
        .apply(&[&[Record::SessionOpened(session)], records.as_slice()].concat())
        .await
        .unwrap();
}

#[tokio::test]
async fn inspecting_a_store_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let config = StorageConfig::default();
    let missing = inspect(&config, &dir.path().join("none")).await.unwrap();
    assert_eq!((missing.schema_found, missing.n_sessions), (0, Some(0)));
    assert!(!dir.path().join("none").exists());

    let empty = inspect(&config, dir.path()).await.unwrap();
    assert_eq!((empty.schema_found, empty.n_sessions), (0, Some(0)));
    assert!(!empty.is_newer() && files(dir.path()).is_empty());

    let (before, after) = migrate(&config, dir.path()).await.unwrap();
    assert_eq!((before, after), (0, empty.schema_known));
    let path = dir.path().join("riglm.db");
    let store = Store::sqlite(path.clone(), Durability::Process);
    store_calls(&store).await;
    // While a process has the file open, and after it has closed it.
    let open = inspect(&config, dir.path()).await.unwrap();
    store.close().await;
    let unreachable = Arc::new(MemoryStore::default());
    unreachable.start_failing();
    let spool = dir.path().join("spool");
    let options = SpoolOptions::default();
    let journal = SpoolJournal::open(&spool, options, run(2), unreachable, moment(0))
        .await
        .unwrap();
    let record = Record::SessionOpened(session(run(2), 7));
    journal.append(&record).await.unwrap();
    drop(journal);
    let at_rest = files(dir.path());
    let closed = inspect(&config, dir.path()).await.unwrap();
    assert_eq!(files(dir.path()), at_rest);
    assert_eq!((open.n_sessions, open.n_calls), (Some(1), Some(2)));
    assert_eq!((closed.n_sessions, closed.n_calls), (Some(1), Some(2)));
    assert_eq!(
        (closed.place, closed.backend),
        (path.display().to_string(), Backend::Sqlite)
    );
    let line = serde_json::to_string(&record).unwrap() + "\n";
    assert_eq!(
        (open.spool_bytes, closed.spool_bytes),
        (0, line.len() as u64)
    );
}

#[tokio::test]
async fn newer_schemas_are_reported_without_counts() {
    let dir = tempfile::tempdir().unwrap();
    let config = StorageConfig::default();
    migrate(&config, dir.path()).await.unwrap();
    let path = dir.path().join("riglm.db").display().to_string();
    let mut connection = SqliteConnection::connect(&path).await.unwrap();
    sqlx::query(
        "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
        VALUES (99, 'x', true, x'00', 0)",
    )
    .execute(&mut connection)
    .await
    .unwrap();
    connection.close().await.unwrap();
    let newer = inspect(&config, dir.path()).await.unwrap();
    assert!(newer.is_newer());
    assert_eq!((newer.schema_found, newer.n_calls), (99, None));
    let refused = migrate(&config, dir.path()).await;
    assert!(matches!(
        refused,
        Err(StoreError::NewerSchema { found: 99, .. })
    ));
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn inspecting_a_server_hides_its_credentials() {
    let (dir, schema) = (tempfile::tempdir().unwrap(), schema::Schema::new());
    let config = StorageConfig {
        backend: Backend::Postgres,
        postgres: schema.config(),
        ..StorageConfig::default()
    };
    let empty = inspect(&config, dir.path()).await.unwrap();
    assert_eq!((empty.schema_found, empty.n_calls), (0, Some(0)));
    let (before, after) = migrate(&config, dir.path()).await.unwrap();
    assert_eq!((before, after), (0, empty.schema_known));
    let store = Store::postgres(schema.config());
    store_calls(&store).await;
    store.close().await;
    // Another machine has no data directory. There is no spool, and none is created.
    let nowhere = dir.path().join("missing");
    let reader = open_reader(&config, &nowhere, &ManualClock::default()).await;
    let reader = reader.unwrap();
    let all = InvocationFilter::default();
    assert_eq!(reader.count(&all).await.unwrap(), 2);
    reader.close().await;
    assert!(!nowhere.exists());
    let look = inspect(&config, dir.path()).await.unwrap();
    assert_eq!((look.n_sessions, look.n_calls), (Some(1), Some(2)));
    assert!(
        !look.place.contains('@') && look.place.contains(":5432/"),
        "{}",
        look.place
    );
}
