//! Records during outages of the database.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share fails the test that uses it"
)]

#[path = "place/forwarder.rs"]
mod forwarder;
#[path = "place/schema.rs"]
mod schema;

use std::path::Path;
use std::time::Duration;

use riglm_adapters_storage::{
    Backend, PostgresConfig, RecordingConfig, Storage, StorageConfig, open,
};
use riglm_domain::id::InvocationId;
use riglm_domain::usage::invocation::Outcome;
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{
    InvocationFilter, InvocationRepository as _, Maintenance as _, StoreError,
};
use riglm_ports::contract::scene::{call, end, moment, run, session};
use riglm_ports::fake::ManualClock;

use crate::forwarder::{Forwarder, refusing_server};
use crate::schema::Schema;

const DEADLINE: Duration = Duration::from_mins(1);

async fn start(data_dir: &Path, postgres: PostgresConfig) -> Result<Storage, StoreError> {
    let storage = StorageConfig {
        backend: Backend::Postgres,
        postgres: PostgresConfig {
            connect_timeout: Duration::from_secs(2),
            ..postgres
        },
        ..StorageConfig::default()
    };
    let clock = ManualClock::at(moment(99));
    open(
        &storage,
        &RecordingConfig::default(),
        data_dir,
        run(1),
        &clock,
    )
    .await
}

/// Records `n` completed calls, numbered from `from`, and returns their ids.
async fn record_calls(storage: &Storage, from: u16, n: u16) -> Vec<InvocationId> {
    let session = session(run(1), 1);
    let mut ids = Vec::new();
    for number in from..from + n {
        let mut call = call(session.id, 2);
        call.id = InvocationId::new(moment(number.into()), [1; 10]);
        call.sequence = number.into();
        ids.push(call.id);
        let closed = Record::CallClosed(end(&call, Outcome::Ok));
        let opened = Record::CallOpened(call);
        storage.journal.append(&opened).await.unwrap();
        storage.journal.append(&closed).await.unwrap();
    }
    ids
}

/// Returns the calls in the database, and asserts that all were successful.
async fn calls_in_database(storage: &Storage) -> Vec<InvocationId> {
    let all = InvocationFilter::default();
    let calls = storage.store.invocations(&all, u32::MAX).await.unwrap();
    let is_ok = |end: &riglm_domain::usage::invocation::InvocationEnd| end.outcome == Outcome::Ok;
    assert!(
        calls
            .iter()
            .all(|call| call.end.as_ref().is_some_and(is_ok))
    );
    calls.iter().map(|call| call.invocation.id).collect()
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn servers_unavailable_at_startup_get_the_records_later() {
    let (dir, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    let forwarder = Forwarder::new().await;
    forwarder.cut();
    let storage = start(dir.path(), forwarder.config(&schema)).await.unwrap();
    let ids = record_calls(&storage, 1, 200).await;
    let all = InvocationFilter::default();
    assert!(storage.store.count(&all).await.is_err());
    forwarder.restore();
    assert!(storage.wait_until_applied(DEADLINE).await);
    assert_eq!(calls_in_database(&storage).await, ids);
    assert_eq!(storage.dropped_records(), 0);
    storage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "needs PostgreSQL"]
async fn repeated_outages_neither_lose_nor_duplicate_calls() {
    let (dir, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    let forwarder = Forwarder::new().await;
    let storage = start(dir.path(), forwarder.config(&schema)).await.unwrap();
    let mut ids = Vec::new();
    for round in 0..8 {
        ids.extend(record_calls(&storage, 1 + round * 400, 200).await);
        // Probably in the middle of a batch.
        tokio::time::sleep(Duration::from_millis(u64::from(round) * 15)).await;
        forwarder.cut();
        ids.extend(record_calls(&storage, 201 + round * 400, 200).await);
        forwarder.restore();
    }
    assert!(storage.wait_until_applied(DEADLINE).await);
    assert_eq!(calls_in_database(&storage).await, ids);
    assert_eq!(storage.store.check().await.unwrap(), []);
    storage.close().await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn unknown_database_users_are_reported_at_startup() {
    let (dir, schema) = (tempfile::tempdir().unwrap(), Schema::new());
    let url = schema::url().replace("postgres@", "riglm_nobody:secret@");
    let config = PostgresConfig {
        url: Some(url.into()),
        ..schema.config()
    };
    let error = start(dir.path(), config).await.unwrap_err();
    assert!(matches!(error, StoreError::Refused { .. }), "{error:?}");
    let text = error.to_string();
    assert!(
        text.contains("riglm_nobody") && !text.contains("secret"),
        "{text}"
    );
}

#[tokio::test]
async fn wrong_passwords_are_reported_at_startup() {
    let dir = tempfile::tempdir().unwrap();
    let address =
        refusing_server("28P01", "password authentication failed for user \"riglm\"").await;
    let config = PostgresConfig {
        url: Some(format!("postgres://riglm:secret@{address}/riglm").into()),
        ..PostgresConfig::default()
    };
    let error = start(dir.path(), config).await.unwrap_err();
    let text = error.to_string();
    assert!(text.contains("password authentication failed"), "{text}");
    assert!(!text.contains("secret"), "{text}");
}

#[tokio::test]
async fn records_wait_for_a_starting_server() {
    let dir = tempfile::tempdir().unwrap();
    let address = refusing_server("57P03", "the database system is starting up").await;
    let config = PostgresConfig {
        url: Some(format!("postgres://riglm:secret@{address}/riglm").into()),
        ..PostgresConfig::default()
    };
    let storage = start(dir.path(), config).await.unwrap();
    record_calls(&storage, 1, 3).await;
    assert!(storage.waiting_bytes() > 0);
    drop(storage);
}
