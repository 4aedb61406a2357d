//! Every table with data of clients has its place in export and deletion.
//!
//! The tables are read from the schema, so a new table with a column that ties its rows to a client
//! fails here until it is named, filled, exported and deleted.

use std::collections::BTreeMap;

use riglm_adapters_storage::Store;
use riglm_domain::usage::invocation::{Invocation, Outcome};
use riglm_domain::usage::record::Record;
use riglm_ports::analytics::{ClientData as _, ClientRow, ClientSelector, RecordSink as _};
use riglm_ports::contract::client_data::{client, fill};
use riglm_ports::contract::scene::{call, end, run, session};
use sqlx::AssertSqlSafe;
use sqlx::sqlite::SqliteConnection;

use super::{connect, open};

/// The columns that tie a row to a client, its sessions, or its principal.
const TIES: [&str; 8] = [
    "client",
    "client_name",
    "session",
    "work_session",
    "principal",
    "scope",
    "scope_id",
    "subject",
];

/// The use of a table.
#[derive(Clone, Copy, Debug)]
enum Use {
    /// Its rows are exported as this kind, and deleted.
    Exported(&'static str),
    /// Its rows are deleted. They are derived from exported rows.
    Derived,
    /// Its rows belong to an experiment, and are neither exported nor deleted.
    OfAnExperiment,
}

const TABLES: [(&str, Use); 18] = [
    // A subject is a principal or the identifier of a work session, without any data of it.
    ("assignments", Use::OfAnExperiment),
    ("call_counts", Use::Derived),
    ("contexts", Use::Exported("context")),
    ("exchanges", Use::Exported("exchange")),
    ("feedback", Use::Exported("feedback")),
    ("invocations", Use::Exported("call")),
    ("latency_counts", Use::Derived),
    ("list_epochs", Use::Exported("list_epoch")),
    ("lists_shown", Use::Exported("list_shown")),
    ("overrides", Use::Exported("override")),
    ("pair_counts", Use::Derived),
    ("recommendations", Use::Exported("recommendation")),
    ("searches", Use::Exported("search")),
    ("session_tool_lists", Use::Exported("tools_listed")),
    ("session_tools", Use::Derived),
    ("sessions", Use::Exported("session")),
    ("transition_counts", Use::Derived),
    ("work_sessions", Use::Exported("work_session")),
];

#[tokio::test]
async fn every_table_with_data_of_clients_is_exported_and_deleted() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    let mut connection = connect(&path).await;
    let named: Vec<&str> = TABLES.iter().map(|(table, _)| *table).collect();
    assert_eq!(
        tied_tables(&mut connection).await,
        named,
        "name each table with data of clients, and its use, in TABLES"
    );
    let kinds = TABLES.iter().filter_map(|(_, usage)| match usage {
        Use::Exported(kind) => Some(*kind),
        Use::Derived | Use::OfAnExperiment => None,
    });
    let mut kinds: Vec<&str> = kinds.collect();
    kinds.sort_unstable();
    let mut known = ClientRow::KINDS;
    known.sort_unstable();
    assert_eq!(kinds, known, "each kind of rows has its table");

    // It is the only client, so all rows are its own.
    let client = client("one");
    fill(&store, &client, 10).await;
    store.apply(&calls_in_a_row()).await.unwrap();
    let exported = export(&store).await;
    for (table, usage) in TABLES {
        let n = n_rows(&mut connection, table).await;
        match usage {
            Use::Exported(kind) => {
                assert!(n > 0, "the scene of the contract fills {table}");
                let n_exported = exported.get(kind).copied().unwrap_or_default();
                assert_eq!(n_exported, n, "rows of {table}, exported as {kind}");
            }
            Use::Derived => assert!(n > 0, "the scene of the contract fills {table}"),
            Use::OfAnExperiment => {}
        }
    }

    store.delete(&everything()).await.unwrap();
    for (table, usage) in TABLES {
        if !matches!(usage, Use::OfAnExperiment) {
            let n = n_rows(&mut connection, table).await;
            assert_eq!(n, 0, "rows that are left in {table}");
        }
    }
    store.close().await;
}

/// Returns two calls that follow each other in a session of the scene.
fn calls_in_a_row() -> Vec<Record> {
    let session = session(run(1), 10);
    let records = [100, 101].map(|n| {
        let call = Invocation {
            sequence: n.into(),
            ..call(session.id, n)
        };
        let end = end(&call, Outcome::Ok);
        [Record::CallOpened(call), Record::CallClosed(end)]
    });
    records.into_iter().flatten().collect()
}

fn everything() -> ClientSelector {
    ClientSelector("one".into())
}

/// Returns the numbers of exported rows by kind.
async fn export(store: &Store) -> BTreeMap<&'static str, i64> {
    let mut counts = BTreeMap::new();
    let mut take = |row: ClientRow| {
        *counts.entry(row.kind).or_default() += 1;
        true
    };
    store.export(&everything(), &mut take).await.unwrap();
    counts
}

/// Returns the tables that have a column which ties rows to a client, in order.
async fn tied_tables(connection: &mut SqliteConnection) -> Vec<String> {
    let ties = TIES.map(|tie| format!("'{tie}'")).join(", ");
    let select = format!(
        "SELECT DISTINCT tables.name
         FROM sqlite_schema AS tables, pragma_table_info(tables.name) AS columns
         WHERE tables.type = 'table' AND columns.name IN ({ties})
         ORDER BY tables.name"
    );
    sqlx::query_scalar(AssertSqlSafe(select))
        .fetch_all(connection)
        .await
        .unwrap()
}

async fn n_rows(connection: &mut SqliteConnection, table: &str) -> i64 {
    let select = format!("SELECT count(*) FROM {table}");
    sqlx::query_scalar(AssertSqlSafe(select))
        .fetch_one(connection)
        .await
        .unwrap()
}
