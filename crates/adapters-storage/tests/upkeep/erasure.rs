//! The remaining data of a removed client.

use std::path::Path;
use std::time::Duration;

use riglm_adapters_storage::Store;
use riglm_domain::id::{InvocationId, SessionId, ToolName, WorkSessionId};
use riglm_domain::usage::invocation::{Invocation, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::{ClientInfo, Session};
use riglm_domain::usage::work_session::WorkSession;
use riglm_ports::analytics::{
    ClientData as _, ClientSelector, Maintenance as _, RecordSink as _, WorkSessionRepository as _,
};
use riglm_ports::contract::scene::{
    call, context, end, exchange, feedback, hash, list_shown, moment, recommendation, run, search,
    session, work_session,
};
use sqlx::AssertSqlSafe;

use super::{connect, open};

const N_CALLS: u32 = 3_000;

#[tokio::test]
async fn files_contain_no_data_of_removed_clients() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let copy = dir.path().join("riglm.db.v1.backup");
    let store = open(&path).await;
    fill(&store, "neighbour", 1).await;
    fill(&store, "marked-client", 2).await;
    std::fs::write(&copy, "rows of marked-client").unwrap();
    let marks = [
        b"marked-client".to_vec(),
        b"tool of marked-client".to_vec(),
        hash("marked-client").to_string().into_bytes(),
        hash_bytes("marked-client"),
        session_of("marked-client", 2)
            .id
            .as_uuid()
            .as_bytes()
            .to_vec(),
    ];
    assert!(marks.iter().any(|mark| is_in_files(dir.path(), mark)));
    let clients = ClientSelector("marked-client".into());
    let deleted = store.delete(&clients).await.unwrap();
    assert_eq!(deleted.n_calls, u64::from(N_CALLS));
    for mark in &marks {
        let text = String::from_utf8_lossy(mark);
        assert!(!is_in_files(dir.path(), mark), "{text} is left");
    }
    assert!(is_in_files(dir.path(), b"tool of neighbour"));
    assert!(!copy.exists());
    store.close().await;
}

#[tokio::test]
async fn erased_clients_leave_no_traces_in_the_store() {
    let dir = tempfile::tempdir().unwrap();
    let (path, other) = (dir.path().join("a.db"), dir.path().join("b.db"));
    let (store, never) = (open(&path).await, open(&other).await);
    fill(&store, "neighbour", 1).await;
    fill(&store, "marked-client", 2).await;
    fill(&never, "neighbour", 1).await;
    let clients = ClientSelector(hash("marked-client").to_string());
    store.delete(&clients).await.unwrap();
    for table in tables(&path).await {
        let (rows, mut expected) = (rows(&path, &table).await, rows(&other, &table).await);
        if table == "revisions" {
            // The removal itself is recorded, so that learned data is rebuilt.
            expected.push("'erasures' 1".into());
        }
        assert_eq!(rows, expected, "{table}");
    }
    assert_eq!(store.check().await.unwrap(), []);
}

#[tokio::test]
async fn erasure_fails_while_a_reader_is_active() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("riglm.db");
    let store = open(&path).await;
    fill(&store, "marked-client", 2).await;
    let mut reader = connect(&path).await;
    sqlx::query("BEGIN").execute(&mut reader).await.unwrap();
    let n: i64 = sqlx::query_scalar("SELECT count(*) FROM sessions")
        .fetch_one(&mut reader)
        .await
        .unwrap();
    assert_eq!(n, 1);
    let clients = ClientSelector("marked-client".into());
    assert!(store.delete(&clients).await.is_err());
    sqlx::query("COMMIT").execute(&mut reader).await.unwrap();
    // The rows are already deleted, so the client is unknown. Its bytes are removed anyway.
    store.delete(&clients).await.unwrap();
    assert!(!is_in_files(dir.path(), b"marked-client"));
}

/// Stores rows of most kinds for a client with its own tools.
async fn fill(store: &Store, name: &str, n: u8) {
    let session = session_of(name, n);
    let tool = format!("tool of {name}");
    let mut records = vec![
        Record::SessionOpened(session.clone()),
        Record::Exchanged(exchange(session.id, n)),
        Record::ListShown(list_shown(session.id, n)),
        Record::Searched(search(session.id, n)),
        Record::ContextGiven(context(session.id, n)),
        Record::Recommended(recommendation(session.id, n)),
        Record::FeedbackGiven(feedback(session.id, n, &tool)),
    ];
    for number in 0..N_CALLS {
        let mut entropy = [n; 10];
        entropy[..4].copy_from_slice(&number.to_be_bytes());
        let call = Invocation {
            id: InvocationId::new(moment(number.into()), entropy),
            tool: ToolName::from(&*format!("{tool} {}", number % 7)),
            arguments: Some(format!("{{\"of\":\"{name}\"}}")),
            sequence: number.into(),
            ..call(session.id, n)
        };
        let end = end(&call, Outcome::Ok);
        records.extend([Record::CallOpened(call), Record::CallClosed(end)]);
    }
    for part in records.chunks(1_000) {
        store.apply(part).await.unwrap();
    }
    let going = WorkSession {
        id: WorkSessionId::new(moment(1), [n; 10]),
        client: session.client,
        ..work_session(name, n, 1)
    };
    store
        .resolve_work_session(&going, Duration::ZERO.into())
        .await
        .unwrap();
}

fn session_of(name: &str, n: u8) -> Session {
    Session {
        id: SessionId::new(moment(1), [n; 10]),
        client: hash(name),
        client_info: ClientInfo::new(name, "1.0"),
        ..session(run(1), n)
    }
}

fn hash_bytes(text: &str) -> Vec<u8> {
    let hex = hash(text).to_string();
    u128::from_str_radix(&hex, 16).unwrap().to_be_bytes().into()
}

/// Returns whether any file in the directory contains these bytes.
fn is_in_files(dir: &Path, bytes: &[u8]) -> bool {
    std::fs::read_dir(dir).unwrap().any(|entry| {
        let content = std::fs::read(entry.unwrap().path()).unwrap();
        content.windows(bytes.len()).any(|window| window == bytes)
    })
}

async fn tables(path: &Path) -> Vec<String> {
    let select = "SELECT name FROM sqlite_schema
        WHERE type = 'table' AND name NOT LIKE '!_sqlx%' ESCAPE '!'";
    sqlx::query_scalar(select)
        .fetch_all(&mut connect(path).await)
        .await
        .unwrap()
}

/// Returns the rows of a table as text, in order.
async fn rows(path: &Path, table: &str) -> Vec<String> {
    let mut connection = connect(path).await;
    let columns: Vec<String> = sqlx::query_scalar("SELECT name FROM pragma_table_info(?1)")
        .bind(table)
        .fetch_all(&mut connection)
        .await
        .unwrap();
    let quoted: Vec<_> = columns
        .iter()
        .map(|name| format!("quote({name})"))
        .collect();
    let select = format!(
        "SELECT {} FROM {table} ORDER BY 1",
        quoted.join(" || ' ' || ")
    );
    sqlx::query_scalar(AssertSqlSafe(select))
        .fetch_all(&mut connection)
        .await
        .unwrap()
}
