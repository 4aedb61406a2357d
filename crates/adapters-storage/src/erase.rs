//! Deletion of clients from the database and from the spool.

use std::path::Path;
use std::time::Duration;

use riglm_ports::analytics::{
    ClientData, ClientSelector, DeletedRows, ErasureReport, RecordSink, StoreError,
};
use riglm_ports::clock::Clock;
use tokio::time::Instant;

use crate::connect::spool_dir;
use crate::error::operation_error;
use crate::spool;

// The wait before the next attempt, for a running proxy to write its records to the database.
const AGAIN_AFTER: Duration = Duration::from_secs(1);

/// Deletes all stored data of the clients: rows, and records in the spool that will become rows.
///
/// A running proxy with the same data directory gets the time `within` to write its records to the
/// database. This function itself writes the records of dead runs there.
///
/// # Errors
///
/// Returns [`StoreError`] when the spool cannot be read or the database fails; a part may be
/// deleted then.
pub async fn erase<S: ClientData + RecordSink>(
    store: &S,
    data_dir: &Path,
    clients: &ClientSelector,
    within: Duration,
    clock: &dyn Clock,
) -> Result<ErasureReport, StoreError> {
    let spool_dir = spool_dir(data_dir);
    let reading = "read the spool";
    let deadline = Instant::now() + within;
    // The spool is searched for these: the selector, and the sessions found so far.
    let mut texts = vec![within_json(&clients.0)];
    let mut deleted = DeletedRows::default();
    let mut has_open = false;
    loop {
        spool::import(&spool_dir, store, clock.now()).await?;
        // Records in flight would become rows again after the deletion.
        let has_arrived = spool::wait_until_drained(&spool_dir, deadline).await;
        let sessions = sessions_of(store, clients).await?;
        has_open |= sessions.iter().any(|session| session.is_open);
        texts.extend(sessions.into_iter().map(|session| session.id));
        add_deleted(&mut deleted, store.delete(clients).await?);
        let is_gone = spool::wait_until_drained(&spool_dir, deadline).await;
        let is_complete = has_arrived.map_err(operation_error(reading))?
            && is_gone.map_err(operation_error(reading))?
            && !spool::contains_any(&spool_dir, &texts).map_err(operation_error(reading))?
            && sessions_of(store, clients).await?.is_empty();
        if is_complete || Instant::now() >= deadline {
            return Ok(ErasureReport {
                deleted,
                is_complete,
                has_open_session: has_open,
            });
        }
        tokio::time::sleep(AGAIN_AFTER).await;
    }
}

struct ClientSession {
    // The spool has the calls under this identifier.
    id: String,
    is_open: bool,
}

async fn sessions_of(
    store: &impl ClientData,
    clients: &ClientSelector,
) -> Result<Vec<ClientSession>, StoreError> {
    let mut sessions = Vec::new();
    store
        .export(clients, &mut |row| {
            let id = row.row.get("id").and_then(|id| id.as_str());
            let is_open = row
                .row
                .get("ended_at")
                .is_none_or(serde_json::Value::is_null);
            let session = id.filter(|_| row.kind == "session");
            sessions.extend(session.map(|id| ClientSession {
                id: id.to_owned(),
                is_open,
            }));
            // The export begins with sessions, so it can stop at the first row of another kind.
            row.kind == "session"
        })
        .await?;
    Ok(sessions)
}

/// Returns a text as it appears between the quotes of a JSON string.
fn within_json(text: &str) -> String {
    let quoted = serde_json::Value::from(text).to_string();
    quoted[1..quoted.len() - 1].to_owned()
}

fn add_deleted(sum: &mut DeletedRows, more: DeletedRows) {
    sum.n_sessions += more.n_sessions;
    sum.n_calls += more.n_calls;
    sum.n_others += more.n_others;
}
