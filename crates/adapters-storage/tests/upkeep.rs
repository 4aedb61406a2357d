//! Maintenance of databases, beyond the contract of the port.
#![expect(
    clippy::unwrap_used,
    reason = "what the tests share fails the test that uses it"
)]

#[path = "upkeep/client_tables.rs"]
mod client_tables;
#[path = "upkeep/damage.rs"]
mod damage;
#[path = "upkeep/erasure.rs"]
mod erasure;
#[path = "upkeep/purge.rs"]
mod purge;
#[path = "place/schema.rs"]
mod schema;
#[path = "upkeep/tasks.rs"]
mod tasks;

use std::path::Path;

use riglm_adapters_storage::{Durability, Store};
use riglm_domain::id::{InvocationId, ToolName};
use riglm_domain::usage::invocation::{Invocation, Outcome};
use riglm_domain::usage::record::Record;
use riglm_domain::usage::session::Session;
use riglm_ports::contract::scene::{call, end, moment};
use sqlx::Connection as _;
use sqlx::sqlite::{SqliteConnectOptions, SqliteConnection};

async fn open(path: &Path) -> Store {
    let store = Store::sqlite(path.into(), Durability::Process);
    store.open().await.unwrap();
    store
}

/// Opens a second connection to the database file of the store.
async fn connect(path: &Path) -> SqliteConnection {
    let options = SqliteConnectOptions::new().filename(path);
    SqliteConnection::connect_with(&options).await.unwrap()
}

/// Returns call number `n` of the session, made after `n` milliseconds.
fn nth_call(session: &Session, n: u32) -> Invocation {
    let at = moment(n.into());
    let mut entropy = [0; 10];
    entropy[..4].copy_from_slice(&n.to_be_bytes());
    Invocation {
        id: InvocationId::new(at, entropy),
        tool: ToolName::from(["read", "write", "search"][n as usize % 3]),
        started_at: at,
        sequence: n.into(),
        ..call(session.id, 1)
    }
}

/// Returns the records of the calls of a session with these numbers.
fn calls(session: &Session, numbers: std::ops::Range<u32>) -> Vec<Record> {
    let records = |n| {
        let call = nth_call(session, n);
        let end = end(&call, Outcome::Ok);
        [Record::CallOpened(call), Record::CallClosed(end)]
    };
    numbers.flat_map(records).collect()
}
