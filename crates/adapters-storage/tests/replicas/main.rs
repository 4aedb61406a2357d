//! Processes that share a database agree on decisions that only one of them can make.
//!
//! The test runs its own binary twice. Both processes do the same at the same time, round by round,
//! and report their results.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "what the tests share fails the test that uses it"
)]

mod replica;
mod rounds;
#[path = "../place/schema.rs"]
mod schema;

use std::collections::BTreeMap;
use std::path::PathBuf;

use riglm_adapters_storage::{Durability, PostgresConfig, Store};
use riglm_domain::experiment::Assignment;
use riglm_domain::selection::epoch::ListEpoch;
use riglm_domain::usage::work_session::WorkSession;
use riglm_ports::analytics::{
    AuditTrail as _, ListEpochRepository as _, OverrideRepository as _, SessionRepository as _,
    SnapshotRepository as _, Topic, WeightRepository as _,
};
use riglm_ports::contract::scene::moment;
use serde::{Deserialize, Serialize};

use crate::replica::Replica;
use crate::rounds::{MODEL, N_ROUNDS, RANKING, SCOPE};
use crate::schema::Schema;

#[derive(Clone, Debug, Serialize, Deserialize)]
enum DatabasePlace {
    Sqlite(PathBuf),
    Postgres { schema: String },
}

impl DatabasePlace {
    async fn open(self) -> Store {
        let store = match self {
            Self::Sqlite(path) => Store::sqlite(path, Durability::Process),
            Self::Postgres { schema } => Store::postgres(PostgresConfig {
                url: Some(schema::url().into()),
                schema,
                ..PostgresConfig::default()
            }),
        };
        store.open().await.unwrap();
        store
    }
}

/// The instructions for a process.
#[derive(Debug, Serialize, Deserialize)]
struct ReplicaOrder {
    place: DatabasePlace,
    n: u8,
}

/// The results of a process.
#[derive(Debug, Default, Serialize, Deserialize)]
struct ReplicaReport {
    work_sessions: Vec<WorkSession>,
    epochs: Vec<ListEpoch>,
    assignments: Vec<Assignment>,
    /// The versions that this process wrote.
    snapshots: Vec<u64>,
    weights: Vec<u64>,
    /// The number of versions that the other process had already written.
    n_snapshot_conflicts: u64,
    n_weight_conflicts: u64,
    /// The revisions of the feed of changes after the last round.
    revisions: BTreeMap<String, u64>,
}

#[tokio::test]
async fn processes_sharing_a_file_agree() {
    let dir = tempfile::tempdir().unwrap();
    agree(DatabasePlace::Sqlite(dir.path().join("riglm.db"))).await;
}

#[tokio::test]
#[ignore = "needs PostgreSQL"]
async fn processes_on_one_server_agree() {
    let schema = Schema::new();
    let name = schema.config().schema;
    agree(DatabasePlace::Postgres { schema: name }).await;
}

async fn agree(place: DatabasePlace) {
    let dir = tempfile::tempdir().unwrap();
    let mut replicas = [1, 2].map(|n| Replica::start(dir.path(), place.clone(), n));
    for _ in 0..=N_ROUNDS {
        for replica in &mut replicas {
            assert_eq!(replica.line(), "ready");
        }
        for replica in &mut replicas {
            replica.go();
        }
    }
    let [one, two] = replicas.map(Replica::report);

    assert_eq!(one.work_sessions.len(), usize::from(N_ROUNDS));
    let ids = |report: &ReplicaReport| -> Vec<_> {
        report.work_sessions.iter().map(|it| it.id).collect()
    };
    assert_eq!(ids(&one), ids(&two));
    assert_eq!(one.epochs, two.epochs);
    assert!((1..=u64::from(N_ROUNDS)).eq(one.epochs.iter().map(|it| it.epoch)));
    assert_eq!(one.assignments, two.assignments);
    assert_one_won_each(&one.snapshots, &two.snapshots);
    assert_one_won_each(&one.weights, &two.weights);
    let n = u64::from(N_ROUNDS);
    assert_eq!(one.n_snapshot_conflicts + two.n_snapshot_conflicts, n);
    assert_eq!(one.n_weight_conflicts + two.n_weight_conflicts, n);
    // Both set an override in each round, and one of them changed each of the other topics. No
    // client was removed and no experiment stopped.
    let expected = [2 * n, n, n, n, 0, 0];
    let expected: BTreeMap<_, _> = (Topic::ALL.iter().zip(expected))
        .map(|(topic, revision)| (topic.as_str().into(), revision))
        .collect();
    assert_eq!(one.revisions, expected);
    assert_eq!(two.revisions, expected);
    assert_rows(&place.open().await, &one).await;
}

fn assert_one_won_each(one: &[u64], two: &[u64]) {
    let mut won = [one, two].concat();
    won.sort_unstable();
    assert!((1..=u64::from(N_ROUNDS)).eq(won), "{one:?} and {two:?}");
}

/// Asserts that the database contains the results of the first process.
async fn assert_rows(store: &Store, one: &ReplicaReport) {
    let work_sessions = store.work_sessions(u32::MAX).await.unwrap();
    assert_eq!(work_sessions.len(), usize::from(N_ROUNDS));
    for (round, work_session) in (1..).zip(&work_sessions) {
        // Both were active in it, the second one later.
        assert_eq!(work_session.last_active_at, moment(10 * round + 2));
    }
    let epoch = store.list_epoch(SCOPE).await.unwrap();
    assert_eq!(epoch.as_ref(), one.epochs.last());
    let winner = |won: &[u64], version| if won.contains(&version) { 1 } else { 2 };
    for version in store.weight_versions(RANKING, u32::MAX).await.unwrap() {
        let winner = winner(&one.weights, version.version);
        assert_eq!(version.reason, format!("of {winner}"));
    }
    let snapshot = store.newest_snapshot(MODEL).await.unwrap().unwrap();
    assert_eq!(snapshot.version, u64::from(N_ROUNDS));
    assert_eq!(snapshot.bytes, [winner(&one.snapshots, snapshot.version)]);
    assert_eq!(store.overrides(moment(0)).await.unwrap().len(), 1);
    // Two for the overrides of each round and one for its weights.
    let entries = store.entries(u32::MAX).await.unwrap();
    assert_eq!(entries.len(), 3 * usize::from(N_ROUNDS));
}
